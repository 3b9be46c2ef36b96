"""Which expert files the emulator takes: one row for each file and target."""

from __future__ import annotations

import fnmatch
import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Literal

from pydantic import Field

from cudahercules.build.toolchain import find_toolchain
from cudahercules.cache import digest, entry
from cudahercules.emulator import native
from cudahercules.emulator.check import unsupported
from cudahercules.emulator.corpus.compiled import Compiled, at_hand, compiled
from cudahercules.emulator.corpus.manifest import ExpertFile, manifest
from cudahercules.errors import UsageError
from cudahercules.task.model import Model

Status = Literal["supported", "stopped", "refused", "not_tried"]

_INSTRUCTION = re.compile(r"^\s*(?:@!?%\w+\s+)?[a-z][a-z0-9_.:]*[^;:]*;", re.MULTILINE)


class Row(Model):
    """One file for one target. ``supported``: every instruction is known. ``stopped``: ``stoppers`` are
    not, with how often each stands in the text. ``refused``: a compiler of the toolkit does not take the
    file for this target, as ``message`` says; it does not count. ``not_tried``: time was up."""

    file: str
    origin: str
    target: str
    status: Status
    kernels: int = 0
    instructions: int = 0
    stoppers: dict[str, int] = Field(default_factory=dict)
    message: str = ""
    seconds: float = 0.0


class Survey(Model):
    """All rows, and with which versions they were made."""

    toolchain: str
    wheels: dict[str, str]
    rows: tuple[Row, ...]

    def of(self, target: str, *status: str) -> tuple[Row, ...]:
        """The rows of one target with one of the statuses (all of them if none is given)."""
        return tuple(r for r in self.rows if r.target == target and (not status or r.status in status))

    def stoppers(self, target: str) -> Counter[str]:
        """Unknown instructions of one target by the number of files that each one is in."""
        return Counter(name for row in self.of(target, "stopped") for name in row.stoppers)


def select(targets: Sequence[str], pattern: str) -> list[tuple[ExpertFile, str]]:
    """Files and targets, cheap ones first. Raises UsageError if no file's name matches ``pattern``."""
    chosen = [
        (file, target)
        for file in manifest().files
        for target in targets
        if target in file.targets and (not pattern or fnmatch.fnmatch(file.name, pattern))
    ]
    if not chosen:
        raise UsageError(f"no file of the corpus is called {pattern!r} for {', '.join(targets)}")
    return sorted(chosen, key=lambda pair: pair[0].seconds)


def survey(
    chosen: Sequence[tuple[ExpertFile, str]],
    *,
    jobs: int,
    within_s: float | None = None,
    notify: Callable[[str], None] | None = None,
) -> Survey:
    """Compile and look. ``jobs`` compilers run at a time (each may take 4 GB); after ``within_s`` seconds
    no new one starts, and what is not in the cache is ``not_tried``. What is finished stays in the cache, so
    that a run that was interrupted goes on where it stopped. Raises MachineError."""
    rows: dict[tuple[str, str], Row] = {}
    for row in _rows(chosen, jobs, within_s):
        rows[row.file, row.target] = row
        if notify is not None:
            notify(f"{len(rows)} of {len(chosen)} files: {row.file} for {row.target} {row.status}")
    used = {w for file, _ in chosen for w in (file.origin, *file.uses)}
    wheels = {w.package: w.version for name, w in manifest().wheels.items() if name in used}
    ordered = sorted(rows.values(), key=lambda r: (r.target, r.file))
    return Survey(toolchain=find_toolchain().title, wheels=wheels, rows=tuple(ordered))


def _rows(chosen: Sequence[tuple[ExpertFile, str]], jobs: int, within_s: float | None) -> Iterator[Row]:
    start = time.monotonic()
    waiting = list(reversed(chosen))
    running: set[Future[Row]] = set()
    pool = ThreadPoolExecutor(jobs, thread_name_prefix="corpus")
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                file, target = waiting.pop()
                late = within_s is not None and time.monotonic() - start > within_s
                if late and not at_hand(file, target):
                    yield Row(file=file.name, origin=file.origin, target=target, status="not_tried")
                else:
                    running.add(pool.submit(examine, file, target))
            done, running = wait(running, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def examine(file: ExpertFile, target: str) -> Row:
    """The row of one file. Raises MachineError."""
    made = compiled(file, target)
    common = {"file": file.name, "origin": file.origin, "target": target, "seconds": made.seconds}
    if made.ptx is None:
        return Row(status="refused", message=made.message, **common)
    found = _looked_at(made)
    status: Status = "stopped" if found["stoppers"] else "supported"
    return Row(status=status, **found, **common)


def ptx_of(file: ExpertFile, target: str) -> Path | None:
    """The PTX of ``file``, compiled if need be; None if a compiler refuses it. Raises MachineError."""
    return compiled(file, target).ptx


def _looked_at(made: Compiled) -> dict:
    assert made.ptx is not None
    ptx = made.ptx

    def make(private: Path) -> None:
        text = ptx.read_text()
        stoppers: Counter[str] = Counter()
        for u in unsupported(text):
            stoppers[u.instruction] += u.count
        found = {
            "kernels": len(re.findall(r"^\.(?:visible |weak )?\.?entry\b|\.entry\b", text, re.MULTILINE)),
            "instructions": len(_INSTRUCTION.findall(text)),
            "stoppers": dict(stoppers.most_common()),
        }
        (private / "found.json").write_text(json.dumps(found))

    directory, _ = entry("corpus-check", digest(made.key, native.sources_digest()), make)
    return json.loads((directory / "found.json").read_text())
