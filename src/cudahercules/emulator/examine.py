"""Run a plan in the checking build and say what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from cudahercules.build.artifact import Artifact
from cudahercules.emulator import causes, findings, native
from cudahercules.emulator.asynchrony import LATE
from cudahercules.emulator.diagnose import Diagnosis
from cudahercules.emulator.findings import Finding, UninitialisedRead
from cudahercules.emulator.job import POISON, Poison
from cudahercules.emulator.outcome import Completed, Fault, Outcome, OutOfFuel, Unsupported
from cudahercules.emulator.run import How, Run, run_plan
from cudahercules.record.plan import LaunchPlan
from cudahercules.task.model import Model

OTHER_POISONS = (0x7B, 0xFB)
"""Bytes of undefined memory in further runs: large numbers and negative ones instead of NaN, which a maximum
or a minimum passes over."""


class Examination(Model):
    """How the plan ended, in which order its asynchronous work took effect, and what was found."""

    ending: Literal["completed", "fault", "out_of_fuel"]
    asynchrony: str
    findings: tuple[Finding, ...]
    printed: str = ""


def examine(
    plan: LaunchPlan,
    artifact: Artifact,
    contents: Mapping[str, np.ndarray],
    wall_s: float,
    *,
    asynchrony: str = LATE,
) -> Examination | Unsupported:
    """Run ``plan`` as :func:`cudahercules.emulator.run.emulate` does, on one OS thread and checked.

    ``contents`` as in ``emulate``; outputs are updated. Where undefined memory was read, the plan runs
    again with other values in it: only if that makes a difference are those reads findings.
    Raises PlanError and MachineError as ``emulate`` does.
    """
    before = {name: array.copy() for name, array in contents.items()}
    run = _checked(plan, artifact, contents, wall_s, asynchrony, POISON)
    if isinstance(run.outcome, Unsupported):
        return run.outcome
    if run.message is None or run.space is None:
        return _without_message(run.outcome, asynchrony)
    diagnosis = Diagnosis(run.message, run.space, run.modules, f"{wall_s:g} s")
    found: list[Finding] = [*diagnosis.conflicts()]
    undefined = _not_explained(diagnosis.uninitialised(), found)
    if undefined and _depends(plan, artifact, before, run.outcome, contents, wall_s, asynchrony):
        found += undefined
    if isinstance(run.outcome, Completed):
        found += diagnosis.unwritten()
    elif (ending := diagnosis.ending()) is not None:
        found.append(ending)
    return Examination(
        ending=run.outcome.kind, asynchrony=asynchrony, findings=tuple(found), printed=run.outcome.printed
    )


def _checked(
    plan: LaunchPlan,
    artifact: Artifact,
    contents: Mapping[str, np.ndarray],
    wall_s: float,
    asynchrony: str,
    poison: Poison,
) -> Run:
    # One OS thread, so that two runs differ in nothing but the poison.
    return run_plan(plan, artifact, contents, wall_s, How(native.CHECKING, 1, asynchrony, poison))


def _without_message(outcome: Outcome, asynchrony: str) -> Examination:
    """The process ended, or was ended, before it could say anything."""
    if isinstance(outcome, OutOfFuel):
        limit = findings.OutOfFuel(
            message=f"the plan did not end within {outcome.limit}",
            cause=causes.OUT_OF_FUEL,
            place=findings.Place(),
            limit=outcome.limit,
        )
        return Examination(ending="out_of_fuel", asynchrony=asynchrony, findings=(limit,))
    assert isinstance(outcome, Fault), outcome
    fault = findings.OtherFault(
        message=outcome.message, cause=outcome.cause, place=findings.Place(), what=outcome.what
    )
    return Examination(ending="fault", asynchrony=asynchrony, findings=(fault,))


def _not_explained(reads: list[UninitialisedRead], found: list[Finding]) -> list[UninitialisedRead]:
    """Without the reads at lines that race: those come too early, which is what the race says."""
    racing = {
        (touch.place.file, touch.place.line)
        for f in found
        if f.kind in ("race", "missing_wait", "missing_fence")
        for touch in (f.first, f.second)
        if touch is not None
    }
    return [read for read in reads if (read.place.file, read.place.line) not in racing]


def _depends(
    plan: LaunchPlan,
    artifact: Artifact,
    before: Mapping[str, np.ndarray],
    outcome: Outcome,
    after: Mapping[str, np.ndarray],
    wall_s: float,
    asynchrony: str,
) -> bool:
    """Whether the plan ends in another way, or with other outputs, where undefined memory holds other
    values."""
    if isinstance(outcome, OutOfFuel):
        return True
    outputs = {b.name for b in plan.buffers if b.kind == "output"}
    for byte in OTHER_POISONS:
        contents = {
            name: np.full_like(array, byte) if name in outputs else array.copy()
            for name, array in before.items()
        }
        poison = Poison(shared=byte, scratch=byte * 0x101)
        other = _checked(plan, artifact, contents, wall_s, asynchrony, poison).outcome
        if not _same_ending(outcome, other):
            return True
        if isinstance(outcome, Fault):
            continue
        for name in outputs & set(after):
            # Bytes that hold the poison of both runs were not written.
            untouched = (after[name] == before[name]) & (contents[name] == byte)
            if np.any((after[name] != contents[name]) & ~untouched):
                return True
    return False


def _same_ending(one: Outcome, other: Outcome) -> bool:
    if isinstance(one, Fault) and isinstance(other, Fault):
        return (one.what, one.file, one.line) == (other.what, other.file, other.line)
    return isinstance(one, Completed) and isinstance(other, Completed)
