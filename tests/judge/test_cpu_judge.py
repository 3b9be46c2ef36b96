"""The CPU judge: each way in which recording and emulation can end, and the verdict that follows.

Recorder and emulator are replaced by functions that answer at once; the end-to-end tests in tests/cli
use the real ones.
"""

from __future__ import annotations

import time

import numpy as np
import pytest

from cudahercules.build.artifact import Artifact, DeviceModule, KernelInfo
from cudahercules.emulator.outcome import (
    Completed,
    Counters,
    Fault,
    OutOfFuel,
    Unsupported,
    UnsupportedInstruction,
)
from cudahercules.errors import PlanError
from cudahercules.judge import cpu, orders
from cudahercules.judge.evidence import Evidence
from cudahercules.judge.operands import from_bytes, reference_of, to_bytes
from cudahercules.judge.protocol import Case
from cudahercules.measure.profiles import load_profile
from cudahercules.record.layout import arena
from cudahercules.record.plan import ARENA_BASE, KernelLaunch, LaunchPlan
from cudahercules.record.recorder import RecordFailure
from cudahercules.task.load import family_module, load_task
from cudahercules.task.model import WorkloadRole

DONE = Completed(counters=Counters(threads=1, blocks=1, seconds=0.0))


@pytest.fixture
def judge(monkeypatch, tmp_path):
    """``judge(emulate=…, record=…)`` → (verdict, plans); by default everything is right."""
    task = load_task("kernel/gemm/fp32@general")
    kernel = KernelInfo(
        name="multiply",
        parameters=(),
        registers=8,
        static_shared=0,
        local=0,
        spill_stores=0,
        spill_loads=0,
        constant=0,
        max_threads=1024,
    )
    module = DeviceModule(
        source="k.cu", cubin="k.cubin", ptx="k.ptx", fatbin_hash="0", kernels=(kernel,), symbols=()
    )
    artifact = Artifact(
        key="k",
        architecture="80",
        directory=tmp_path,
        host_object="h.so",
        has_prepare=False,
        modules=(module,),
        compiler="nvcc",
        flags=(),
        seconds=0.0,
    )

    def plan_of(_artifact, task, workload, _profile):
        launch = KernelLaunch(
            stream=0, module=0, kernel="multiply", grid=(1, 1, 1), block=(1, 1, 1), parameters=b""
        )
        return LaunchPlan(
            task=task.id,
            workload=workload.name,
            artifact="k",
            architecture="80",
            profile="p",
            arena_base=ARENA_BASE,
            buffers=arena(task, workload),
            solve=(launch,),
        )

    def right(plan, _artifact, contents, _limit_s, asynchrony, **_more):
        workload = next(w for w in task.workloads if w.name == plan.workload)
        values = {t.name: from_bytes(task, t, workload, contents[t.name]) for t in task.inputs}
        answers = reference_of(family_module(task), task, workload, values)
        for tensor in task.outputs:
            contents[tensor.name][:] = to_bytes(answers[tensor.name].astype(tensor.dtype.numpy))
        return DONE

    def run(
        *, emulate=right, record=plan_of, roles=cpu.CHECKED_ROLES, seed="s", asynchronous=False, order=None
    ):
        monkeypatch.setattr(orders, "is_asynchronous", lambda *_: asynchronous)
        monkeypatch.setattr(cpu, "record", record)
        monkeypatch.setattr(cpu, "emulate", emulate)
        monkeypatch.setattr(cpu, "_compile_ahead", lambda _artifact: None)
        monkeypatch.setattr(cpu, "_instruction_mixes", lambda _artifact: {"multiply": {"ffma": 3}})
        case = Case(
            task=task,
            candidate="x.cu",
            candidate_sha256="0",
            seed=seed,
            clock=time.monotonic,
            architecture="80",
        )
        evidence = Evidence(task=task)
        verdict = cpu.judge_on_cpu(
            case, artifact, load_profile("80"), evidence, roles=roles, limit_s=9.0, asynchrony=order
        )
        return verdict, evidence.plans

    run.right, run.plan_of, run.task = right, plan_of, task
    return run


def test_right_answers_are_correct_and_every_workload_has_its_row(judge):
    verdict, plans = judge()
    names = [w.name for w in judge.task.workloads_of(WorkloadRole.SMOKE, WorkloadRole.CHECK)]
    assert verdict.kind == "correct" and verdict.timing.kind == "not_timed"
    assert [row.workload for row in verdict.checks] == names == list(plans)
    assert all(row.plan_sha256 == plans[row.workload].sha256 for row in verdict.checks)
    assert len({row.seed for row in verdict.checks}) == len(names)
    (kernel,) = verdict.kernels
    assert (kernel.launches, kernel.instruction_mix) == (len(names), {"ffma": 3})


def test_the_seed_decides_the_inputs(judge):
    seen = []

    def watch(plan, artifact, contents, limit_s, asynchrony, **_more):
        seen.append(contents["a"].copy())
        return judge.right(plan, artifact, contents, limit_s, asynchrony)

    for seed in ("s", "s", "t"):
        judge(emulate=watch, seed=seed, roles=(WorkloadRole.SMOKE,))
    assert np.array_equal(seen[0], seen[1]) and not np.array_equal(seen[0], seen[2])


def test_smoke_alone_says_so(judge):
    verdict, plans = judge(roles=(WorkloadRole.SMOKE,))
    assert list(plans) == ["smoke"] and "only smoke workloads" in verdict.timing.reason


def test_outputs_hold_poison_before_the_call(judge):
    verdict, _ = judge(emulate=lambda *_, **__: DONE)
    assert verdict.kind == "incorrect" and verdict.wrong.reason == "unwritten"
    assert verdict.wrong.wrong == verdict.wrong.total and verdict.workload == "smoke"


def test_a_later_failure_keeps_the_rows_before_it(judge):
    def fails_third(plan, artifact, contents, limit_s, asynchrony, **_more):
        outcome = judge.right(plan, artifact, contents, limit_s, asynchrony)
        if plan.workload == "deep":
            contents["c"].view(np.float32)[5] += 1
        return outcome

    verdict, plans = judge(emulate=fails_third)
    assert verdict.kind == "incorrect" and verdict.workload == "deep"
    assert [row.workload for row in verdict.passed] == ["smoke", "odd"] and "deep" in plans
    assert verdict.wrong.index == (0, 5) and verdict.wrong.wrong == 1


def test_a_changed_input_is_found_even_if_the_answer_is_right(judge):
    def writes(plan, artifact, contents, limit_s, asynchrony, **_more):
        outcome = judge.right(plan, artifact, contents, limit_s, asynchrony)
        contents["b"].view(np.float32)[41] = 0
        return outcome

    verdict, _ = judge(emulate=writes)
    assert verdict.kind == "incorrect" and verdict.wrong.reason == "input_changed"
    assert (verdict.wrong.output, verdict.wrong.index) == ("b", (1, 1))


def test_each_outcome_of_the_emulator_has_its_verdict(judge):
    fault = Fault(what="out_of_bounds", message="4 bytes past c", kernel="multiply", block=(1, 0, 0))
    verdict, _ = judge(emulate=lambda *_, **__: fault)
    assert (verdict.kind, verdict.fault, verdict.workload) == ("crash", fault, "smoke")
    verdict, _ = judge(
        emulate=lambda *_, **__: OutOfFuel(kernel="multiply", limit="wall 9 s", file="k.cu", line=4)
    )
    assert (verdict.kind, verdict.stage, verdict.limit_s) == ("timeout", "run", 9.0)
    assert "multiply" in verdict.message and "k.cu:4" in verdict.message
    unknown = UnsupportedInstruction(
        instruction="wgmma.fence.sync.aligned", kernel="multiply", file="k.cu", line=7
    )
    verdict, _ = judge(emulate=lambda *_, **__: Unsupported(instructions=(unknown,)))
    assert verdict.kind == "unsupported_on_cpu" and "wgmma.fence" in verdict.message
    assert "k.cu:7" in verdict.message


@pytest.mark.parametrize(
    ("failure", "kind", "attribute"),
    [
        ("contract", "contract_error", None),
        ("timeout", "timeout", ("stage", "record")),
        ("crash", "crash", None),
    ],
)
def test_each_failure_to_record_has_its_verdict(judge, failure, kind, attribute):
    verdict, plans = judge(record=lambda *_: RecordFailure(kind=failure, message="so it goes", seconds=1.5))
    assert (verdict.kind, verdict.workload, plans) == (kind, "smoke", {})
    assert "so it goes" in verdict.message
    if kind == "crash":
        assert verdict.fault.what == "host_code"
    if attribute:
        assert getattr(verdict, attribute[0]) == attribute[1]


def test_a_forged_plan_is_a_contract_error(judge):
    def forged(*_):
        raise PlanError("kernel 'other' is not in the cubin")

    verdict, _ = judge(record=forged)
    assert verdict.kind == "contract_error" and "not in the cubin" in verdict.message


def test_an_error_of_ours_is_not_the_candidates(judge):
    def broken(*_, **__):
        raise RuntimeError("bug")

    with pytest.raises(RuntimeError, match="bug"):
        judge(emulate=broken)


# --- orders of asynchronous work -------------------------------------------------------------------


class _Watched:
    """Emulates with right answers, except in orders that begin with ``wrong``; writes down the orders."""

    def __init__(self, judge, wrong="never"):
        self.judge, self.wrong, self.orders = judge, wrong, []

    def __call__(self, plan, artifact, contents, limit_s, asynchrony, **_more):
        self.orders.append(asynchrony)
        outcome = self.judge.right(plan, artifact, contents, limit_s, asynchrony)
        if asynchrony.startswith(self.wrong):
            contents["c"].view(np.float32)[5] += 1
        return outcome


def test_synchronous_work_is_run_once(judge):
    watched = _Watched(judge)
    verdict, _ = judge(emulate=watched)
    assert set(watched.orders) == {"late"} and len(watched.orders) == len(verdict.checks)
    assert all(row.asynchrony == () for row in verdict.checks)


def test_asynchronous_work_is_run_late_and_in_a_random_order_that_the_seed_decides(judge):
    verdicts = [judge(emulate=_Watched(judge), asynchronous=True, seed=seed)[0] for seed in ("s", "s", "t")]
    rows = [[row.asynchrony for row in verdict.checks] for verdict in verdicts]
    assert all(order[0] == "late" and order[1].startswith("random:") for order in rows[0])
    assert rows[0] == rows[1] != rows[2] and len(set(rows[0])) == len(rows[0])


def test_an_order_that_was_asked_for_is_the_only_one(judge):
    watched = _Watched(judge)
    verdict, _ = judge(emulate=watched, asynchronous=True, order="eager")
    assert set(watched.orders) == {"eager"} and verdict.checks[0].asynchrony == ("eager",)


def test_an_answer_that_only_a_random_order_spoils_is_incorrect_and_says_so(judge):
    verdict, _ = judge(emulate=_Watched(judge, "random"), asynchronous=True)
    assert verdict.kind == "incorrect" and verdict.asynchrony == orders.random_order("s", "smoke")
    assert verdict.right_in == ("late",)
    assert (
        "a wait, a fence or a commit is missing" in verdict.message and verdict.asynchrony in verdict.message
    )


def test_an_answer_that_lateness_spoils_is_compared_with_eager(judge):
    watched = _Watched(judge, "late")
    verdict, _ = judge(emulate=watched, asynchronous=True)
    assert watched.orders == ["late", "eager"]
    assert (verdict.asynchrony, verdict.right_in) == ("late", ("eager",))
    assert "is missing" in verdict.message


def test_an_answer_that_is_wrong_in_every_order_is_just_wrong(judge):
    verdict, _ = judge(emulate=_Watched(judge, ""), asynchronous=True)
    assert (verdict.kind, verdict.asynchrony, verdict.right_in) == ("incorrect", "late", ())
    assert "missing" not in verdict.message
