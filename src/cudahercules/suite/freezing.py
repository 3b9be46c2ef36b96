"""Freezing a release of the suite, and saying what differs from the newest one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from cudahercules.cache import explain_disk_errors
from cudahercules.errors import UsageError
from cudahercules.task import releases as kept
from cudahercules.task.load import bundled_families
from cudahercules.task.model import Model, Task
from cudahercules.task.releases import Frozen

SECTION = "Tasks changed since"
"""``### Tasks changed since 2026.12`` in the changelog names the families whose frozen tasks have changed."""


class Difference(Model):
    """Ids of tasks: those whose content is no longer what ``release`` holds, those that are ``gone``, and
    those that are ``new`` (which need no new release, and carry ``dev-`` until there is one)."""

    release: str
    hash: str
    same: int
    changed: tuple[str, ...]
    gone: tuple[str, ...]
    new: tuple[str, ...]


def bundled_tasks() -> tuple[Task, ...]:
    """The package's own tasks, without those of ``$HERCULES_TASKS``."""
    return tuple(task for family in bundled_families() for task in family)


def difference(frozen: Frozen, tasks: Sequence[Task]) -> Difference:
    """What ``tasks`` differ in from a release."""
    here = {t.id: t.digest for t in tasks}
    return Difference(
        release=frozen.release,
        hash=frozen.hash,
        same=sum(here.get(task) == digest for task, digest in frozen.tasks.items()),
        changed=tuple(sorted(t for t, digest in frozen.tasks.items() if t in here and here[t] != digest)),
        gone=tuple(sorted(frozen.tasks.keys() - here.keys())),
        new=tuple(sorted(here.keys() - frozen.tasks.keys())),
    )


def undeclared(found: Difference, changelog: str) -> tuple[str, ...]:
    """Families with changed or missing tasks that the changelog's section on this release does not name."""
    section = re.search(
        rf"^#+ {SECTION} {re.escape(found.release)}\s*$(.*?)(?=^#|\Z)", changelog, re.M | re.S
    )
    named = set(re.findall(r"[a-z]+/\w+", section[1])) if section else set()
    touched = {task.rpartition("/")[0] for task in (*found.changed, *found.gone)}
    return tuple(sorted(touched - named))


def freeze(name: str, tasks: Sequence[Task]) -> tuple[Frozen, Path]:
    """Write the release ``name`` with these tasks. The same again changes nothing. Raises UsageError for a
    name that is no year and month, is older than the newest, or is taken by other content."""
    if not kept.NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is no name of a release: year and month, as 2026.12 (a second one: 2026.12.1)"
        )
    content = {t.id: t.digest for t in sorted(tasks, key=lambda t: t.id)}
    frozen = Frozen(release=name, hash=kept.whole_hash(content), tasks=content)
    path = kept.RELEASES / f"{name}.json"
    known = kept.releases()
    if same := next((k for k in known if k.release == name), None):
        if same != frozen:
            raise UsageError(f"{path} holds other content, and a release never changes: take a new name")
        return same, path
    if known and kept.age(name) < kept.age(known[-1].release):
        raise UsageError(f"{name} is older than {known[-1].release}: take a newer name")
    with explain_disk_errors(path):
        path.parent.mkdir(exist_ok=True)
        path.write_text(frozen.model_dump_json(indent=1) + "\n", encoding="utf-8")
    kept.forget()
    return frozen, path
