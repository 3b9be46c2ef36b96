"""The bench workloads of a grading: who plays, the measurements, and the figure they make.

Everybody is brought up before the first workload is timed. An opponent that declines a workload or fails
is no reason to end the grading: the next of the panel plays, and the row says so.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from cudahercules.judge import paired
from cudahercules.judge.design import DESIGNS
from cudahercules.judge.gpu_duel import ANOTHER_OPPONENT, Duel, Inspector
from cudahercules.judge.gpu_grading import Grading
from cudahercules.judge.gpu_memory import memory_needed, rivals_memory
from cudahercules.judge.instructions import instruction_mixes, mix_of_plan
from cudahercules.judge.paired import FAILURES
from cudahercules.judge.protocol import kernel_reports, sample_seed
from cudahercules.judge.timing import task_row, workload_row
from cudahercules.judge.verdict import KernelReport, NotTimed, Timed, TimedWorkload
from cudahercules.measure import panel as panels
from cudahercules.measure.counters import hardware_trouble
from cudahercules.replay.interface import (
    CannotReplay,
    ContestantFault,
    ContestantHang,
    ContestantLost,
    ExpertDeclined,
    OutOfMemory,
)
from cudahercules.task.model import Workload

REASON_LENGTH = 200
"""Characters of an expert's error that a verdict quotes."""


def time_workloads(grading: Grading, bench: Sequence[Workload]) -> Timed | NotTimed:
    """The timing of a verdict. Raises Ended where the candidate (or its rival) does not get through."""
    if not bench:
        return NotTimed(reason="no bench workload was asked for")
    grading.at.warm_answers(grading.task)
    if grading.rival is not None:
        return _against_rival(grading, grading.rival, bench)
    return _Speed(grading).timing(bench)


@dataclass
class _Match:
    """A workload and who may still play it, first choice first; ``out`` says why others do not, ``again``
    why somebody had to begin anew."""

    workload: Workload
    contenders: list[str]
    out: dict[str, str] = field(default_factory=dict)
    again: dict[str, str] = field(default_factory=dict)

    @property
    def opponent(self) -> str | None:
        return next(iter(self.contenders), None)

    @property
    def attempts(self) -> int:
        """Measurements that came to nothing: each one had inputs of its own."""
        return len(self.out) + len(self.again)

    def drop(self, error: Exception) -> None:
        """The first choice does not play."""
        word = "declined" if _declined(error) else "failed"
        self.out[self.contenders.pop(0)] = f"{word} ({_reason(error)})"

    def interrupted(self, error: Exception) -> None:
        """The first choice failed in the middle: once is an accident, and it plays again."""
        name = self.contenders[0]
        if name in self.again or _declined(error):
            self.drop(error)
        else:
            self.again[name] = _reason(error)

    def notes(self) -> tuple[str, ...]:
        again = {name: why for name, why in self.again.items() if name not in self.out}
        return (
            *(f"{name} {why}: the next of the panel plays" for name, why in self.out.items()),
            *(f"{name} failed once ({why}) and played again" for name, why in again.items()),
        )

    def why_none(self, experts: str) -> str:
        if self.out:
            return "; ".join(f"{name} {why}" for name, why in self.out.items())
        return (
            f"no expert of the panel ({experts}) can run here: `hercules doctor` names the missing packages"
        )


def _declined(error: Exception) -> bool:
    return any(isinstance(e, ExpertDeclined) for e in (error, error.__cause__))


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0][:REASON_LENGTH] if str(error) else type(error).__name__


class _Speed:
    """A grading's bench workloads against the panel."""

    def __init__(self, grading: Grading):
        self.grading, self.task, self.at = grading, grading.task, grading.at
        self.timeline = grading.case.watch.timeline
        self.panel = panels.load_panel(self.task, self.at.gpu.slug)
        self.usable = self.at.usable_experts(self.task)
        self.rows: list[TimedWorkload] = []
        self.measured: list[paired.Measured] = []
        self.untimed: dict[str, str] = {}

    def timing(self, bench: Sequence[Workload]) -> Timed | NotTimed:
        matches = [_Match(w, self._contenders(w)) for w in bench]
        with self.timeline.stage("experts"):
            for match in matches:
                self._await_opponent(match)
        with self.timeline.stage("settling"):
            self.at.settle()
        try:
            for match in matches:
                self._play(match)
        finally:
            for name in {name for match in matches for name in match.contenders[:1]}:
                self.at.rest(self.task, name)
        if not self.rows:
            reasons = "; ".join(f"{name}: {why}" for name, why in self.untimed.items())
            return NotTimed(reason=f"no opponent is left: {reasons}")
        timing = task_row(
            self.task,
            self.rows,
            self.measured,
            self.panel,
            self.usable,
            self.untimed,
            secret=self.grading.secret("task"),
        )
        return timing.model_copy(update={"expert_kernels": self._expert_kernels()})

    def _contenders(self, workload: Workload) -> list[str]:
        if self.grading.against is not None:
            return [self.grading.against]
        return list(panels.contenders(self.task, workload, self.panel, self.usable))

    def _await_opponent(self, match: _Match) -> None:
        """Wait until somebody can play; those who cannot are dropped on the way."""
        while match.opponent is not None:
            try:
                self.at.await_expert(self.task, match.opponent, match.workload)
                return
            except FAILURES as error:
                self._blame_the_machine(match, error)
                match.drop(error)

    def _blame_the_machine(self, match: _Match, error: Exception) -> None:
        """What the card lacks or suffers from ends the grading: it brings nobody a weaker opponent."""
        case, workload, name = self.grading.case, match.workload, match.opponent
        demand_memory(self.grading, workload, name)
        trouble: str | None
        if any(isinstance(e, OutOfMemory) for e in (error, error.__cause__)):
            trouble = (
                f"there is too little free memory for the expert {name} beside the candidate ({error}): "
                "free some, use a larger card, or rank the panel on this one with `hercules lint`"
            )
        else:
            trouble = hardware_trouble(self.at.counters.read())
        if trouble:
            self.grading.end(case.infrastructure_error(f"{workload.name}: {trouble}"), error)

    def _play(self, match: _Match) -> None:
        """Time one workload against the first opponent that gets through."""
        grading, workload = self.grading, match.workload
        while (name := match.opponent) is not None:
            grading.case.notify(f"timing {workload.name} against {name}")
            demand_memory(grading, workload, name)
            try:
                with self.timeline.hold(), self.timeline.stage("measure"):
                    result = Duel(grading, workload, name, attempt=match.attempts).run()
            except paired.ExpertFailed as error:
                self._blame_the_machine(match, error)
                match.interrupted(error)
                with self.timeline.stage("experts"):
                    self._await_opponent(match)
                    self.at.settle()
                continue
            self.measured.append(result)
            row = workload_row(self.task, workload, name, result, self.at.gpu.name, match.notes())
            self.rows.append(row.model_copy(update={"expert_instructions": self._mix(workload, name)}))
            return
        self.untimed[workload.name] = match.why_none(
            ", ".join(e.name for e in self.task.experts) or "none is named"
        )
        with self.timeline.hold(), self.timeline.stage("correctness"):
            check_untimed(grading, workload, attempt=match.attempts)

    def _mix(self, workload: Workload, name: str) -> dict[str, int]:
        """SASS instructions of an expert whose source is ours; of a library's kernels nothing is known."""
        if not panels.is_plan(self.task, name):
            return {}
        built = self.at.plan_expert(self.task, name)
        return mix_of_plan(built.artifact, built.plans[workload.name])

    def _expert_kernels(self) -> dict[str, tuple[KernelReport, ...]]:
        """What the opponents launched that are plans of ours, read from their SASS like the candidate's."""
        found = {}
        for name in dict.fromkeys(row.expert for row in self.rows):
            if panels.is_plan(self.task, name):
                built = self.at.plan_expert(self.task, name)
                plans = [built.plans[row.workload] for row in self.rows if row.expert == name]
                found[name] = kernel_reports(built.artifact, plans, instruction_mixes(built.artifact))
        return found


def _against_rival(grading: Grading, rival: Grading, bench: Sequence[Workload]) -> Timed:
    """Every bench workload against another candidate."""
    timeline = grading.case.watch.timeline
    rival.start_recording(bench)
    with timeline.stage("settling"):
        grading.at.settle()
    rows, measured = [], []
    for workload in bench:
        rival.recorded(workload)
        grading.case.notify(f"timing {workload.name} against {rival.case.candidate}")
        demand_memory(grading, workload, None)
        with timeline.hold(), timeline.stage("measure"):
            result = Duel(grading, workload, rival.case.candidate).run()
        measured.append(result)
        row = workload_row(grading.task, workload, rival.case.candidate, result, grading.at.gpu.name)
        mix = mix_of_plan(rival.artifact, rival.evidence.plans[workload.name])
        rows.append(row.model_copy(update={"expert_instructions": mix}))
    figure = task_row(grading.task, rows, measured, None, (), {}, secret=grading.secret("task"))
    note = "the opponent is another candidate, not an expert"
    return figure.model_copy(update={"panel_missing": (), "panel_note": note})


def check_untimed(grading: Grading, workload: Workload, attempt: int) -> None:
    """A bench workload without an opponent (``attempt`` of them failed): answers are checked, nothing is
    timed."""
    demand_memory(grading, workload, None)
    inspector = Inspector(grading, workload)
    start = time.monotonic()
    for number in range(DESIGNS["slow"].looks[0]):
        seed = sample_seed(grading.case.seed, workload.name, number + attempt * ANOTHER_OPPONENT)
        try:
            contestant = grading.open_candidate(workload)
            sample = contestant.sample(seed, keep=True)
            inspector.take(contestant, sample)
            contestant.release(sample)
        except (ContestantFault, ContestantHang, CannotReplay, ContestantLost) as error:
            grading.end(grading.failure(workload, error, seed), error)
    inspector.judge()
    grading.passed.append(inspector.row(time.monotonic() - start))


def demand_memory(grading: Grading, workload: Workload, expert: str | None) -> None:
    """End the grading with an infrastructure_error unless the card has room for everybody."""
    task, at, plan = grading.task, grading.at, grading.evidence.plans[workload.name]
    opponent = expert is not None or grading.rival is not None
    need = memory_needed(task, workload, plan, opponent, at.gpu.l2_bytes)
    if grading.rival is not None:
        need += rivals_memory(task, workload, grading.rival.evidence.plans[workload.name])
    free = at.free_memory() + (at.held_by(task, expert) if expert is not None else 0)
    if need > free:
        grading.end(
            grading.case.infrastructure_error(
                f"{workload.name} needs {need / 2**30:.1f} GiB on the GPU (operands for candidate and "
                f"expert, float64 reference, kept outputs); {free / 2**30:.1f} GiB are free on "
                f"{at.gpu.name}: free some or use a larger card"
            )
        )
