"""The launch plan: everything that a candidate would do on a GPU, as data.

A plan is a list of operations in the order in which the host code issued them. Streams and events
are kept as they were; issue order is one legal execution order, and replaying the same operations
under stream capture gives the same dependencies. All memory lies in one *arena*: addresses in
operations are addresses in the arena whose base the plan states. Kernel parameters and uploaded
bytes that hold such addresses are listed as relocations.

A plan comes out of a process that ran untrusted code. :func:`cudahercules.record.parse.load_plan`
is the only way in; it checks every name, size and range against artifact and task.
"""

from __future__ import annotations

import base64
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PlainSerializer

from cudahercules.build.artifact import Artifact
from cudahercules.task.model import Model

PLAN_VERSION: Literal[1] = 1

ARENA_BASE = 0x4A5B_0000_0000
"""Preferred base of the arena (honoured by the driver and by mmap; replay relocates otherwise)."""
SYMBOL_BASE = 0x4B5B_0000_0000
"""Stand-in addresses of module variables while recording; never valid on a device."""
PAGE = 2 << 20
"""Granularity of device mappings: every buffer lies in whole pages with one unmapped page after."""
ALIGNMENT = 256
"""Every buffer's alignment in bytes."""


def _decode(value: object) -> object:
    return base64.b64decode(value, validate=True) if isinstance(value, str) else value


Bytes = Annotated[
    bytes,
    BeforeValidator(_decode),
    PlainSerializer(lambda b: base64.b64encode(b).decode(), return_type=str, when_used="json"),
]
Dim3 = tuple[int, int, int]
Natural = Annotated[int, Field(ge=0)]


class Buffer(Model):
    """A range of the arena: a tensor of the task or scratch that the candidate allocated.

    ``[address, address + size)`` ends at the end of a page where the alignment allows.
    """

    name: str
    kind: Literal["input", "output", "inout", "scratch"]
    address: Natural
    size: Natural


class Symbol(Model):
    """A module variable and the stand-in address under which the host code saw it."""

    module: Natural
    name: str
    space: Literal["global", "constant"]
    address: Natural
    size: Natural


class Relocation(Model):
    """At ``offset`` of the bytes stands (as 8 bytes, little endian) the address of ``addend`` bytes
    into buffer or symbol number ``index``. The bytes themselves are zero there."""

    offset: Natural
    kind: Literal["buffer", "symbol"]
    index: Natural
    addend: Natural


class TensorMap(Model):
    """Arguments of cuTensorMapEncodeTiled or Im2col. ``address`` is in the arena."""

    kind: Literal["tiled", "im2col"]
    data_type: Natural
    rank: Annotated[int, Field(ge=1, le=5)]
    address: Natural
    dimensions: tuple[int, ...]
    strides: tuple[int, ...]  # bytes, rank - 1 of them
    box: tuple[int, ...]  # tiled
    element_strides: tuple[int, ...]
    interleave: Natural
    swizzle: Natural
    l2_promotion: Natural
    oob_fill: Natural
    pixel_box_lower: tuple[int, ...] = ()  # im2col
    pixel_box_upper: tuple[int, ...] = ()
    channels_per_pixel: Natural = 0
    pixels_per_column: Natural = 0


class Placed(Model):
    """Tensor map number ``index`` stands in 128 bytes at ``offset``; the bytes are zero there."""

    offset: Natural
    index: Natural


class AccessPolicy(Model):
    address: Natural
    size: Natural
    hit_ratio: float
    hit: Natural
    miss: Natural


class KernelLaunch(Model):
    """``programmatic`` allows the launch to begin before its predecessor in the stream has ended.

    ``preferred_cluster`` (0, 0, 0) means none; ``cluster_policy`` is a cudaClusterSchedulingPolicy;
    ``shared_carveout`` is a percentage, -1 for the driver's choice."""

    op: Literal["kernel"] = "kernel"
    stream: Natural
    module: Natural
    kernel: str
    grid: Dim3
    block: Dim3
    dynamic_shared: Natural = 0
    cluster: Dim3 = (0, 0, 0)
    preferred_cluster: Dim3 = (0, 0, 0)
    cluster_policy: Natural = 0
    cooperative: bool = False
    programmatic: bool = False
    priority: int = 0
    shared_carveout: int = -1
    non_portable_cluster: bool = False
    access_policy: AccessPolicy | None = None
    parameters: Bytes
    relocations: tuple[Relocation, ...] = ()
    tensor_maps: tuple[Placed, ...] = ()


class Memset(Model):
    """Rows of ``width`` elements of ``element_size`` bytes, ``pitch`` bytes apart."""

    op: Literal["memset"] = "memset"
    stream: Natural
    address: Natural
    value: Natural
    element_size: Literal[1, 2, 4]
    width: Natural
    height: Natural = 1
    pitch: Natural = 0


class Copy(Model):
    """Device to device: ``height`` rows of ``width`` bytes."""

    op: Literal["copy"] = "copy"
    stream: Natural
    destination: Natural
    source: Natural
    width: Natural
    height: Natural = 1
    destination_pitch: Natural = 0
    source_pitch: Natural = 0


class Upload(Model):
    """Host to device: the bytes were captured while recording."""

    op: Literal["upload"] = "upload"
    stream: Natural
    destination: Natural
    data: Bytes
    relocations: tuple[Relocation, ...] = ()
    tensor_maps: tuple[Placed, ...] = ()


class EventRecord(Model):
    op: Literal["record"] = "record"
    stream: Natural
    event: Natural


class EventWait(Model):
    op: Literal["wait"] = "wait"
    stream: Natural
    event: Natural


Operation = Annotated[
    KernelLaunch | Memset | Copy | Upload | EventRecord | EventWait, Field(discriminator="op")
]


class DeviceAnswer(Model):
    """A question the host code asked about the device and the answer it was given.

    ``question`` is ``attribute N``, ``properties``, ``occupancy KERNEL BLOCK DYNAMIC FLAGS``,
    ``memory`` and the like; replay asks the real device again and records anew on a difference.
    """

    question: str
    answer: str


class LaunchPlan(Model):
    """``prepare`` runs untimed before each sample; ``solve`` is what is timed and checked.

    Stream 0 is the stream handed to ``solve``. Every stream joins stream 0 at the end.
    """

    version: Literal[1] = PLAN_VERSION
    task: str
    workload: str
    artifact: str  # Artifact.key
    architecture: str
    profile: str  # device profile the answers came from
    arena_base: Natural
    buffers: tuple[Buffer, ...]
    symbols: tuple[Symbol, ...] = ()
    tensor_maps: tuple[TensorMap, ...] = ()
    prepare: tuple[Operation, ...] = ()
    solve: tuple[Operation, ...]
    answers: tuple[DeviceAnswer, ...] = ()
    stack_limit: int = 0  # cudaLimitStackSize as set by the candidate, 0 = default
    persisting_l2: int = 0  # cudaLimitPersistingL2CacheSize as set by the candidate, 0 = default

    def canonical_json(self) -> str:
        """The same plan gives the same text: stable under hashing."""
        import json

        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))

    @property
    def sha256(self) -> str:
        import hashlib

        return hashlib.sha256(self.canonical_json().encode()).hexdigest()

    @property
    def launches(self) -> tuple[KernelLaunch, ...]:
        return tuple(op for op in self.solve if isinstance(op, KernelLaunch))


def local_bytes(plan: LaunchPlan, artifact: Artifact) -> int:
    """Bytes of local memory that a thread of the plan may need: registers spilled, arrays, and the stack."""
    return max((k.local for m in artifact.modules for k in m.kernels), default=0) + plan.stack_limit
