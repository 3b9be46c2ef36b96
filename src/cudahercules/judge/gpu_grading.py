"""One candidate on one station: record each workload, replay its plan, check it.

Order: smoke and check workloads first, and the first failure ends the grading; then the bench workloads
are timed (:mod:`cudahercules.judge.gpu_speed`), with the kept outputs checked after each look.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import NoReturn

from cudahercules.build.artifact import Artifact
from cudahercules.errors import MachineError, PlanError
from cudahercules.judge.answers_gpu import DeviceAnswers
from cudahercules.judge.answers_host import HostAnswers
from cudahercules.judge.evidence import Evidence
from cudahercules.judge.gpu_memory import too_much_memory
from cudahercules.judge.instructions import instruction_mixes
from cudahercules.judge.lanes import LANES, Lanes
from cudahercules.judge.protocol import Case, kernel_reports, sample_seed
from cudahercules.judge.station import Station
from cudahercules.judge.verdict import Checked, OutputCheck, Verdict, WrongOutput
from cudahercules.measure.counters import hardware_trouble
from cudahercules.record.answers import is_computed
from cudahercules.record.plan import LaunchPlan
from cudahercules.record.recorder import RecordFailure, record
from cudahercules.replay.interface import (
    AnswersDiffer,
    CannotReplay,
    Contestant,
    ContestantFault,
    ContestantHang,
    ContestantLost,
    locate_fault,
    start_replay,
)
from cudahercules.task.model import Task, Workload, WorkloadRole

ORDER = (WorkloadRole.SMOKE, WorkloadRole.CHECK, WorkloadRole.BENCH)
RECORDINGS = 4
"""Of one plan, until it agrees with this GPU: the first, one with the GPU's own answers, and two more for
questions that depend on answers."""
RECORDERS = 6
"""Recordings at a time: each is a process that computes nothing."""

Recording = LaunchPlan | RecordFailure
Answers = DeviceAnswers | HostAnswers


class Ended(Exception):
    """The grading is over; ``verdict`` says how."""

    def __init__(self, verdict: Verdict):
        super().__init__(verdict.kind)
        self.verdict = verdict


def record_all(
    case: Case, artifact: Artifact, workloads: Sequence[Workload], at: Station, pool: Executor
) -> dict[str, Future[Recording]]:
    """The recordings of ``workloads`` by name, made in ``pool``; seconds are added to the case's."""

    def one(workload: Workload) -> Recording:
        start = time.monotonic()
        try:
            with case.watch.timeline.beside(f"record {workload.name}"):
                return record(artifact, case.task, workload, at.profile)
        finally:
            case.watch.record += time.monotonic() - start

    return {w.name: pool.submit(one, w) for w in workloads}


@dataclass
class Grading:
    """``roles`` restricts the workloads, ``limit_s`` bounds one sample, ``against`` names an expert to
    play against, ``rival`` is another candidate in the expert's place."""

    case: Case
    artifact: Artifact
    evidence: Evidence
    at: Station
    roles: tuple[WorkloadRole, ...]
    limit_s: float
    against: str | None = None
    rival: Grading | None = None
    recordings: dict[str, Future[Recording]] = field(default_factory=dict)
    passed: list[Checked] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lanes: Lanes = self.at.candidate_lanes()
        self.recorders = ThreadPoolExecutor(max_workers=RECORDERS, thread_name_prefix="record")
        self.helpers = ThreadPoolExecutor(max_workers=2, thread_name_prefix="judge")
        self.openers = ThreadPoolExecutor(max_workers=LANES, thread_name_prefix="open")

    @property
    def task(self) -> Task:
        return self.case.task

    def close(self) -> None:
        if self.rival is not None:
            self.rival.close()
        self.lanes.close(waiting=False)
        for pool in (self.recorders, self.helpers, self.openers):
            pool.shutdown(wait=False, cancel_futures=True)

    def run(self) -> Verdict:
        from cudahercules.judge.gpu_speed import time_workloads

        workloads = sorted(self.task.workloads_of(*self.roles), key=lambda w: ORDER.index(w.role))
        checked = [w for w in workloads if w.role is not WorkloadRole.BENCH]
        self.start_recording(workloads)
        answers = self._answers(checked)
        mixes = self.helpers.submit(instruction_mixes, self.artifact)
        self._check_all(checked, answers)
        bench = [w for w in workloads if w.role is WorkloadRole.BENCH]
        for workload in bench:
            self.recorded(workload)
        timing = time_workloads(self, bench)
        reports = kernel_reports(self.artifact, self.evidence.plans.values(), mixes.result())
        return self.case.correct(self.passed, reports, timing)

    def end(self, verdict: Verdict, cause: BaseException | None = None) -> NoReturn:
        raise Ended(verdict) from cause

    def reject(self, workload: Workload, wrong: WrongOutput | None) -> None:
        if wrong is not None:
            self.end(self.case.incorrect(workload.name, wrong, self.passed))

    def secret(self, purpose: str) -> int:
        text = f"cudahercules secret\0{self.case.seed}\0{purpose}".encode()
        return int.from_bytes(hashlib.sha256(text).digest()[:8], "little")

    # --- recording -------------------------------------------------------------------------------

    def start_recording(self, workloads: Sequence[Workload]) -> None:
        """Record what nobody recorded ahead."""
        missing = [w for w in workloads if w.name not in self.recordings]
        self.recordings.update(record_all(self.case, self.artifact, missing, self.at, self.recorders))

    def recorded(self, workload: Workload) -> LaunchPlan:
        """The plan, put into the evidence; raises Ended with the verdict that its absence means."""
        self.case.notify(f"recording {workload.name}")
        try:
            with self.case.watch.timeline.stage("record"):
                result = self.recordings[workload.name].result()
        except PlanError as error:
            self.end(self.case.contract_error(f"the recorded plan is not valid: {error}", workload.name))
        if isinstance(result, LaunchPlan):
            if excess := self._too_much_memory(result):
                self.end(self.case.contract_error(excess, workload.name))
            self.evidence.plans[workload.name] = result
            return result
        if result.kind == "timeout":
            seconds = round(result.seconds, 1)
            self.end(self.case.timeout("record", result.message, seconds, workload.name))
        if result.kind == "crash":
            self.end(self.case.host_crash(workload.name, result.message))
        self.end(self.case.contract_error(result.message, workload.name))

    def _too_much_memory(self, plan: LaunchPlan) -> str | None:
        return too_much_memory(plan, self.artifact, self.at.profile, self.at.gpu.memory)

    # --- the candidate on the card ---------------------------------------------------------------

    def open_candidate(self, workload: Workload) -> Contestant:
        """The plan on fresh memory; recorded again if this GPU answers otherwise than the profile."""
        told: dict[str, str] = {}
        for _ in range(RECORDINGS):
            try:
                return self._start(self.evidence.plans[workload.name], workload)
            except AnswersDiffer as error:
                trouble = error
                told |= {d.question: d.answer for d in error.differences}
            profile = self.at.own_profile.model_copy(update={"told": told})
            again = record(self.artifact, self.task, workload, profile)
            if isinstance(again, RecordFailure):
                self.end(self.case.contract_error(again.message, workload.name))
            self.evidence.plans[workload.name] = again
        asked = "; ".join(f"{d.question} is {d.answer}" for d in trouble.differences[:4])
        if not all(is_computed(d.question) for d in trouble.differences):
            message = f"the recorder cannot answer as this GPU does: {asked}"
            self.end(self.case.infrastructure_error(message), trouble)
        message = f"host code asked the GPU something else each of {RECORDINGS} times ({asked})"
        self.end(self.case.contract_error(message, workload.name))

    def _start(self, plan: LaunchPlan, workload: Workload) -> Contestant:
        return self.lanes.open(
            lambda process: start_replay(
                plan,
                self.artifact,
                self.task,
                workload,
                self.at.gpu.index,
                process=process,
                sample_s=self.limit_s,
            )
        )

    def failure(self, workload: Workload, error: Exception, seed: int) -> Verdict:
        """What an exception of the candidate's contestant means."""
        match error:
            case ContestantFault():
                if trouble := hardware_trouble(self.at.counters.read()):
                    return self.case.infrastructure_error(f"{workload.name}: {trouble}")
                located = locate_fault(
                    self.evidence.plans[workload.name],
                    self.artifact,
                    self.task,
                    workload,
                    seed,
                    self.at.gpu.index,
                )
                return self.case.crash(workload.name, located or error.fault)
            case ContestantHang():
                return self.case.timeout("run", str(error), error.limit_s, workload.name)
            case CannotReplay():
                return self.case.contract_error(str(error), workload.name)
            case MachineError():
                return self.case.infrastructure_error(str(error))
        raise error

    # --- correctness -----------------------------------------------------------------------------

    def _answers(self, workloads: Sequence[Workload]) -> Answers:
        """PyTorch's answers on the card where they stand already, as in a batch; else NumPy's, which come
        while recordings are made: no small workload waits for PyTorch."""
        if self.at.answers_stand(self.task):
            return self.at.answers
        return HostAnswers(self.task, workloads, self.case.seed, self.helpers, self.case.watch.timeline)

    def _check_all(self, workloads: Sequence[Workload], answers: Answers) -> None:
        """Every workload in order; the next one opens in the other process while this one runs."""
        timeline = self.case.watch.timeline
        coming: Future[Contestant] | None = None
        try:
            for workload, following in zip(workloads, [*workloads[1:], None], strict=True):
                if coming is None:
                    self.recorded(workload)
                    coming = self.openers.submit(self.open_candidate, workload)
                opened, coming = coming, None
                with timeline.hold(), timeline.stage("correctness"):
                    wait((opened,))
                    if following is not None and self._may_open_ahead(following):
                        coming = self.openers.submit(self.open_candidate, following)
                    self.passed.append(self._check(workload, opened, answers))
        finally:
            if coming is not None:
                wait((coming,))  # a process must not be closed while it is being opened

    def _may_open_ahead(self, workload: Workload) -> bool:
        """Whether there is another process for ``workload``, and its plan without waiting; the plan is in the
        evidence then."""
        future = self.recordings[workload.name]
        if len(self.lanes.lanes) < 2 or not future.done() or future.exception() is not None:
            return False
        result = future.result()
        if not isinstance(result, LaunchPlan) or self._too_much_memory(result):
            return False
        self.evidence.plans[workload.name] = result
        return True

    def _check(self, workload: Workload, opened: Future[Contestant], answers: Answers) -> Checked:
        self.case.notify(f"running {workload.name}")
        start = time.monotonic()
        seed = sample_seed(self.case.seed, workload.name)
        try:
            contestant = opened.result()
            sample = contestant.sample(seed, keep=True)
            answer = answers.copy(self.task, workload, contestant, sample)
            contestant.release(sample)
        except (ContestantFault, ContestantHang, CannotReplay, ContestantLost) as error:
            self.end(self.failure(workload, error, seed), error)
        checking = time.monotonic()
        self.case.watch.run += checking - start
        checks = answers.check(self.task, workload, answer)
        self.case.watch.check += time.monotonic() - checking
        if isinstance(checks, WrongOutput):
            self.end(self.case.incorrect(workload.name, checks, self.passed))
        return self.checked_row(workload, (seed,), checks, time.monotonic() - start)

    def checked_row(
        self, workload: Workload, seeds: Sequence[int], outputs: tuple[OutputCheck, ...], seconds: float
    ) -> Checked:
        plan = self.evidence.plans[workload.name]
        return Checked(
            workload=workload.name,
            role=workload.role.value,
            seed=str(seeds[0]),
            dimensions=workload.dimensions,
            outputs=outputs,
            launches=len(plan.launches),
            plan_sha256=plan.sha256,
            seconds=round(seconds, 4),
            samples=len(seeds),
        )
