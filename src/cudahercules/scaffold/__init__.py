"""``new_family``: a family skeleton that lints at once.

The files lie in ``template/``: a small problem that is complete, with comments that teach. Only
``@class@`` and ``@name@`` in ``task.yaml`` are replaced, so that everything else can be read, compiled
and tested where it lies.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

from cudahercules.errors import MachineError, UsageError
from cudahercules.task.load import BUNDLED, task_roots
from cudahercules.task.model import TaskClass

TEMPLATE = Path(__file__).parent / "template"
_NAME = re.compile(r"[a-z][a-z0-9_]*")


def new_family(name: str, directory: Path | None = None) -> Path:
    """Make the skeleton of family ``name`` (``CLASS/NAME``) and return its folder.

    It goes into ``directory``, else into the first directory of ``$HERCULES_TASKS``, else, in a
    checkout, among the bundled families. Nothing is overwritten and no half-made folder is left.
    Raises UsageError, or MachineError where the disk refuses.
    """
    task_class, family = _parts(name)
    root = directory or default_root()
    target = root / task_class.value / family
    for known in dict.fromkeys((root, *task_roots())):
        if (taken := known / task_class.value / family).exists():
            raise UsageError(f"{taken} exists already; nothing was changed. Choose another name")
    if root.exists() and not root.is_dir():
        raise UsageError(f"{root} is a file: name a directory for families")
    try:
        _make(target, root, task_class, family)
    except OSError as error:
        raise MachineError(f"cannot make {target}: {os.strerror(error.errno or 0)}") from error
    return target


def default_root() -> Path:
    """Where a new family goes if the user does not say. Raises UsageError where nothing is obvious."""
    first = next((root for root in task_roots() if root != BUNDLED), None)
    if first is not None:
        return first
    if in_checkout():
        return BUNDLED
    raise UsageError(
        "where shall the family go? Give --directory DIR, or set HERCULES_TASKS to a directory of yours"
    )


def in_checkout() -> bool:
    """Whether the package runs from its own sources (``src/cudahercules`` beside ``pyproject.toml``)."""
    return (BUNDLED.parents[2] / "pyproject.toml").is_file() and BUNDLED.parents[1].name == "src"


def _parts(name: str) -> tuple[TaskClass, str]:
    task_class, _, family = name.strip("/").rpartition("/")
    known = ", ".join(c.value for c in TaskClass)
    if task_class not in list(TaskClass):
        raise UsageError(f"{name!r}: give CLASS/NAME, where CLASS is one of {known}; e.g. kernel/{family}")
    if not _NAME.fullmatch(family):
        raise UsageError(f"{family!r}: a family's name is lower-case letters, digits and _, e.g. row_sums")
    return TaskClass(task_class), family


def _make(target: Path, root: Path, task_class: TaskClass, family: str) -> None:
    """Fill a private folder beside the classes, then put it in its place with one rename."""
    target.parent.mkdir(parents=True, exist_ok=True)
    private = Path(tempfile.mkdtemp(prefix=f".{family}.", dir=root))
    try:
        for source in sorted(p for p in TEMPLATE.rglob("*") if p.is_file() and "__pycache__" not in p.parts):
            copy = private / source.relative_to(TEMPLATE)
            copy.parent.mkdir(exist_ok=True)
            text = source.read_text(encoding="utf-8")
            if source.name == "task.yaml":
                text = text.replace("@class@", task_class.value).replace("@name@", family)
            copy.write_text(text, encoding="utf-8")
        private.chmod(0o755)
        private.rename(target)
    finally:
        shutil.rmtree(private, ignore_errors=True)
