"""Which of the release's tasks (arXiv 2605.08467) this suite answers for, from the families' ``released``."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from cudahercules.errors import TaskError
from cudahercules.task import yaml_tree
from cudahercules.task.load import BUNDLED, bundled_families
from cudahercules.task.model import Model, Task
from cudahercules.task.released import released_names, slice_of, slices

NOT_YET = (
    ("*/blackwell/*", "no Blackwell card is at hand, and the emulator does not know its tensor instructions"),
    (
        "class2/hopper/tk_*",
        "recurrences in chunks (Based, Hedgehog, linear attention, Mamba-2): families to come",
    ),
    ("class3/*", "applications need validators and drivers of their own: families to come"),
    ("class4/*", "challenges need an opponent that was measured on the same card: families to come"),
    ("*", "no family yet"),
)
"""Why a released task has no answer: the first pattern that fits its name."""


class Covered(Model):
    """One task of the release. ``tasks`` holds full ids of ours, ``family`` is "" while there are none.

    ``current`` is False for the ten names that the release has dropped; ``why_not`` is for missing ones."""

    name: str
    part: str
    current: bool
    family: str = ""
    tasks: tuple[str, ...] = ()
    repaired: str = ""
    why_not: str = ""


class Coverage(Model):
    rows: tuple[Covered, ...]

    def of(self, part: str) -> tuple[Covered, ...]:
        """The current tasks of one slice."""
        return tuple(r for r in self.rows if r.part == part and r.current)

    def missing(self, *parts: str) -> tuple[Covered, ...]:
        """Current tasks without an answer, in these slices or in all."""
        wanted = parts or tuple(slices())
        return tuple(r for part in wanted for r in self.of(part) if not r.tasks)

    @property
    def answered(self) -> int:
        """How many of the current tasks have an answer."""
        return sum(bool(r.tasks) for part in slices() for r in self.of(part))


def coverage(root: Path = BUNDLED) -> Coverage:
    """What the families under ``root`` answer for; names in the release's order. Raises TaskError
    (file:line) where two families claim one name."""
    claims: dict[str, list[Task]] = {}
    for family in bundled_families(root):
        for task in family:
            for name in task.released:
                claims.setdefault(name, []).append(task)
    return Coverage(rows=tuple(_row(name, claims.get(name, [])) for name in released_names()))


def _row(name: str, tasks: list[Task]) -> Covered:
    row = Covered(name=name, part=slice_of(name), current=released_names()[name])
    if not tasks:
        why = next(why for pattern, why in NOT_YET if fnmatchcase(name, pattern))
        return row.model_copy(update={"why_not": why})
    first = tasks[0]
    for other in tasks:
        if other.family != first.family:
            raise _claimed_twice(name, first, other)
    answer = first.released[name]
    own = {f"{t.member}@{t.target.value}": t.id for t in tasks}
    ids = tuple(own[short] for short in answer.tasks)
    update = {"family": first.family, "tasks": ids, "repaired": " ".join(answer.repaired.split())}
    return row.model_copy(update=update)


def _claimed_twice(name: str, first: Task, other: Task) -> TaskError:
    path = other.directory / "task.yaml"
    line = yaml_tree.read(path).line_of(("released", name))
    what = f"{first.family} answers for it already: a released task belongs to one family"
    return TaskError(f"{path}:{line}: released.{name}: {what}")


def unused_reasons(found: Coverage) -> Iterator[str]:
    """Patterns of :data:`NOT_YET` that no missing task needs any more, but for the last."""
    for pattern, why in NOT_YET[:-1]:
        if not any(r.why_not == why for r in found.missing()):
            yield pattern
