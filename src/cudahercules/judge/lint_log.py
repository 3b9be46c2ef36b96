"""Which tasks a ``lint`` of many still has to do: a resume file, a shard, one member a family.

The file has a JSON line a task, forced to the disk before the next task begins, so that what is finished
survives Ctrl-C, ``kill -9`` and power cuts. Of several lines about a task the last one counts.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import ValidationError

from cudahercules.errors import MachineError, UsageError
from cudahercules.judge.lint import LintReport, content_hash
from cudahercules.task.model import Target, Task


def reports(path: Path) -> dict[str, LintReport]:
    """The last report of each task (and device, as ``task on device``) in a file; a line that was cut off at
    the end is left out. Raises UsageError if it holds anything else."""
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; name a file that lint --resume wrote") from error
    if lines and not lines[-1].endswith(b"\n"):
        lines.pop()
    found: dict[str, LintReport] = {}
    for number, line in enumerate(lines, 1):
        try:
            report = LintReport.model_validate_json(line)
        except ValidationError as error:
            raise UsageError(f"{path}: line {number} is no report of lint; name another file") from error
        found[f"{report.task} on {report.device}"] = report
    return found


def finished(
    path: Path, tasks: Iterable[Task], device: str, mechanical: bool = False
) -> dict[str, LintReport]:
    """The reports, by task, of those ``tasks`` that are in the file with their present content on ``device``
    (and with mistakes made by machine, if they are wanted).
    A file that does not exist is made; a last line that was cut off is dropped from it. Raises UsageError."""
    if path.exists() and not path.is_file():
        raise UsageError(f"--resume {path}: this is no file; name a file of reports, or a new one")
    try:
        with path.open("ab+") as file:  # made now if it is new: a name that cannot be written is said first
            file.seek(0)
            lines = file.read().splitlines(keepends=True)
            if lines and not lines[-1].endswith(b"\n"):
                file.truncate(sum(map(len, lines[:-1])))
    except OSError as error:
        raise UsageError(f"--resume {path}: {error.strerror}; name a file that can be written") from error
    known = reports(path)
    done = {}
    for task in tasks:
        report, content = known.get(f"{task.id} on {device}"), content_hash(task)
        wanted = (f"{content} mechanical",) if mechanical else (content, f"{content} mechanical")
        if report is not None and report.content in wanted:
            done[task.id] = report
    return done


def append(path: Path, report: LintReport) -> None:
    """Add a report and force it to the disk. Raises MachineError if the disk refuses."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(report.model_dump_json(exclude_defaults=True) + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise MachineError(
            f"--resume {path}: {error.strerror}: the report on {report.task} is not in it"
        ) from error


def shard(tasks: Sequence[Task], which: str) -> tuple[Task, ...]:
    """Shard ``which`` (``2/8``: the second of eight) by a hash of the member's name: new tasks move no other,
    and the targets of a member, which share experts, stay together. Raises UsageError."""
    given = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", which)
    if given is None or int(given[1]) > int(given[2]):
        raise UsageError(f"--shard {which}: give K/N with K from 1 to N, as in 2/8")
    k, n = int(given[1]), int(given[2])
    return tuple(t for t in tasks if _number(f"{t.family}/{t.member}") % n == k - 1)


def _number(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")


def first_members(tasks: Sequence[Task]) -> tuple[Task, ...]:
    """One task a family: that of the member it declares first, for ``general`` where there is one."""
    from cudahercules.task.load import load_family

    order = {
        t.id: (number, t.target is not Target.GENERAL)
        for directory in {t.directory for t in tasks}
        for number, t in enumerate(load_family(directory))
    }
    first: dict[str, Task] = {}
    for task in sorted(tasks, key=lambda t: order[t.id]):
        mine = first.get(task.family)
        if mine is None or (mine.member == task.member and mine.target is not Target.GENERAL):
            first[task.family] = task if task.target is Target.GENERAL or mine is None else mine
    return tuple(t for t in tasks if first[t.family] == t)
