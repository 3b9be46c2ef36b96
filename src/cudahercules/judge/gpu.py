"""The GPU judge: record each workload, replay its plan on the card, check it, time it against the expert.

Order: smoke and check workloads first, and the first failure ends the grading; then each bench
workload in pairs with its opponent (:mod:`cudahercules.judge.paired`), with the kept outputs checked
after each look. docs/measurement.md explains the protocol.
"""

from __future__ import annotations

import atexit
import hashlib
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from cudahercules.build.artifact import Artifact
from cudahercules.errors import MachineError, PlanError
from cudahercules.judge import paired
from cudahercules.judge.answers_gpu import KeptAnswer, reference_bytes, side_effects
from cudahercules.judge.checks import check_output
from cudahercules.judge.device import Gpu, find_gpu
from cudahercules.judge.evidence import Evidence
from cudahercules.judge.operands import reference_of
from cudahercules.judge.protocol import Case, kernel_reports, sample_seed
from cudahercules.judge.station import LANES, Lanes, Station
from cudahercules.judge.timing import task_row, workload_row
from cudahercules.judge.verdict import (
    Checked,
    KernelReport,
    NotTimed,
    OutputCheck,
    Timed,
    TimedWorkload,
    Verdict,
    WrongOutput,
)
from cudahercules.measure import panel as panels
from cudahercules.record.plan import PAGE, LaunchPlan
from cudahercules.record.recorder import RecordFailure, record
from cudahercules.replay.interface import (
    AnswersDiffer,
    CannotReplay,
    Contestant,
    ContestantFault,
    ContestantHang,
    ContestantLost,
    Sample,
    locate_fault,
    start_replay,
)
from cudahercules.task.inputs import generate
from cudahercules.task.load import family_module
from cudahercules.task.model import Task, Workload, WorkloadRole

__all__ = ["find_gpu", "get_ready", "judge_on_gpu", "release_station", "station"]

ORDER = (WorkloadRole.SMOKE, WorkloadRole.CHECK, WorkloadRole.BENCH)
CONTEXT_BYTES = 600 << 20
"""Memory of one context with its module code (measured on an H200: 0.5 GiB)."""
HOST_CHECK_BYTES = 32 << 20
"""Outputs up to this size are checked with NumPy, so that no small workload waits for PyTorch."""

_station: Station | None = None


def station(gpu: Gpu | None = None) -> Station:
    """This process's station, made at the first call; it ends with the process."""
    global _station
    if _station is None:
        _station = Station(gpu or find_gpu())
        atexit.register(release_station)
    return _station


def release_station() -> None:
    """End the warm processes of this process's station; the next grading makes a new one."""
    global _station
    if _station is not None:
        _station.close()
        _station = None


def get_ready(task: Task, gpu: Gpu) -> None:
    """Bring processes, PyTorch and the opponents up while the candidate is being compiled."""
    station(gpu).start_experts(task)


class Ended(Exception):
    """The grading is over; ``verdict`` says how."""

    def __init__(self, verdict: Verdict):
        super().__init__(verdict.kind)
        self.verdict = verdict


def judge_on_gpu(
    case: Case,
    artifact: Artifact,
    evidence: Evidence,
    *,
    roles: Sequence[WorkloadRole] = ORDER,
    limit_s: float = 60.0,
    at: Station | None = None,
    against: str | None = None,
    rival: Rival | None = None,
) -> Verdict:
    """The verdict on an artifact; plans of the workloads that ran are put into ``evidence``.

    ``roles`` restricts the workloads; without bench the verdict is not timed. ``limit_s`` bounds one
    sample, its inputs and eviction included. ``at`` is the station of a batch. ``against`` names an
    expert to play against instead of the panel's winner, ``rival`` another candidate; the verdict is
    the rival's own if the rival fails (its ``candidate_sha256`` tells). Raises MachineError if this machine
    lacks something; what goes wrong on the way is a verdict.
    """
    where = at or station()
    case.device, case.driver = where.gpu.name, where.gpu.driver
    if artifact.architecture != where.gpu.architecture:
        return case.infrastructure_error(
            f"{case.task.id} is built for sm_{artifact.architecture}; this is {where.gpu.name} "
            f"(sm_{where.gpu.architecture})"
        )
    chosen = tuple(r for r in ORDER if r in roles)
    grading = _Grading(case, artifact, evidence, where, chosen, limit_s, against)
    if rival is not None:
        rival.case.device, rival.case.driver = where.gpu.name, where.gpu.driver
        grading.rival = _Grading(rival.case, rival.artifact, rival.evidence, where, chosen, limit_s)
    try:
        return grading.run()
    except Ended as ended:
        return ended.verdict
    finally:
        grading.close()


@dataclass(frozen=True)
class Rival:
    """Another candidate in the expert's place, for ``compare``: replayed, checked and blamed like the
    candidate itself."""

    case: Case
    artifact: Artifact
    evidence: Evidence


@dataclass
class _Grading:
    """One candidate on one station."""

    case: Case
    artifact: Artifact
    evidence: Evidence
    at: Station
    roles: tuple[WorkloadRole, ...]
    limit_s: float
    against: str | None = None
    rival: _Grading | None = None
    passed: list[Checked] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lanes: Lanes = self.at.candidate_lanes()
        self.pool = ThreadPoolExecutor(max_workers=4, thread_name_prefix="judge")
        self.held_since: float | None = None

    @property
    def task(self) -> Task:
        return self.case.task

    def close(self) -> None:
        if self.rival is not None:
            self.rival.close()
        self._note_held()
        self.lanes.close()
        self.pool.shutdown(wait=False, cancel_futures=True)

    def run(self) -> Verdict:
        workloads = sorted(self.task.workloads_of(*self.roles), key=lambda w: ORDER.index(w.role))
        recordings = {w.name: self.pool.submit(self._record, w) for w in workloads}
        mixes = self.pool.submit(_instruction_mixes, self.artifact)
        bench: list[Workload] = []
        for workload in workloads:
            self.case.notify(f"recording {workload.name}")
            self.evidence.plans[workload.name] = self._recorded(workload, recordings[workload.name])
            if workload.role is WorkloadRole.BENCH:
                bench.append(workload)
            else:
                self.case.notify(f"running {workload.name}")
                self.passed.append(self._check_workload(workload))
        timing = self._time(bench)
        reports = kernel_reports(self.artifact, self.evidence.plans.values(), mixes.result())
        return self.case.correct(self.passed, reports, timing)

    # --- recording -------------------------------------------------------------------------------

    def _record(self, workload: Workload) -> LaunchPlan | RecordFailure:
        start = time.monotonic()
        try:
            return record(self.artifact, self.task, workload, self.at.profile)
        finally:
            self.case.watch.record += time.monotonic() - start

    def _recorded(self, workload: Workload, future: Future[LaunchPlan | RecordFailure]) -> LaunchPlan:
        """The plan; raises Ended with the verdict that its absence means."""
        try:
            result = future.result()
        except PlanError as error:
            raise Ended(
                self.case.contract_error(f"the recorded plan is not valid: {error}", workload.name)
            ) from None
        if isinstance(result, LaunchPlan):
            return result
        if result.kind == "timeout":
            seconds = round(result.seconds, 1)
            raise Ended(self.case.timeout("record", result.message, seconds, workload.name))
        if result.kind == "crash":
            raise Ended(self.case.host_crash(workload.name, result.message))
        raise Ended(self.case.contract_error(result.message, workload.name))

    # --- the candidate on the card ---------------------------------------------------------------

    def open_candidate(self, workload: Workload) -> Contestant:
        """The plan on fresh memory; recorded again if this GPU answers otherwise than the profile."""
        if self.held_since is None:
            self.held_since = time.monotonic()
        plan = self.evidence.plans[workload.name]
        try:
            return self._start(plan, workload)
        except AnswersDiffer:
            again = record(self.artifact, self.task, workload, self.at.own_profile)
            if isinstance(again, RecordFailure):
                raise Ended(self.case.contract_error(again.message, workload.name)) from None
            self.evidence.plans[workload.name] = again
        try:
            return self._start(again, workload)
        except AnswersDiffer as error:
            asked = "; ".join(f"{d.question} is {d.answer}" for d in error.differences[:4])
            raise Ended(
                self.case.infrastructure_error(f"the recorder cannot answer as this GPU does: {asked}")
            ) from error

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

    def _check_workload(self, workload: Workload) -> Checked:
        start = time.monotonic()
        seed = sample_seed(self.case.seed, workload.name)
        values = self.pool.submit(self._operands_and_reference, workload, seed)
        try:
            contestant = self.open_candidate(workload)
            sample = contestant.sample(seed, keep=True)
            outputs = contestant.outputs(sample)
            got = {t.name: outputs.host(t.name).copy(order="K") for t in self.task.outputs}
            contestant.release(sample)
        except (ContestantFault, ContestantHang, CannotReplay, ContestantLost) as error:
            raise Ended(self.failure(workload, error, seed)) from error
        self.case.watch.run += time.monotonic() - start
        checking = time.monotonic()
        self._reject(workload, side_effects(self.task, sample.changed_inputs, sample.damaged_canaries))
        reference = values.result()
        checks: list[OutputCheck] = []
        for tensor in self.task.outputs:
            tolerance = self.task.tolerance[tensor.name]
            check = check_output(tensor, tolerance, got[tensor.name], reference[tensor.name])
            self._reject(workload, check if isinstance(check, WrongOutput) else None)
            if isinstance(check, OutputCheck):
                checks.append(check)
        self.case.watch.check += time.monotonic() - checking
        return self.checked_row(workload, (seed,), tuple(checks), time.monotonic() - start)

    def _operands_and_reference(self, workload: Workload, seed: int):
        """The reference with NumPy, in a thread beside the sample."""
        values = {t.name: generate(self.task, t, workload, seed) for t in self.task.inputs}
        return reference_of(family_module(self.task), self.task, workload, values)

    def _reject(self, workload: Workload, wrong: WrongOutput | None) -> None:
        if wrong is not None:
            raise Ended(self.case.incorrect(workload.name, wrong, self.passed))

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

    # --- speed -----------------------------------------------------------------------------------

    def _time(self, bench: Sequence[Workload]) -> Timed | NotTimed:
        if not bench:
            return NotTimed(reason="no bench workload was asked for")
        self.at.settle()
        if self.rival is not None:
            return self._time_against(self.rival, bench)
        panel = panels.load_panel(self.task, self.at.gpu.slug)
        usable = self.at.usable_experts(self.task)
        rows: list[TimedWorkload] = []
        measured: list[paired.Measured] = []
        no_opponent = []
        for workload in bench:
            name = self.against or panels.opponent(self.task, workload, panel, usable)
            if name is None:
                no_opponent.append(workload.name)
                self._check_bench(workload)
                continue
            self.case.notify(f"timing {workload.name} against {name}")
            result = _Duel(self, workload, name).run()
            measured.append(result)
            row = workload_row(self.task, workload, name, result, self.at.gpu.name)
            rows.append(row.model_copy(update={"expert_instructions": self._experts_mix(workload, name)}))
        self._note_held()
        if no_opponent:
            missing = ", ".join(e.name for e in self.task.experts) or "none is named"
            return NotTimed(
                reason=f"no expert of the panel ({missing}) can run here for {', '.join(no_opponent)}: "
                "`hercules doctor` names the missing packages"
            )
        timing = task_row(self.task, rows, measured, panel, usable, secret=self._secret("task"))
        return timing.model_copy(update={"expert_kernels": self._expert_kernels(rows)})

    def _expert_kernels(self, rows: Sequence[TimedWorkload]) -> dict[str, tuple[KernelReport, ...]]:
        """What the opponents launched that are plans of ours, read from their SASS like the candidate's."""
        found = {}
        for name in dict.fromkeys(row.expert for row in rows):
            if panels.is_plan(self.task, name):
                built = self.at.plan_expert(self.task, name)
                plans = [built.plans[row.workload] for row in rows if row.expert == name]
                found[name] = kernel_reports(built.artifact, plans, _instruction_mixes(built.artifact))
        return found

    def _time_against(self, rival: _Grading, bench: Sequence[Workload]) -> Timed:
        """Every bench workload against another candidate."""
        recordings = {w.name: rival.pool.submit(rival._record, w) for w in bench}
        rows, measured = [], []
        for workload in bench:
            rival.evidence.plans[workload.name] = rival._recorded(workload, recordings[workload.name])
            self.case.notify(f"timing {workload.name} against {rival.case.candidate}")
            result = _Duel(self, workload, rival.case.candidate).run()
            measured.append(result)
            row = workload_row(self.task, workload, rival.case.candidate, result, self.at.gpu.name)
            mix = mix_of_plan(rival.artifact, rival.evidence.plans[workload.name])
            rows.append(row.model_copy(update={"expert_instructions": mix}))
        self._note_held()
        figure = task_row(self.task, rows, measured, None, (), secret=self._secret("task"))
        note = "the opponent is another candidate, not an expert"
        return figure.model_copy(update={"panel_missing": (), "panel_note": note})

    def _experts_mix(self, workload: Workload, name: str) -> dict[str, int]:
        """SASS instructions of an expert whose source is ours; of a library's kernels nothing is known."""
        if not panels.is_plan(self.task, name):
            return {}
        built = self.at.plan_expert(self.task, name)
        return mix_of_plan(built.artifact, built.plans[workload.name])

    def _note_held(self) -> None:
        if self.held_since is not None:
            self.case.watch.gpu_held = time.monotonic() - self.held_since

    def _secret(self, purpose: str) -> int:
        text = f"cudahercules secret\0{self.case.seed}\0{purpose}".encode()
        return int.from_bytes(hashlib.sha256(text).digest()[:8], "little")

    def _check_bench(self, workload: Workload) -> None:
        """A bench workload without an opponent: answers are checked, nothing is timed."""
        self._demand_memory(workload, None)
        inspector = _Inspector(self, workload)
        start = time.monotonic()
        for number in range(paired.DESIGNS["slow"].looks[0]):
            seed = sample_seed(self.case.seed, workload.name, number)
            try:
                contestant = self.open_candidate(workload)
                sample = contestant.sample(seed, keep=True)
                inspector.take(contestant, sample)
                contestant.release(sample)
            except (ContestantFault, ContestantHang, CannotReplay, ContestantLost) as error:
                raise Ended(self.failure(workload, error, seed)) from error
        inspector.judge()
        self.passed.append(inspector.row(time.monotonic() - start))

    def _demand_memory(self, workload: Workload, expert: str | None) -> None:
        """Raise Ended with an infrastructure_error unless the card has room for everybody."""
        plan = self.evidence.plans[workload.name]
        need = memory_needed(self.task, workload, plan, expert is not None, self.at.gpu.l2_bytes)
        if self.rival is not None:
            need += rivals_memory(self.task, workload, self.rival.evidence.plans[workload.name])
        free = self.at.free_memory()
        if need > free:
            raise Ended(
                self.case.infrastructure_error(
                    f"{workload.name} needs {need / 2**30:.1f} GiB on the GPU (operands for candidate and "
                    f"expert, float64 reference, kept outputs); {free / 2**30:.1f} GiB are free on "
                    f"{self.at.gpu.name}: free some or use a larger card"
                )
            )


def memory_needed(task: Task, workload: Workload, plan: LaunchPlan, expert: bool, l2_bytes: int) -> int:
    """Bytes of device memory for timing one workload, worst case."""
    arena = _arena_bytes(plan)
    operands = sum(task.nbytes(t, workload) for t in task.tensors)
    outputs = sum(task.nbytes(t, workload) for t in task.outputs)
    kept = max(d.looks[0] * d.keep for d in paired.DESIGNS.values()) * outputs
    process = CONTEXT_BYTES + 4 * l2_bytes
    candidate = LANES * (arena + outputs + process)
    opponent = LANES * (2 * operands + process) if expert else 0
    return candidate + opponent + CONTEXT_BYTES + reference_bytes(task, workload) + kept


def rivals_memory(task: Task, workload: Workload, plan: LaunchPlan) -> int:
    """What a candidate in the expert's place needs beyond an expert: its own arena and kept outputs."""
    outputs = sum(task.nbytes(t, workload) for t in task.outputs)
    kept = max(d.looks[0] * d.keep for d in paired.DESIGNS.values())
    return LANES * _arena_bytes(plan) + kept * outputs


def _arena_bytes(plan: LaunchPlan) -> int:
    return sum(-(-(b.size + PAGE - 1) // PAGE) * PAGE for b in plan.buffers)


@dataclass
class _Inspector:
    """Checks the outputs that a measurement keeps."""

    grading: _Grading
    workload: Workload
    waiting: list[KeptAnswer] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)
    worst: tuple[OutputCheck, ...] = ()

    def take(self, contestant: Contestant, sample: Sample) -> None:
        answers = self.grading.at.answers
        self.waiting.append(answers.copy(self.grading.task, self.workload, contestant, sample))

    def judge(self) -> None:
        start = time.monotonic()
        answers = self.grading.at.answers
        while self.waiting:
            answer = self.waiting.pop()
            checks = answers.check(self.grading.task, self.workload, answer)
            if isinstance(checks, WrongOutput):
                raise Ended(self.grading.case.incorrect(self.workload.name, checks, self.grading.passed))
            self.seeds.append(answer.seed)
            self.worst = _worse(self.worst, checks)
        answers.close()
        self.grading.case.watch.check += time.monotonic() - start

    def row(self, seconds: float) -> Checked:
        return self.grading.checked_row(self.workload, self.seeds, self.worst, seconds)


def _worse(known: tuple[OutputCheck, ...], new: tuple[OutputCheck, ...]) -> tuple[OutputCheck, ...]:
    """Output by output the larger of each error: what is reported for all samples together."""
    if not known:
        return new
    return tuple(
        a.model_copy(
            update={
                "l2": max(a.l2, b.l2),
                "row_l2": max(a.row_l2, b.row_l2),
                "element": max(a.element, b.element),
            }
        )
        for a, b in zip(known, new, strict=True)
    )


@dataclass
class _Duel:
    """One bench workload of one candidate against one expert: the sides of a measurement."""

    grading: _Grading
    workload: Workload
    expert_name: str
    last_seed: int = 0
    opponents: list[Contestant] = field(default_factory=list)  # a rival's contestant, the latest one

    def candidate(self) -> Contestant:
        return self.grading.open_candidate(self.workload)

    def expert(self) -> Contestant:
        rival = self.grading.rival
        if rival is None:
            return self.grading.at.open_expert(self.grading.task, self.expert_name, self.workload)
        self.opponents = [rival.open_candidate(self.workload)]
        return self.opponents[0]

    def _seed(self, number: int) -> int:
        self.last_seed = sample_seed(self.grading.case.seed, self.workload.name, number)
        return self.last_seed

    def run(self) -> paired.Measured:
        grading, case, start = self.grading, self.grading.case, time.monotonic()
        grading._demand_memory(self.workload, self.expert_name)
        own = _Inspector(grading, self.workload)
        rival = grading.rival
        theirs = _Inspector(rival, self.workload) if rival is not None else None
        inspector = own if theirs is None else _BothSides(own, theirs, self)
        checked_before = case.watch.check
        try:
            measured = paired.measure(
                self,
                inspector,
                grading.at.counters,
                self._seed,
                grading._secret(self.workload.name),
                check_both=rival is not None,
            )
        except paired.ExpertFailed as error:
            cause = error.__cause__
            if rival is not None and isinstance(cause, Exception):
                raise Ended(rival.failure(self.workload, cause, self.last_seed)) from error
            raise Ended(
                case.infrastructure_error(
                    f"the expert {self.expert_name} failed on {self.workload.name}: {error}"
                )
            ) from error
        except paired.InvalidMeasurement as error:
            raise Ended(case.invalid_measurement(f"{self.workload.name}: {error}")) from error
        except (ContestantFault, ContestantHang, CannotReplay, MachineError) as error:
            raise Ended(grading.failure(self.workload, error, self.last_seed)) from error
        finally:
            grading._note_held()
            case.watch.run += time.monotonic() - start - (case.watch.check - checked_before)
        grading.passed.append(own.row(time.monotonic() - start))
        if rival is not None and theirs is not None:
            rival.passed.append(theirs.row(time.monotonic() - start))
        return measured


@dataclass
class _BothSides:
    """Hands kept samples to the inspector of the side that they came from."""

    candidates: _Inspector
    rivals: _Inspector
    duel: _Duel

    def take(self, contestant: Contestant, sample: Sample) -> None:
        rivals = any(contestant is c for c in self.duel.opponents)
        (self.rivals if rivals else self.candidates).take(contestant, sample)

    def judge(self) -> None:
        self.candidates.judge()
        self.rivals.judge()


def _instruction_mixes(artifact: Artifact) -> dict[str, dict[str, int]]:
    """SASS instructions by class for each kernel; empty where cuobjdump is not at hand."""
    from cudahercules.build.sass import instruction_mix

    try:
        return instruction_mix(artifact)
    except MachineError:
        return {}


def mix_of_plan(artifact: Artifact, plan: LaunchPlan) -> dict[str, int]:
    """SASS instructions by class, summed over the kernels that ``plan`` launches in ``solve``."""
    mixes, total = _instruction_mixes(artifact), Counter[str]()
    for kernel in {op.kernel for op in plan.solve if op.op == "kernel"}:
        total.update(mixes.get(kernel, {}))
    return dict(total)
