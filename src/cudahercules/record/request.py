"""What the recorder's process is told: device facts, kernels, symbols, buffers, and the calls.

A line-based text on its standard input (``runtime/output.c`` and ``launcher.c`` read it). It holds
addresses and sizes only: no values of inputs, no seeds, no reference.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from cudahercules.build.artifact import Artifact
from cudahercules.errors import TaskError
from cudahercules.measure.profile import DeviceProfile
from cudahercules.record import layout
from cudahercules.record.plan import Buffer, Symbol
from cudahercules.task.model import Role, Task, Workload

MAX_INTEGERS = 64
MAX_DOUBLES = 8
"""How many arguments of each register class the launcher's call passes (``runtime/launcher.c``)."""


def request_text(
    artifact: Artifact,
    task: Task,
    workload: Workload,
    profile: DeviceProfile,
    buffers: Sequence[Buffer],
    symbols: Sequence[Symbol],
) -> str:
    """The whole request. Raises TaskError if the task's signature has too many arguments."""
    lines = [f"device {profile.name}", f"memory {profile.free_memory} {profile.total_memory}"]
    lines += [f"attribute {number} {value}" for number, value in sorted(profile.attributes.items())]
    lines += [f"gpc {sms}" for sms in profile.gpc_sms]
    lines += [f"told {answer} {asked}" for asked, answer in profile.told.items() if asked.isprintable()]
    for number, module in enumerate(artifact.modules):
        lines.append(f"module {module.fatbin_hash}")
        for index, k in enumerate(module.kernels):
            numbers = [number, index, k.registers, k.static_shared, k.local, k.constant, k.max_threads]
            numbers += [*k.required_cluster, *k.required_threads, len(k.parameters)]
            numbers += [n for parameter in k.parameters for n in parameter]
            lines.append(f"kernel {' '.join(map(str, numbers))} {k.name}")
    lines += [f"symbol {s.module} {s.space[0]} {s.address} {s.size} {s.name}" for s in symbols]
    for b in buffers:
        lines.append(f"buffer {'i' if b.kind == 'input' else 'w'} {b.address} {b.size} {b.name}")
    lines += [f"scratch {layout.arena_end(tuple(buffers))}", "calls"]
    lines.append(f"object {artifact.path(artifact.host_object).resolve()}")
    if artifact.has_prepare:
        lines.append(_call("prepare", task, workload, buffers, (Role.WEIGHT,)))
    lines.append(_call("solve", task, workload, buffers, tuple(Role)))
    return "\n".join(lines) + "\n"


def _call(
    name: str, task: Task, workload: Workload, buffers: Sequence[Buffer], roles: tuple[Role, ...]
) -> str:
    pairs = zip(task.tensors, buffers, strict=True)
    integers = [str(buffer.address) for tensor, buffer in pairs if tensor.role in roles]
    integers += [str(workload.dimensions[d]) for d in task.dimensions]
    doubles = []
    for scalar in task.scalars:
        value = workload.scalars[scalar.name]
        if scalar.type in ("int32", "int64"):
            integers.append(str(int(value) & (2**64 - 1)))
        elif scalar.type == "float":
            doubles.append(f"{struct.unpack('<I', struct.pack('<f', value))[0]:x}")
        else:
            doubles.append(f"{struct.unpack('<Q', struct.pack('<d', value))[0]:x}")
    integers.append("stream")
    if len(integers) > MAX_INTEGERS or len(doubles) > MAX_DOUBLES:
        raise TaskError(
            f"{task.id}: {name} has more than {MAX_INTEGERS} pointers and integers or {MAX_DOUBLES} floats"
        )
    return f"call {name} {' '.join(integers)} | {' '.join(doubles)}"
