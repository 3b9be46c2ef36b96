"""What lies in a family's folder: looked at once, however many members the family has."""

from __future__ import annotations

import ast
from functools import cached_property
from pathlib import Path


class Folder:
    """The folder of one family while it is being loaded."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._held: dict[str, bool] = {}

    def holds(self, name: str) -> bool:
        """Whether there is a file or a directory of this name inside the folder."""
        if name not in self._held:
            self._held[name] = self._lies_inside(name)
        return self._held[name]

    def _lies_inside(self, name: str) -> bool:
        if "\0" in name:  # no file can be named so, and pathlib raises
            return False
        path = (self.directory / name).resolve()
        return path.is_relative_to(self.directory.resolve()) and path.exists()

    @cached_property
    def experts(self) -> frozenset[str]:
        """Names of the functions that ``experts.py`` defines, read without running it; none if it is missing.
        Raises SyntaxError or ValueError if it is no Python."""
        try:
            tree = ast.parse((self.directory / "experts.py").read_bytes())
        except OSError:
            return frozenset()
        return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))
