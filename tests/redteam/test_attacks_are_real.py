"""The attacks would work on a harness that lacks what stops them: else their verdicts would prove nothing."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from cudahercules.build import sandbox
from cudahercules.build.candidate import load_candidate
from cudahercules.build.compile import build
from cudahercules.emulator.outcome import Completed
from cudahercules.emulator.run import emulate
from cudahercules.judge.operands import from_bytes, reference_of, to_bytes
from cudahercules.measure.profiles import load_profile
from cudahercules.record.plan import LaunchPlan
from cudahercules.record.recorder import record
from cudahercules.redteam.corpus import load_corpus
from cudahercules.redteam.run import try_case
from cudahercules.task.inputs import generate, poison
from cudahercules.task.load import family_module

CASES = {c.name: c for c in load_corpus()}
NOTHING = Path("/nonexistent")


@cache
def recorded(name: str, workload: str):
    case = CASES[name]
    architecture = case.task.target.architecture or "80"
    artifact = build(load_candidate(case.candidate(NOTHING)), case.task, architecture)
    chosen = next(w for w in case.task.workloads if w.name == workload)
    plan = record(artifact, case.task, chosen, load_profile(architecture))
    assert isinstance(plan, LaunchPlan), plan
    return case, artifact, chosen, plan


def contents_of(case, workload, seed):
    values = {t.name: generate(case.task, t, workload, seed) for t in case.task.inputs}
    contents = {name: to_bytes(value).copy() for name, value in values.items()}
    for tensor in case.task.outputs:
        contents[tensor.name] = poison(case.task.nbytes(tensor, workload), tensor.dtype)
    return values, contents


def instructions(name: str, calls: int) -> int:
    """What ``calls`` calls execute where nothing is restored between them and operands stay the same."""
    case, artifact, workload, plan = recorded(name, "deep")
    plan = plan.model_copy(update={"solve": plan.solve * calls})
    _, contents = contents_of(case, workload, 1)
    outcome = emulate(plan, artifact, contents, 60, counting=True)
    assert isinstance(outcome, Completed), outcome
    return outcome.counters.instructions


@pytest.mark.parametrize(
    ("name", "calls"),
    [
        ("device/answer_in_globals", 2),
        ("device/answer_by_value", 2),
        pytest.param("device/answer_in_scratch", 2, marks=pytest.mark.slow),
        pytest.param("device/answer_in_the_output", 2, marks=pytest.mark.slow),
        pytest.param("device/recognises_poison", 2, marks=pytest.mark.slow),
        pytest.param("device/counts_its_calls", 4, marks=pytest.mark.slow),
    ],
)
def test_where_state_is_kept_the_last_call_is_nearly_free(name, calls):
    honest = instructions(name, calls - 1) / (calls - 1)
    assert instructions(name, calls) - instructions(name, calls - 1) < 0.2 * honest


THROUGH = (
    *("answers_on_disk", "asks_the_network", "opens_the_device_files", "poisons_the_build_cache"),
    *("reads_the_task_folder", "reads_the_environment", "meets_a_twin_in_shared_memory"),
)


@pytest.mark.slow
@pytest.mark.parametrize("name", THROUGH)
def test_without_a_sandbox_the_attack_gets_through(name, monkeypatch, tmp_path):
    """They launch nothing then, so that a success shows as an output that was never written."""
    monkeypatch.setattr(sandbox, "features", lambda: "capabilities")
    try:
        row = try_case(CASES[f"host/{name}"])
    finally:
        for left in ("/tmp/answer", "/dev/shm/answer", "/var/tmp/answer"):
            Path(left).unlink(missing_ok=True)
    assert row.got == "incorrect" and "never written" in row.message, row


LOOSE = 2e-2
"""Absolute and relative tolerance of harnesses that were cheated with lower precision (KernelBench: 1e-2)."""


@pytest.mark.parametrize(
    "name",
    [
        "work/tf32_operands",
        pytest.param("work/fast_path_for_gaussian_data", marks=pytest.mark.slow),
        pytest.param("work/one_wild_element", marks=pytest.mark.slow),
        pytest.param("work/half_precision_sums", marks=pytest.mark.slow),
    ],
)
def test_a_loose_tolerance_on_normal_data_accepts_it(name):
    case, artifact, workload, plan = recorded(name, "smoke")
    values, contents = contents_of(case, workload, 1)
    assert isinstance(emulate(plan, artifact, contents, 60), Completed)
    got = from_bytes(case.task, case.task.outputs[0], workload, contents["c"])
    exact = reference_of(family_module(case.task), case.task, workload, values)["c"]
    assert np.allclose(got, exact, rtol=LOOSE, atol=LOOSE)
