"""The tuned Hopper GEMM with one wait, announcement or meeting taken out: ``late`` notices each."""

from __future__ import annotations

from functools import cache

import ml_dtypes
import numpy as np
import pytest

from cudahercules.build.artifact import Artifact
from cudahercules.build.candidate import from_text
from cudahercules.build.compile import compile_candidate
from cudahercules.emulator.examine import Examination, examine
from cudahercules.emulator.outcome import Completed, Fault
from cudahercules.emulator.run import emulate
from cudahercules.measure.profiles import load_profile
from cudahercules.record.plan import LaunchPlan
from cudahercules.record.recorder import record
from cudahercules.task.header import solve_header
from cudahercules.task.load import load_task
from cudahercules.task.model import LibraryPolicy, Task, Workload, WorkloadRole

pytestmark = pytest.mark.slow

M, N, K = 300, 520, 584  # several tiles, clusters of two, edges everywhere
MODES = ("late", "eager", "random:1", "random:2", "random:3")

MISTAKES = {
    "the full stage is not waited for": (
        "barrier_wait(full + 8 * ring.stage, ring.parity);",
        "",
        "mbarrier_misuse",
    ),
    "the empty stage is not waited for": (
        "barrier_wait(empty + 8 * ring.stage, ring.parity ^ 1);",
        "",
        "mbarrier_misuse",
    ),
    "half of the bytes are announced": (
        "barrier_expect(barrier, STAGE_BYTES);",
        "barrier_expect(barrier, STAGE_BYTES / 2);",
        "mbarrier_misuse",
    ),
    "stores still read what is written": ("stores_have_read<1>();", ";", "wrong"),
    "blocks leave before their neighbours": (
        "meet<CLUSTER>();  // nobody leaves",
        "// nobody",
        "cluster_misuse",
    ),
    "blocks do not meet at the start": (
        "meet<CLUSTER>();\n    if (threadIdx.x < 128)",
        "__syncthreads();\n    if (threadIdx.x < 128)",
        "cluster_misuse",
    ),
    "products are not waited for": (
        'asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");',
        "",
        "wrong",
    ),
    "stages are given back before the products": (
        'asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");',
        "",
        "wrong",
    ),
}


@cache
def _task() -> Task:
    workload = Workload(name="w", role=WorkloadRole.CHECK, dimensions={"m": M, "n": N, "k": K})
    return load_task("kernel/gemm/bf16@hopper").model_copy(update={"workloads": (workload,)})


def _recorded(change: tuple[str, str] | None) -> tuple[LaunchPlan, Artifact]:
    task = _task()
    text = (task.directory / "tuned_hopper.cu").read_text()
    if change is not None:
        assert text.count(change[0]) == 1, change[0]
        text = text.replace(*change)
    candidate = from_text("gemm.cu", {"gemm.cu": text})
    artifact = compile_candidate(candidate, solve_header(task), LibraryPolicy.RUNTIME, "90a")
    assert isinstance(artifact, Artifact), artifact
    plan = record(artifact, task, task.workloads[0], load_profile("90a"))
    assert isinstance(plan, LaunchPlan), plan
    return plan, artifact


def _operands() -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((M, K), (K, N)))
    c = np.full((M, N), np.nan, ml_dtypes.bfloat16)
    return a, b, c, {name: x.reshape(-1).view(np.uint8) for name, x in (("a", a), ("b", b), ("c", c))}


def _run(plan: LaunchPlan, artifact: Artifact, mode: str) -> str:
    """``right``, ``wrong``, or what the fault is."""
    a, b, c, contents = _operands()
    outcome = emulate(plan, artifact, contents, 60, asynchrony=mode)
    if isinstance(outcome, Fault):
        return outcome.what
    assert isinstance(outcome, Completed), outcome
    exact = a.astype(np.float64) @ b.astype(np.float64)
    # bf16 has 8 bits: half a unit in the last place of sums below 128.
    return "right" if np.abs(c.astype(np.float64) - exact).max() <= 0.26 else "wrong"


def test_the_sound_kernel_is_right_in_every_mode():
    plan, artifact = _recorded(None)
    assert {mode: _run(plan, artifact, mode) for mode in MODES} == dict.fromkeys(MODES, "right")


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name):
    old, new, expected = MISTAKES[name]
    assert _run(*_recorded((old, new)), "late") == expected


# What the checking build says of each, whatever the order: also of those whose result is right in it.
FOUND = {
    "the full stage is not waited for": "missing_wait",
    "the empty stage is not waited for": "mbarrier_misuse",
    "stores still read what is written": "missing_wait",
    "blocks leave before their neighbours": "fault",
    "blocks do not meet at the start": "fault",
    "products are not waited for": "missing_wait",
    "stages are given back before the products": "missing_wait",
}


@pytest.mark.parametrize("mode", ["late", "eager"])
@pytest.mark.parametrize("name", FOUND)
def test_the_checking_build_names_mistakes_in_every_order(name, mode):
    old, new, _ = MISTAKES[name]
    found = examine(*_recorded((old, new)), _operands()[3], 60, asynchrony=mode)
    assert isinstance(found, Examination) and FOUND[name] in {f.kind for f in found.findings}, found


@pytest.mark.parametrize("mode", MODES)
def test_the_checking_build_finds_nothing_in_the_sound_kernel(mode):
    found = examine(*_recorded(None), _operands()[3], 60, asynchrony=mode)
    assert isinstance(found, Examination) and (found.ending, found.findings) == ("completed", ())
