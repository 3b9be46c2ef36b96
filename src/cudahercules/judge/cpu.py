"""The CPU judge: record each workload, run its plan in the emulator, check what came out.

Workloads go in order, smoke before check, and the first failure ends the grading. While one workload
is emulated, the next one is being recorded and the reference is being computed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

from cudahercules.build.artifact import Artifact
from cudahercules.emulator.asynchrony import LATE
from cudahercules.emulator.native import host_program
from cudahercules.emulator.outcome import Completed, Fault, OutOfFuel, Unsupported
from cudahercules.emulator.run import emulate
from cudahercules.emulator.translation import build_translation
from cudahercules.errors import HerculesError, MachineError, PlanError
from cudahercules.judge.emulated import Operands, absent_from_prepare
from cudahercules.judge.evidence import Evidence
from cudahercules.judge.operands import reference_of
from cudahercules.judge.orders import orders_of, other_order
from cudahercules.judge.protocol import CHECKED_ROLES, Case, kernel_reports, sample_seed
from cudahercules.judge.verdict import Checked, NotTimed, OutputCheck, Verdict, WrongOutput
from cudahercules.measure.profile import DeviceProfile
from cudahercules.record.library import standin
from cudahercules.record.plan import LaunchPlan
from cudahercules.record.recorder import RecordFailure, record
from cudahercules.task.load import family_module
from cudahercules.task.model import Workload, WorkloadRole

LIMIT_S = 60.0
"""Wall seconds that one workload may be emulated; bundled naive kernels need under two."""


def judge_on_cpu(
    case: Case,
    artifact: Artifact,
    profile: DeviceProfile,
    evidence: Evidence,
    *,
    roles: Sequence[WorkloadRole] = CHECKED_ROLES,
    limit_s: float = LIMIT_S,
    asynchrony: str | None = None,
) -> Verdict:
    """The verdict on an artifact; plans of the workloads that ran are put into ``evidence``.

    ``roles`` restricts the workloads (bench sizes are never run here). ``limit_s`` bounds the
    emulation of one workload. ``asynchrony`` (``eager``, ``late``, ``random:SEED``) takes the place of the
    two orders in which workloads with asynchronous work are run otherwise. Raises MachineError if this
    machine lacks something.
    """
    workloads = case.task.workloads_of(*(role for role in CHECKED_ROLES if role in roles))
    workloads = tuple(sorted(workloads, key=lambda w: CHECKED_ROLES.index(w.role)))
    family = family_module(case.task)
    pool = ThreadPoolExecutor(max_workers=3, thread_name_prefix="judge")
    try:
        pool.submit(_compile_ahead, artifact)
        mixes = pool.submit(_instruction_mixes, artifact)
        passed: list[Checked] = []
        upcoming = _start_recording(pool, case, artifact, workloads[0], profile)
        for number, workload in enumerate(workloads):
            case.notify(f"recording {workload.name}")
            plan = _recorded(case, workload, upcoming)
            if not isinstance(plan, LaunchPlan):
                return plan
            evidence.plans[workload.name] = plan
            if number + 1 < len(workloads):
                upcoming = _start_recording(pool, case, artifact, workloads[number + 1], profile)
            case.notify(f"running {workload.name}")
            run = _Run(case, artifact, family, workload, plan, limit_s, asynchrony)
            row = run.judge(pool, passed)
            if not isinstance(row, Checked):
                return row
            passed.append(row)
        reports = kernel_reports(artifact, evidence.plans.values(), mixes.result())
        return case.correct(passed, reports, NotTimed(reason=_not_timed(workloads)))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def count_instructions(case: Case, evidence: Evidence, limit_s: float = LIMIT_S) -> dict[str, int]:
    """PTX instructions that all threads execute, ``prepare`` included, by workload: the recorded plans
    of ``evidence`` are run again by the emulator's counting build, on the same inputs.

    A workload that does not end within ``limit_s`` (counting is slower) is left out."""
    counts: dict[str, int] = {}
    for workload in case.task.workloads:
        plan = evidence.plans.get(workload.name)
        if plan is None or evidence.artifact is None:
            continue
        case.notify(f"counting instructions of {workload.name}")
        run = _Run(case, evidence.artifact, family_module(case.task), workload, plan, limit_s)
        outcome = emulate(
            plan,
            evidence.artifact,
            run.operands().contents(),
            limit_s,
            counting=True,
            after_prepare=absent_from_prepare(case.task),
        )
        if isinstance(outcome, Completed) and outcome.counters.instructions is not None:
            counts[workload.name] = outcome.counters.instructions
    return counts


def get_ready() -> None:
    """Build recorder and emulator, where they are not in the cache, while the candidate is compiled.

    Whatever goes wrong here goes wrong again, and is reported, when they are needed.
    """

    def make() -> None:
        with suppress(MachineError, OSError, KeyboardInterrupt):
            standin()
            host_program()

    threading.Thread(target=make, name="get-ready", daemon=True).start()


def _not_timed(workloads: Sequence[Workload]) -> str:
    reason = "the CPU judge checks answers in an emulator, whose speed says nothing about a GPU"
    if all(w.role is WorkloadRole.SMOKE for w in workloads):
        reason += "; only smoke workloads were checked (--smoke)"
    return reason


def _compile_ahead(artifact: Artifact) -> None:
    """Translate and compile the device code while the host code is recorded.

    Whatever goes wrong here goes wrong again, and is reported, when the plan is emulated.
    """
    with suppress(HerculesError, OSError, ValueError):
        for module in artifact.modules:
            build_translation(artifact.path(module.ptx).read_text())


def _instruction_mixes(artifact: Artifact) -> dict[str, dict[str, int]]:
    """SASS instructions by class for each kernel; empty where cuobjdump is not at hand."""
    from cudahercules.build.sass import instruction_mix

    try:
        return instruction_mix(artifact)
    except MachineError:
        return {}


def _start_recording(
    pool: ThreadPoolExecutor, case: Case, artifact: Artifact, workload: Workload, profile: DeviceProfile
) -> Future[LaunchPlan | RecordFailure]:
    def timed() -> LaunchPlan | RecordFailure:
        start = time.monotonic()
        try:
            return record(artifact, case.task, workload, profile)
        finally:
            case.watch.record += time.monotonic() - start

    return pool.submit(timed)


def _recorded(
    case: Case, workload: Workload, future: Future[LaunchPlan | RecordFailure]
) -> LaunchPlan | Verdict:
    """The plan, or the verdict that its absence means."""
    try:
        result = future.result()
    except PlanError as error:
        return case.contract_error(f"the recorded plan is not valid: {error}", workload.name)
    if isinstance(result, LaunchPlan):
        return result
    if result.kind == "timeout":
        return case.timeout("record", result.message, round(result.seconds, 1), workload.name)
    if result.kind == "crash":
        return case.host_crash(workload.name, result.message)
    return case.contract_error(result.message, workload.name)


_FAILURES = (Fault, OutOfFuel, Unsupported)


@dataclass
class _Run:
    """One workload of one grading: operands in, outputs out, row or failure back."""

    case: Case
    artifact: Artifact
    family: ModuleType
    workload: Workload
    plan: LaunchPlan
    limit_s: float
    asynchrony: str | None = None

    def judge(self, pool: ThreadPoolExecutor, passed: Sequence[Checked]) -> Checked | Verdict:
        """The workload's row, or the verdict that ends the grading."""
        start = time.monotonic()
        operands = self.operands()
        reference = pool.submit(
            partial(reference_of, self.family, self.case.task, self.workload, operands.values)
        )
        orders = (self.asynchrony,) if self.asynchrony else self._orders()
        right: list[str] = []
        for order in orders or (LATE,):
            result = self._once(order, operands, reference)
            named = order if orders else ""
            if isinstance(result, WrongOutput):
                hidden = self._right_elsewhere(order, operands, reference) if orders and not right else ()
                return self.case.incorrect(self.workload.name, result, passed, named, (*right, *hidden))
            if not isinstance(result, tuple):
                return self._failure(result, named) if isinstance(result, _FAILURES) else result
            right.append(order)
        return Checked(
            workload=self.workload.name,
            role=self.workload.role.value,
            seed=str(sample_seed(self.case.seed, self.workload.name)),
            dimensions=self.workload.dimensions,
            outputs=result,
            launches=len(self.plan.launches),
            plan_sha256=self.plan.sha256,
            seconds=round(time.monotonic() - start, 4),
            asynchrony=orders,
        )

    def _orders(self) -> tuple[str, ...]:
        return orders_of(self.plan, self.artifact, self.case.seed, self.workload.name)

    def _once(
        self,
        order: str,
        operands: Operands,
        reference: Future[dict[str, Any]],
    ) -> tuple[OutputCheck, ...] | WrongOutput | Fault | OutOfFuel | Unsupported | Verdict:
        """Emulate the plan in one order of asynchronous work and check what came out."""
        contents = operands.contents()
        ran = time.monotonic()
        try:
            outcome = emulate(
                self.plan,
                self.artifact,
                contents,
                self.limit_s,
                asynchrony=order,
                after_prepare=absent_from_prepare(self.case.task),
            )
        except PlanError as error:
            return self.case.contract_error(str(error), self.workload.name)
        finally:
            self.case.watch.run += time.monotonic() - ran
        if not isinstance(outcome, Completed):
            return outcome
        expected = reference.result()
        checked = time.monotonic()
        result = operands.check(contents, expected)
        self.case.watch.check += time.monotonic() - checked
        return result

    def _right_elsewhere(
        self, order: str, operands: Operands, reference: Future[dict[str, Any]]
    ) -> tuple[str, ...]:
        """An order in which the answer that is wrong in ``order`` comes out right, if there is one."""
        other = other_order(order)
        result = self._once(other, operands, reference)
        return (other,) if isinstance(result, tuple) else ()

    def operands(self) -> Operands:
        seed = sample_seed(self.case.seed, self.workload.name)
        return Operands.generate(self.case.task, self.workload, seed)

    def _failure(self, outcome: Fault | OutOfFuel | Unsupported, order: str) -> Verdict:
        name = self.workload.name
        if isinstance(outcome, Fault):
            return self.case.crash(name, outcome, order)
        if isinstance(outcome, Unsupported):
            return self.case.unsupported(outcome.instructions)
        place = f" at {outcome.file}:{outcome.line}" if outcome.file else ""
        message = f"{outcome.kernel or 'the plan'} did not end within {outcome.limit}{place} in the emulator"
        return self.case.timeout("run", message, self.limit_s, name)
