"""A small task, a plan for it by hand, and a machine with a pretend GPU."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from cudahercules import cache
from cudahercules.build.artifact import Artifact, DeviceModule
from cudahercules.build.elf import read_cubin
from cudahercules.build.toolchain import find_toolchain
from cudahercules.process import Limits, run_limited
from cudahercules.record import layout
from cudahercules.record.plan import Buffer, KernelLaunch, LaunchPlan, Relocation
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
FAKE = Path(__file__).parent / "fake"
COUNT = 1000


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


def buffers(task: Task, workload: str = "main", scratch: int = 4096) -> tuple[Buffer, ...]:
    tensors = layout.arena(task, next(w for w in task.workloads if w.name == workload))
    address, _ = layout.place(layout.arena_end(tensors), scratch)
    return (*tensors, Buffer(name="scratch0", kind="scratch", address=address, size=scratch))


def add_launch(count: int = COUNT, source: int = 0, **changes: object) -> KernelLaunch:
    """The launch of copy_plus from buffer ``source`` to y."""
    launch = KernelLaunch(
        stream=0,
        module=0,
        kernel="copy_plus",
        grid=(-(-count // 256), 1, 1),
        block=(256, 1, 1),
        parameters=struct.pack("<QQqf", 0, 0, count, 2.5),
        relocations=(
            Relocation(offset=0, kind="buffer", index=source, addend=0),
            Relocation(offset=8, kind="buffer", index=1, addend=0),
        ),
    )
    return launch.model_copy(update=changes)


def store_launch(index: int, addend: int = 0) -> KernelLaunch:
    """The launch of store to a place in buffer ``index``."""
    return KernelLaunch(
        stream=0,
        module=0,
        kernel="store",
        grid=(1, 1, 1),
        block=(1, 1, 1),
        parameters=bytes(8),
        relocations=(Relocation(offset=0, kind="buffer", index=index, addend=addend),),
    )


@pytest.fixture
def plan(task: Task) -> LaunchPlan:
    """One launch: y = x + 2.5 + counter."""
    return make_plan(task, (add_launch(),))


def make_plan(task: Task, solve: tuple, **changes: object) -> LaunchPlan:
    return LaunchPlan(
        task=task.id,
        workload="main",
        artifact="k",
        architecture="90a",
        profile="pretend",
        arena_base=layout.ARENA_BASE,
        buffers=buffers(task),
        solve=solve,
    ).model_copy(update=changes)
