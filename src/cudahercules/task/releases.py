"""Frozen releases of the suite: files in ``tasks/releases`` that keep each task's hash under a name.

A task whose content has the hash that the newest release keeps for it carries that release's name, as
``2026.12``; any other carries ``dev-`` and the first digits of its own hash.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path

from pydantic import Field, ValidationError

from cudahercules.errors import TaskError
from cudahercules.task.model import Model, Task

RELEASES = Path(__file__).parent.parent / "tasks" / "releases"
NAME = re.compile(r"20\d\d\.(0[1-9]|1[0-2])(\.[1-9]\d?)?")


class Frozen(Model):
    """One release: task id -> its hash, and one ``hash`` over all of them."""

    release: str = Field(pattern=rf"^{NAME.pattern}$")
    hash: str
    tasks: dict[str, str]


def whole_hash(tasks: dict[str, str]) -> str:
    """64 hex digits over the ids and hashes of a release, whatever their order."""
    lines = "".join(f"{task} {digest}\n" for task, digest in sorted(tasks.items()))
    return hashlib.sha256(lines.encode()).hexdigest()


def releases() -> tuple[Frozen, ...]:
    """Every frozen release, oldest first. Raises TaskError for a damaged file."""
    return _read(RELEASES)


@cache
def _read(directory: Path) -> tuple[Frozen, ...]:
    found = [_one(path) for path in directory.glob("*.json")]
    return tuple(sorted(found, key=lambda frozen: age(frozen.release)))


def forget() -> None:
    """Read the files again at the next look: one was written."""
    _read.cache_clear()


def _one(path: Path) -> Frozen:
    try:
        frozen = Frozen.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise TaskError(f"{path}: is no release ({str(error).splitlines()[0]}): restore the file") from None
    if frozen.release != path.stem or frozen.hash != whole_hash(frozen.tasks):
        raise TaskError(
            f"{path}: was changed after it was frozen: restore the file, and freeze a new release"
        )
    return frozen


def age(name: str) -> tuple[int, ...]:
    """What releases are ordered by."""
    return tuple(map(int, name.split(".")))


def release_name(task: str, digest: str) -> str:
    """What the task of this id and hash carries: the newest release's name, or ``dev-`` and twelve digits."""
    frozen = releases()
    if frozen and frozen[-1].tasks.get(task) == digest:
        return frozen[-1].release
    return f"dev-{digest[:12]}"


def is_release_of(name: str, task: Task) -> bool:
    """Whether a ranking or a verdict that carries ``name`` speaks of ``task`` as it is: the same content may
    have had another name before it was frozen, or in an earlier release."""
    if name in (task.release, f"dev-{task.digest[:12]}"):
        return True
    return any(f.release == name and f.tasks.get(task.id) == task.digest for f in releases())
