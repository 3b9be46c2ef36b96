"""``compare``: two candidates against each other.

Both are graded as always. On a GPU the second then takes the expert's place in the paired measurement:
the same pairs, interval and rule as in a grading (docs/measurement.md), with the kept outputs of both
sides checked. On a CPU nothing is timed; what can be said there is how many instructions each executes
in the emulator and what the compiler made of them, and neither is a speed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from cudahercules.judge.cpu import LIMIT_S, count_instructions
from cudahercules.judge.grade import Grading, choose_device
from cudahercules.judge.protocol import CHECKED_ROLES, new_seed
from cudahercules.judge.verdict import NotTimed, Timed, Verdict, exit_code
from cudahercules.task.model import Model, Task, WorkloadRole

NO_SPEED = (
    "the CPU judge runs in an emulator: counts of instructions and resources are facts about the code, "
    "not a speed"
)


class InstructionCount(Model):
    """PTX instructions that all threads of a workload execute; None where counting took too long."""

    workload: str
    dimensions: dict[str, int]
    first: int | None
    second: int | None


class Comparison(Model):
    """``speed.ratio`` is the second's time over the first's: above 1 the first is faster. Its rows call the
    second ``expert``. ``counts`` comes from the CPU judge only."""

    version: Literal[1] = 1
    kind: Literal["comparison"] = "comparison"
    task: str
    device: str
    seed: str
    first: Verdict
    second: Verdict
    speed: Annotated[Timed | NotTimed, Field(discriminator="kind")]
    counts: tuple[InstructionCount, ...] = ()

    @property
    def exit_code(self) -> int:
        """As for gradings: the larger of both."""
        return max(exit_code(self.first), exit_code(self.second))


def compare(
    task: Task,
    first: Path,
    second: Path,
    device: str = "auto",
    *,
    seed: str | None = None,
    smoke: bool = False,
    limit_s: float = LIMIT_S,
    notify: Callable[[str], None] | None = None,
) -> Comparison:
    """Grade both candidates on the same inputs and hold them against each other.

    ``smoke`` takes the smoke workloads only. The rest, errors included, is as in
    :func:`cudahercules.judge.grade.grade`."""
    kind = choose_device(device)
    seed = seed or new_seed()
    checked = (WorkloadRole.SMOKE,) if smoke else CHECKED_ROLES

    def grading(path: Path, roles: Sequence[WorkloadRole] | None) -> Grading:
        tell = (lambda stage: notify(f"{path.name}: {stage}")) if notify else None
        return Grading(task, path, kind, seed=seed, roles=roles, limit_s=limit_s, notify=tell)

    theirs = grading(second, checked)
    if kind == "cpu":
        ours = grading(first, checked)
        mine, other = ours.verdict(), theirs.verdict()
        counts = _counts(ours, theirs, limit_s) if mine.kind == other.kind == "correct" else ()
    else:
        mine, other = _on_the_card(grading, first, checked, theirs, timed=not smoke)
        counts = ()
    return Comparison(
        task=task.id,
        device=mine.fingerprint.device,
        seed=seed,
        first=_without_speed(mine),
        second=_without_speed(other),
        speed=_speed(mine, other, kind),
        counts=counts,
    )


def _on_the_card(
    grading: Callable[[Path, Sequence[WorkloadRole] | None], Grading],
    first: Path,
    checked: Sequence[WorkloadRole],
    theirs: Grading,
    timed: bool,
) -> tuple[Verdict, Verdict]:
    """Both verdicts; the first one's timing, if any, is against the second."""
    other = theirs.verdict()
    if other.kind != "correct" or not timed:
        return grading(first, checked).verdict(), other
    ours = grading(first, None)
    mine = ours.verdict(rival=theirs)
    if mine.candidate_sha256 == ours.candidate.sha256:
        return mine, other
    # The second failed at a size that is timed: the first one's answers are still worth saying.
    return grading(first, checked).verdict(), mine


def _speed(mine: Verdict, other: Verdict, kind: str) -> Timed | NotTimed:
    if mine.kind != "correct" or other.kind != "correct":
        wrong = " and ".join(v.candidate for v in (mine, other) if v.kind != "correct")
        return NotTimed(reason=f"{wrong} did not pass, so there is nothing to compare")
    if mine.timing.kind == "timed":
        return mine.timing
    return NotTimed(reason=NO_SPEED if kind == "cpu" else mine.timing.reason)


def _without_speed(verdict: Verdict) -> Verdict:
    """The verdict on answers alone: the speed is the comparison's, not the candidate's."""
    if verdict.kind != "correct":
        return verdict
    reason = "compared with another candidate: see the comparison's `speed`"
    return verdict.model_copy(update={"timing": NotTimed(reason=reason)})


def _counts(ours: Grading, theirs: Grading, limit_s: float) -> tuple[InstructionCount, ...]:
    mine, other = (count_instructions(g.case, g.evidence, limit_s) for g in (ours, theirs))
    return tuple(
        InstructionCount(
            workload=w.name, dimensions=w.dimensions, first=mine.get(w.name), second=other.get(w.name)
        )
        for w in ours.case.task.workloads
        if w.name in ours.evidence.plans
    )
