"""A plan's operations as driver calls: issued on streams, captured into one graph.

Capturing instead of adding nodes by hand lets the driver make the edges of cooperative, clustered
and programmatic launches. Streams other than 0 are forked off stream 0 before the first operation
and joined to it after the last, so that the graph has exactly the plan's dependencies.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cudahercules.build.artifact import Artifact
from cudahercules.record.plan import (
    AccessPolicy,
    Copy,
    EventRecord,
    EventWait,
    KernelLaunch,
    LaunchPlan,
    Memset,
    Operation,
    Placed,
    Relocation,
    TensorMap,
    Upload,
)
from cudahercules.replay.arena import Arena
from cudahercules.replay.driver import LOST, DriverError, api
from cudahercules.replay.image import LoadedModule
from cudahercules.replay.interface import CannotReplay

TENSOR_MAP_BYTES = 128
NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING


@contextmanager
def asked_by_plan(what: str) -> Iterator[None]:
    """The driver refuses ``what`` of a plan: CannotReplay, unless a kernel or the machine failed."""
    try:
        yield
    except DriverError as error:
        if error.sticky or error.code in LOST:
            raise
        raise CannotReplay(f"{what}: {error}") from error


def encode_tensor_map(m: TensorMap, address: int) -> bytes:
    """The 128 bytes of cuTensorMapEncodeTiled or Im2col for ``m`` at device address ``address``.

    Called through ctypes: the driver wants the result aligned to 64 bytes, which the object of
    cuda-bindings is not always."""
    wide, narrow, signed = ctypes.c_uint64, ctypes.c_uint32, ctypes.c_int32
    room = ctypes.create_string_buffer(TENSOR_MAP_BYTES + 64)
    target = ctypes.addressof(room) + -ctypes.addressof(room) % 64
    common = (
        ctypes.c_void_p(target),
        ctypes.c_int(m.data_type),
        narrow(m.rank),
        ctypes.c_void_p(address),
        _array(wide, m.dimensions),
        _array(wide, m.strides),
    )
    if m.kind == "tiled":
        name = "cuTensorMapEncodeTiled"
        own: tuple[Any, ...] = (_array(narrow, m.box), _array(narrow, m.element_strides))
    else:
        name = "cuTensorMapEncodeIm2col"
        corners = (_array(signed, m.pixel_box_lower), _array(signed, m.pixel_box_upper))
        counts = (narrow(m.channels_per_pixel), narrow(m.pixels_per_column))
        own = (*corners, *counts, _array(narrow, m.element_strides))
    modes = (m.interleave, m.swizzle, m.l2_promotion, m.oob_fill)
    call = getattr(ctypes.CDLL("libcuda.so.1"), name)
    code = call(*common, *own, *(ctypes.c_int(mode) for mode in modes))
    if code:
        raise CannotReplay(f"{name} refused a tensor map (CUresult {code}): {m!r}")
    return ctypes.string_at(target, TENSOR_MAP_BYTES)


def _array(kind: Any, values: Sequence[int]) -> Any:
    return (kind * max(len(values), 1))(*values)


@dataclass
class PinnedUpload:
    """Bytes of an upload node in page-locked memory, and the private copy they are restored from.

    Page-locked memory can be written from the device, hence the copy."""

    pointer: int
    content: bytes

    def restore(self) -> None:
        ctypes.memmove(self.pointer, self.content, len(self.content))


@dataclass
class Issuer:
    """Turns operations into driver calls for one plan on one device.

    ``modules`` are the artifact's, loaded, in order. Raises CannotReplay with the operation's
    number when the driver refuses it.
    """

    plan: LaunchPlan
    artifact: Artifact
    arena: Arena
    modules: Sequence[LoadedModule]
    uploads: list[PinnedUpload] = field(default_factory=list)
    streams: dict[int, Any] = field(default_factory=dict)
    events: dict[int, Any] = field(default_factory=dict)
    _keep: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.symbols = [(s, self.modules[s.module].variable(s.name)[0]) for s in self.plan.symbols]
        self.maps = [encode_tensor_map(m, self.translate(m.address)) for m in self.plan.tensor_maps]
        self._set_function_attributes()

    # --- addresses and bytes -------------------------------------------------------------------

    def translate(self, address: int) -> int:
        """An address of the plan (arena or symbol) as a device address."""
        for symbol, real in self.symbols:
            if symbol.address <= address < symbol.address + max(symbol.size, 1):
                return real + address - symbol.address
        return self.arena.translate(address)

    def patched(self, data: bytes, relocations: Iterable[Relocation], placed: Iterable[Placed]) -> bytearray:
        """``data`` with addresses and tensor maps of this device filled in."""
        result = bytearray(data)
        for r in relocations:
            if r.kind == "buffer":
                base = self.arena.translate(self.plan.buffers[r.index].address)
            else:
                base = self.symbols[r.index][1]
            result[r.offset : r.offset + 8] = (base + r.addend).to_bytes(8, "little")
        for p in placed:
            result[p.offset : p.offset + TENSOR_MAP_BYTES] = self.maps[p.index]
        return result

    # --- issuing -------------------------------------------------------------------------------

    def stream(self, number: int) -> Any:
        if number not in self.streams:
            self.streams[number] = api.cuStreamCreate(NON_BLOCKING)
        return self.streams[number]

    def issue(self, operation: Operation) -> None:
        """Enqueue one operation on its stream."""
        stream = self.stream(operation.stream)
        match operation:
            case KernelLaunch():
                self._launch(operation, stream)
            case Memset():
                self._memset(operation, stream)
            case Copy():
                self._copy(operation, stream)
            case Upload():
                self._upload(operation, stream)
            case EventRecord():
                event = self._event()
                self.events[operation.event] = event
                api.cuEventRecord(event, stream)
            case EventWait():
                if operation.event in self.events:  # waiting for what was never recorded is no wait
                    api.cuStreamWaitEvent(stream, self.events[operation.event], 0)

    def _event(self) -> Any:
        event = api.cuEventCreate(2)  # CU_EVENT_DISABLE_TIMING
        self._keep.append(event)
        return event

    def _launch(self, op: KernelLaunch, stream: Any) -> None:
        info = self.artifact.kernel(op.module, op.kernel)
        if info is None:
            raise CannotReplay(f"the artifact has no kernel {op.kernel}")
        config = api.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = op.grid
        config.blockDimX, config.blockDimY, config.blockDimZ = op.block
        config.sharedMemBytes = op.dynamic_shared
        config.hStream = stream
        attributes = self._attributes(op)
        config.attrs = attributes
        config.numAttrs = len(attributes)
        block = np.frombuffer(
            bytes(self.patched(op.parameters, op.relocations, op.tensor_maps)) + bytes(64), np.uint8
        ).copy()
        start = _aligned(block)  # tensor maps in parameters want 64-byte alignment
        pointers = np.array([start + offset for offset, _ in info.parameters], np.uint64)
        api.cuLaunchKernelEx(
            config, self.modules[op.module].function(op.kernel), int(pointers.ctypes.data), 0
        )

    def _attributes(self, op: KernelLaunch) -> list[Any]:
        kinds = api.CUlaunchAttributeID
        made = []

        def add(kind: Any, fill: Callable[[Any], None]) -> None:
            attribute = api.CUlaunchAttribute()
            attribute.id = kind
            fill(attribute.value)
            made.append(attribute)

        if op.cluster != (0, 0, 0):
            add(kinds.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, lambda v: _set_cluster(v, op.cluster))
        if op.preferred_cluster != (0, 0, 0):
            add(
                kinds.CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION,
                lambda v: _set_cluster(v, op.preferred_cluster, "preferredClusterDim"),
            )
        if op.cluster_policy:
            policy = api.CUclusterSchedulingPolicy(op.cluster_policy)
            add(
                kinds.CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
                lambda v: setattr(v, "clusterSchedulingPolicyPreference", policy),
            )
        if op.cooperative:
            add(kinds.CU_LAUNCH_ATTRIBUTE_COOPERATIVE, lambda v: setattr(v, "cooperative", 1))
        if op.programmatic:
            add(
                kinds.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                lambda v: setattr(v, "programmaticStreamSerializationAllowed", 1),
            )
        if op.priority:
            add(kinds.CU_LAUNCH_ATTRIBUTE_PRIORITY, lambda v: setattr(v, "priority", op.priority))
        if op.shared_carveout >= 0:
            add(
                kinds.CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
                lambda v: setattr(v, "sharedMemCarveout", op.shared_carveout),
            )
        if op.access_policy is not None:
            window = self._window(op.access_policy)
            add(
                kinds.CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW,
                lambda v: setattr(v, "accessPolicyWindow", window),
            )
        return made

    def _window(self, policy: AccessPolicy) -> Any:
        window = api.CUaccessPolicyWindow()
        window.base_ptr = self.translate(policy.address)
        window.num_bytes = policy.size
        window.hitRatio = policy.hit_ratio
        window.hitProp = api.CUaccessProperty(policy.hit)
        window.missProp = api.CUaccessProperty(policy.miss)
        return window

    def _memset(self, op: Memset, stream: Any) -> None:
        address = self.translate(op.address)
        bits = 8 * op.element_size
        if op.height == 1:
            getattr(api, f"cuMemsetD{bits}Async")(address, op.value, op.width, stream)
        else:
            set_rows = getattr(api, f"cuMemsetD2D{bits}Async")
            set_rows(address, op.pitch, op.value, op.width, op.height, stream)

    def _copy(self, op: Copy, stream: Any) -> None:
        destination, source = self.translate(op.destination), self.translate(op.source)
        if op.height == 1:
            api.cuMemcpyDtoDAsync(destination, source, op.width, stream)
            return
        rows = api.CUDA_MEMCPY2D()
        rows.srcMemoryType = rows.dstMemoryType = api.CUmemorytype.CU_MEMORYTYPE_DEVICE
        rows.srcDevice, rows.srcPitch = source, op.source_pitch
        rows.dstDevice, rows.dstPitch = destination, op.destination_pitch
        rows.WidthInBytes, rows.Height = op.width, op.height
        api.cuMemcpy2DAsync(rows, stream)

    def _upload(self, op: Upload, stream: Any) -> None:
        content = bytes(self.patched(op.data, op.relocations, op.tensor_maps))
        if not content:
            return
        pinned = PinnedUpload(int(api.cuMemAllocHost(len(content))), content)
        pinned.restore()
        self.uploads.append(pinned)
        api.cuMemcpyHtoDAsync(self.translate(op.destination), pinned.pointer, len(content), stream)

    def _set_function_attributes(self) -> None:
        """Each kernel gets the largest dynamic shared memory that a launch of it asks for."""
        attribute = api.CUfunction_attribute
        largest: dict[tuple[int, str], int] = {}
        non_portable = set()
        for op in (*self.plan.prepare, *self.plan.solve):
            if isinstance(op, KernelLaunch):
                key = (op.module, op.kernel)
                largest[key] = max(largest.get(key, 0), op.dynamic_shared)
                if op.non_portable_cluster:
                    non_portable.add(key)
        for (module, kernel), size in largest.items():
            function = self.modules[module].function(kernel)
            with asked_by_plan(f"kernel {kernel}"):
                if size > 0:
                    api.cuFuncSetAttribute(
                        function, attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, size
                    )
                if (module, kernel) in non_portable:
                    api.cuFuncSetAttribute(
                        function, attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1
                    )

    # --- graphs --------------------------------------------------------------------------------

    def capture(self, operations: Sequence[Operation]) -> tuple[Any, int]:
        """``operations`` as an executable graph, and its number of nodes."""
        main = self.stream(0)
        used = sorted({op.stream for op in operations} - {0})
        self.events.clear()
        relaxed = api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        api.cuStreamBeginCapture(main, relaxed)
        try:
            fork = self._event()
            api.cuEventRecord(fork, main)
            for number in used:
                api.cuStreamWaitEvent(self.stream(number), fork, 0)
            for position, operation in enumerate(operations):
                with asked_by_plan(f"operation {position + 1} ({name_of(operation)})"):
                    self.issue(operation)
            for number in used:
                join = self._event()
                api.cuEventRecord(join, self.stream(number))
                api.cuStreamWaitEvent(main, join, 0)
        except BaseException:
            self._abandon(main)
            raise
        with asked_by_plan("the graph of all operations"):
            graph = api.cuStreamEndCapture(main)
            _, nodes = api.cuGraphGetNodes(graph)
            executable = api.cuGraphInstantiate(graph, 0)
        api.cuGraphDestroy(graph)
        return executable, int(nodes)

    @staticmethod
    def _abandon(stream: Any) -> None:
        """End a capture that failed, so that the context can be used or torn down."""
        try:
            api.cuStreamEndCapture(stream)
        except DriverError:
            return  # the capture was already invalid: nothing is left to end

    def close(self) -> None:
        for upload in self.uploads:
            api.cuMemFreeHost(upload.pointer)
        for event in self._keep:
            api.cuEventDestroy(event)
        for stream in self.streams.values():
            api.cuStreamDestroy(stream)
        self.uploads.clear()
        self._keep.clear()
        self.streams.clear()


def _aligned(block: np.ndarray) -> int:
    """Address of a 64-byte aligned place in ``block`` to which its content has been moved."""
    address = int(block.ctypes.data)
    shift = -address % 64
    if shift:
        ctypes.memmove(address + shift, address, len(block) - 64)
    return address + shift


def _set_cluster(value: Any, cluster: tuple[int, int, int], member: str = "clusterDim") -> None:
    dimensions = getattr(value, member)
    dimensions.x, dimensions.y, dimensions.z = cluster


def name_of(operation: Operation) -> str:
    """How a message names an operation: a kernel by its name, others by what they do."""
    return operation.kernel if isinstance(operation, KernelLaunch) else operation.op
