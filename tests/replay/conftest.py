"""A small task, a plan for it by hand, and a machine with a pretend GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from by_hand import COUNT, FAKE, add_launch, make_plan

from cudahercules import cache
from cudahercules.build.artifact import Artifact, DeviceModule
from cudahercules.build.elf import read_cubin
from cudahercules.build.toolchain import find_toolchain
from cudahercules.process import Limits, run_limited
from cudahercules.record.plan import LaunchPlan
from cudahercules.task.model import (
    DType,
    Role,
    Target,
    Task,
    TaskClass,
    Tensor,
    Tolerance,
    Workload,
    WorkloadRole,
)

SOURCE = r"""
__device__ int counter = 5;
extern "C" __global__ void copy_plus(const float* x, float* y, long n, float bias) {
  static int calls;
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + bias + counter + calls;
  if (i == 0) { counter++; calls++; }
}
extern "C" __global__ void store(int* p) { *p = 0x07070707; }
extern "C" __global__ void hang() { while (true) __nanosleep(1000); }
"""


@pytest.fixture
def pretend_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Child processes see tests/replay/fake as cuda.bindings."""
    monkeypatch.setenv("PYTHONPATH", str(FAKE))


@pytest.fixture(scope="session")
def task() -> Task:
    """y = x + 2.5, n = 1000 and 3."""
    return Task(
        id="kernel/add/plain@hopper",
        family="kernel/add",
        member="plain",
        task_class=TaskClass.KERNEL,
        target=Target.HOPPER,
        title="add",
        domain="tests",
        directory=Path(__file__).parent,
        prompt_text="",
        constants={},
        dimensions=("n",),
        tensors=(
            Tensor(name="x", role=Role.IN, dtype=DType.FP32, shape=("n",)),
            Tensor(name="y", role=Role.OUT, dtype=DType.FP32, shape=("n",)),
        ),
        workloads=(
            Workload(name="main", role=WorkloadRole.BENCH, dimensions={"n": COUNT}),
            Workload(name="tiny", role=WorkloadRole.SMOKE, dimensions={"n": 3}),
        ),
        tolerance={"y": Tolerance(l2=1e-6, row_l2=1e-6, element=1e-6)},
        release="test",
    )


@pytest.fixture(scope="session")
def artifact() -> Artifact:
    """SOURCE as a cubin for sm_90a."""
    toolchain = find_toolchain()

    def make(directory: Path) -> None:
        (directory / "c.cu").write_text(SOURCE)
        done = run_limited(
            [toolchain.nvcc, "-arch=sm_90a", "-cubin", "-o", directory / "c.cubin", directory / "c.cu"],
            Limits(wall_s=120),
            env=toolchain.environment(directory),
        )
        assert done.status == 0, done.stderr.decode()

    directory, _ = cache.entry("replay-test", cache.digest(SOURCE, toolchain.identity), make)
    kernels, symbols = read_cubin(directory / "c.cubin", "")
    module = DeviceModule(
        source="c.cu", cubin="c.cubin", ptx="", fatbin_hash="0", kernels=kernels, symbols=symbols
    )
    return Artifact(
        key="k",
        architecture="90a",
        directory=directory,
        host_object="",
        has_prepare=False,
        modules=(module,),
        compiler="nvcc",
        flags=(),
        seconds=0.0,
    )


@pytest.fixture
def plan(task: Task) -> LaunchPlan:
    """One launch: y = x + 2.5 + counter."""
    return make_plan(task, (add_launch(),))
