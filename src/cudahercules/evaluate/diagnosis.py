"""What the checking emulator says about a wrong program: races, missing waits, memory that nobody wrote."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from cudahercules.errors import HerculesError
from cudahercules.evaluate.judging import write_candidate
from cudahercules.judge.debug import DebugReport, debug
from cudahercules.task.model import Task

MOST = 5
"""Findings that are told."""


def diagnosis(task: Task, files: Mapping[str, str], workload: str | None, seed: str, limit_s: float) -> str:
    """One run of a workload (None: the first smoke one) with every access looked at, in words.

    Raises NoPlan for what does not compile or has no plan, NotExamined where the emulator does not know an
    instruction, MachineError."""
    with tempfile.TemporaryDirectory(prefix="hercules-debug-") as directory:
        path = write_candidate(files, Path(directory))
        return "\n".join(_lines(debug(task, path, workload, seed=seed, limit_s=limit_s)))


def diagnosis_if_any(
    task: Task, files: Mapping[str, str], workload: str | None, seed: str, limit_s: float
) -> str:
    """The same for feedback that has something to say already: "" where nothing was found or nothing could be
    looked at."""
    try:
        text = diagnosis(task, files, workload, seed, limit_s)
    except HerculesError:
        return ""
    return text if "\n* " in text else ""


def _lines(report: DebugReport) -> Iterator[str]:
    count = len(report.findings)
    found = f"{count} finding{'s' * (count != 1)}" if count else "nothing found"
    yield f"The checking emulator on workload {report.workload}: {found}; the answer is {report.answer}."
    for finding in report.findings[:MOST]:
        cause = getattr(finding, "cause", "")
        yield f"* {finding.message}" + (f" Likely cause: {cause}" if cause else "")
