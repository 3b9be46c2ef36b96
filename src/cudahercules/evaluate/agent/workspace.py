"""An agent's files. They live in the sample's store, never on the disk, so no path can lead out of them."""

from __future__ import annotations

from typing import Any

from inspect_ai.tool import ToolError
from inspect_ai.util import StoreModel
from pydantic import Field

from cudahercules.build.candidate import GENERATED_HEADER, SOURCE_SUFFIXES, from_text
from cudahercules.errors import UsageError

MAX_CHARACTERS = 60_000
"""What one `read` returns at most."""


class Workspace(StoreModel):
    """``files`` maps names to text. ``trajectory`` holds what checks and measurements came to (as plain
    data); ``measured`` counts measurements."""

    files: dict[str, str] = Field(default_factory=dict)
    trajectory: dict[str, Any] | None = None
    measured: int = 0
    submitted: bool = False


def listing(files: dict[str, str]) -> str:
    """The files with their sizes."""
    rows = [f"{name}  {len(text.splitlines())} lines" for name, text in sorted(files.items())]
    return "\n".join([*rows, f"{GENERATED_HEADER}  generated, read-only"])


def read(files: dict[str, str], path: str, header: str) -> str:
    """A file's text with line numbers; all names for ".". Raises ToolError."""
    if path in ("", ".", "/"):
        return listing(files)
    text = header if path == GENERATED_HEADER else files.get(path)
    if text is None:
        raise ToolError(f"there is no {path}. There are:\n{listing(files)}")
    numbered = "\n".join(f"{i:4d}  {line}" for i, line in enumerate(text.splitlines(), 1))
    if len(numbered) > MAX_CHARACTERS:
        return numbered[:MAX_CHARACTERS] + f"\n(cut: the file has {len(text)} characters)"
    return numbered


def written(files: dict[str, str], path: str, text: str) -> dict[str, str]:
    """The files with one written. Raises ToolError for a name or a size that a candidate cannot have."""
    if path == GENERATED_HEADER:
        raise ToolError(f"{GENERATED_HEADER} is generated; include it, but do not write it")
    if not path.endswith(SOURCE_SUFFIXES):
        raise ToolError(f"{path}: sources end in {', '.join(SOURCE_SUFFIXES)}")
    new = {**files, path: text}
    try:
        from_text("workspace", {**new, "always.cu": ""})
    except UsageError as error:
        raise ToolError(str(error)) from error
    return new


def edited(files: dict[str, str], path: str, old: str, new: str) -> dict[str, str]:
    """The files with one passage replaced. Raises ToolError unless it stands in ``path`` exactly once."""
    if path not in files:
        raise ToolError(f"there is no {path} to edit. There are:\n{listing(files)}")
    count = files[path].count(old) if old else 0
    if count != 1:
        raise ToolError(
            f"the old text stands {count} times in {path}: give a passage that stands there exactly once"
        )
    return written(files, path, files[path].replace(old, new))
