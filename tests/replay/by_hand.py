"""Launches and plans by hand for the kernels of conftest.py, and where the pretend driver lies."""

from __future__ import annotations

import struct
from pathlib import Path

from cudahercules.record import layout
from cudahercules.record.plan import Buffer, KernelLaunch, LaunchPlan, Relocation
from cudahercules.task.model import Task

FAKE = Path(__file__).parent / "fake"
COUNT = 1000


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
