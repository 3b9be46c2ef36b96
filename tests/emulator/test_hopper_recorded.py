"""From host code to answers: the recorder's tensor maps and cluster launches, run by the emulator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from emulated import KERNELS
from hopper import MODES

from cudahercules.build.artifact import Artifact
from cudahercules.build.candidate import from_text
from cudahercules.build.compile import compile_candidate
from cudahercules.emulator.outcome import Completed
from cudahercules.emulator.run import emulate
from cudahercules.measure.profiles import load_profile
from cudahercules.record.plan import LaunchPlan, Upload
from cudahercules.record.recorder import record
from cudahercules.task.model import (
    DType,
    LibraryPolicy,
    Role,
    Target,
    Task,
    TaskClass,
    Tensor,
    Workload,
    WorkloadRole,
)

ROWS = 43
HEADER = """#pragma once
#include <cuda_runtime.h>
#include <cstdint>
extern "C" void solve(const float* a, float* c, int64_t rows, cudaStream_t stream);
"""


def _tensor(name: str, role: Role) -> Tensor:
    return Tensor(name=name, role=role, dtype=DType.FP32, shape=("rows", "width"))


def _task() -> Task:
    return Task(
        id="kernel/emulator/maps@hopper",
        family="kernel/emulator",
        member="maps",
        task_class=TaskClass.KERNEL,
        target=Target.HOPPER,
        title="",
        domain="",
        directory=Path("."),
        prompt_text="",
        constants={"width": 32},
        dimensions=("rows",),
        tensors=(_tensor("a", Role.IN), _tensor("c", Role.OUT)),
        workloads=(Workload(name="w", role=WorkloadRole.SMOKE, dimensions={"rows": ROWS}),),
        tolerance={},
        release="0",
    )


@pytest.fixture(scope="module")
def recorded() -> tuple[LaunchPlan, Artifact]:
    source = (KERNELS / "hopper_candidate.cu").read_text()
    candidate = from_text("candidate.cu", {"candidate.cu": source})
    artifact = compile_candidate(candidate, HEADER, LibraryPolicy.RUNTIME, "90a")
    assert isinstance(artifact, Artifact), artifact
    task = _task()
    plan = record(artifact, task, task.workloads[0], load_profile("90a"))
    assert isinstance(plan, LaunchPlan), plan
    return plan, artifact


def test_where_the_maps_are(recorded):
    plan, _ = recorded
    uploads = [op for op in plan.solve if isinstance(op, Upload)]
    assert [len(op.tensor_maps) for op in uploads] == [1, 1]
    (launch,) = plan.launches
    assert len(launch.tensor_maps) == 2 and launch.cluster == (2, 1, 1)


@pytest.mark.parametrize("mode", MODES)
def test_answers(recorded, mode):
    plan, artifact = recorded
    a = np.arange(ROWS * 32, dtype=np.float32).reshape(ROWS, 32) % 101
    c = np.full_like(a, np.nan)
    contents = {"a": a.copy().reshape(-1).view(np.uint8), "c": c.reshape(-1).view(np.uint8)}
    outcome = emulate(plan, artifact, contents, 20, asynchrony=mode)
    assert isinstance(outcome, Completed), outcome
    padded = np.zeros((48, 36), np.float32)
    padded[:ROWS, :32] = a
    pairs = padded[:, 4:].reshape(3, 2, 8, 32).sum(1, keepdims=True).repeat(2, 1)
    # Rows of 128 bytes in boxes of 8 rows: the swizzle moves the same elements of every box alike.
    expected = pairs.reshape(48, 32)[:ROWS] + 1000 * a
    assert np.array_equal(c.reshape(ROWS, 32), expected)
