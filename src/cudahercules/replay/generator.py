"""Our own kernels on the device: built once an architecture, and called from the GPU processes.

:class:`DeviceCode` fills inputs (bit-equal to :func:`cudahercules.task.inputs.generate`), evicts L2,
wipes what a candidate could have left on the chip, and hashes memory.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cudahercules import cache
from cudahercules.errors import MachineError
from cudahercules.process import Limits, run_limited
from cudahercules.record.plan import PAGE
from cudahercules.replay.driver import LOST, DriverError, api
from cudahercules.task.model import (
    Constant,
    Distribution,
    DType,
    Integer,
    LowRank,
    Normal,
    Outliers,
    Partition,
    RowScaled,
    Tensor,
    Uniform,
    Wide,
)

SOURCES = (Path(__file__).with_name("device_code.cu"), Path(__file__).with_name("generator.cuh"))
TABLE = Path(__file__).parents[1] / "task" / "normal_table.h"
KINDS = (Normal, Uniform, Integer, Constant, Outliers, Wide, RowScaled, LowRank, Partition)
"""In the order of ``enum Kind`` in generator.cuh."""
POISON_16 = 0x7FFF
"""What pages and scratch are filled with, as 16-bit words; outputs get the word of their dtype
(:func:`cudahercules.task.inputs.poison_word`)."""
LOCAL_BYTES = (1024, 4096, 16384, 65536)
"""The sizes of local memory a thread for which there is a wiping kernel."""
_MASK = (1 << 64) - 1


class Fill(ctypes.Structure):
    """``struct Fill`` of generator.cuh."""

    _fields_ = (
        ("seed", ctypes.c_uint64),
        ("components", ctypes.c_uint64),
        ("extent", ctypes.c_uint64),
        ("span", ctypes.c_uint64),
        ("threshold", ctypes.c_uint64),
        ("rank", ctypes.c_uint64),
        ("low", ctypes.c_int64),
        ("constant", ctypes.c_double),
        ("kind", ctypes.c_uint32),
        ("tensor", ctypes.c_uint32),
        ("parts", ctypes.c_uint32),
        ("column", ctypes.c_uint32),
        ("offset", ctypes.c_float),
        ("scale", ctypes.c_float),
        ("boost", ctypes.c_float),
        ("unused", ctypes.c_uint32),
    )


def fill_parameters(
    tensor: Tensor, shape: Sequence[int], distribution: Distribution, number: int, seed: int
) -> Fill:
    """What ``fill_<storage>`` needs to make the values of tensor ``number`` of a task."""
    column = tensor.layout == "column"
    parts = 2 if tensor.dtype.is_complex else 1
    fill = Fill(
        seed=seed,
        components=math.prod(shape) * parts,
        extent=shape[0] if column else shape[-1],
        rank=1,
        kind=KINDS.index(type(distribution)),
        tensor=number,
        parts=parts,
        column=int(column),
    )
    match distribution:
        case Normal():
            fill.offset, fill.scale = distribution.mean, distribution.std
        case Uniform():
            fill.offset, fill.scale = distribution.low, distribution.high - distribution.low
        case Integer():
            fill.low, fill.span = distribution.low, distribution.high - distribution.low + 1
        case Constant():
            fill.offset = fill.constant = distribution.value
            fill.low = int(distribution.value) if tensor.dtype.is_integer else 0
        case Outliers():
            fill.scale, fill.boost = distribution.std, distribution.scale
            fill.threshold = math.floor(distribution.fraction * 2.0**32)
        case Wide() | RowScaled():
            fill.low = distribution.low_exponent
            fill.span = distribution.high_exponent - distribution.low_exponent + 1
        case Partition():
            fill.low, fill.span = distribution.total, distribution.spread + 1
            fill.threshold = math.floor(distribution.empty * 2.0**32)
        case LowRank():
            fill.scale, fill.rank = distribution.std, distribution.rank
    return fill


def fill_kernel(dtype: DType) -> str:
    """The kernel of generator.cuh that stores elements of ``dtype``."""
    if dtype.is_integer:
        return f"fill_int{8 * dtype.size}"
    same = {DType.TF32: DType.FP32, DType.COMPLEX64: DType.FP32, DType.COMPLEX128: DType.FP64}
    return f"fill_{same.get(dtype, dtype).value}"


def mixed(x: int) -> int:
    """The finaliser of SplitMix64 (as in device_code.cu)."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def hash_bytes(data: bytes) -> int:
    """The hash of ``data`` as the device computes it: the sum of the mixed 8-byte words."""
    padded = np.frombuffer(data + bytes(-len(data) % 8), np.uint64)
    with np.errstate(over="ignore"):
        positions = _mixed(np.arange(1, padded.size + 1, dtype=np.uint64))
        return int(_mixed(padded ^ positions).sum(dtype=np.uint64))


def _mixed(x: np.ndarray) -> np.ndarray:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def device_code(architecture: str, nvcc: Path) -> Path:
    """The cubin of device_code.cu for ``architecture`` (as nvcc spells it), built at most once.

    Raises MachineError with the compiler's words if it cannot be built."""
    texts = [p.read_bytes() for p in (*SOURCES, TABLE)]
    key = cache.digest("device code 1", architecture, str(nvcc), *texts)

    def make(directory: Path) -> None:
        target = directory / "device_code.cubin"
        options = [f"-arch=sm_{architecture}", "-std=c++17", "-O3", "-cubin", "-I", str(TABLE.parent)]
        done = run_limited(
            [str(nvcc), *options, "-o", str(target), str(SOURCES[0])],
            Limits(wall_s=120),
            env={"PATH": f"{nvcc.parent}:/usr/bin:/bin", "TMPDIR": str(directory)},
        )
        if done.status != 0:
            raise MachineError(
                f"{nvcc} could not build the replay kernels: {done.stderr.decode(errors='replace')[-2000:]}"
            )

    return cache.entry("replay", key, make)[0] / "device_code.cubin"


class DeviceCode:
    """The kernels, loaded in the current context, with the memory that they need. A process keeps them
    from one load to the next: what a contestant could find in their memory is overwritten in every sample.

    ``device_bytes`` counts what is held here. Launches go to the given stream.
    """

    def __init__(self, cubin: Path, context: Any):
        try:
            self.module = api.cuModuleLoadData(cubin.read_bytes())
        except DriverError as error:
            if error.code in LOST:
                raise
            raise MachineError(
                f"the driver refuses our own kernels ({error}): the compiler is newer than the driver; "
                "update the driver, or put an older nvcc (13.0 or newer) first on PATH"
            ) from error
        self._functions: dict[str, Any] = {}
        self.multiprocessors = context.attribute(16)  # MULTIPROCESSOR_COUNT
        self.shared_bytes = context.attribute(97)  # MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        self.threads_per_sm = context.attribute(39)  # MAX_THREADS_PER_MULTIPROCESSOR
        self.l2_bytes = context.attribute(38)
        # Whole pages of the device: nothing of these allocations is left unwritten for messages.
        self.evict_bytes = -(-2 * self.l2_bytes // PAGE) * PAGE
        self.cover(0)
        self._written = int(api.cuMemAlloc(self.evict_bytes))
        self._read = int(api.cuMemAlloc(self.evict_bytes))
        self._counters = int(api.cuMemAlloc(PAGE))
        self.device_bytes = 2 * self.evict_bytes + PAGE
        api.cuMemsetD8(self._counters, 0, PAGE)
        api.cuFuncSetAttribute(
            self._function("wipe_shared"),
            api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
            self.shared_bytes,
        )

    def cover(self, local_bytes: int) -> None:
        """Wipe this much local memory a thread from now on: the most that the contestant's kernels use."""
        self.local_kernel = next((n for n in LOCAL_BYTES if n >= local_bytes), LOCAL_BYTES[-1])
        self.local_covered = local_bytes <= LOCAL_BYTES[-1]

    def _function(self, name: str) -> Any:
        if name not in self._functions:
            self._functions[name] = api.cuModuleGetFunction(self.module, name.encode())
        return self._functions[name]

    def _launch(
        self,
        name: str,
        stream: Any,
        blocks: int,
        threads: int,
        *arguments: Any,
        shared: int = 0,
        together: bool = False,
    ) -> None:
        """Launch kernel ``name``; ``together`` demands that all blocks be resident at once."""
        addresses = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(a) for a in arguments))
        launch = api.cuLaunchCooperativeKernel if together else api.cuLaunchKernel
        tail = () if together else (0,)
        launch(
            self._function(name),
            blocks,
            1,
            1,
            threads,
            1,
            1,
            shared,
            stream,
            ctypes.addressof(addresses),
            *tail,
        )

    def _blocks(self, items: int, threads: int = 256) -> int:
        return max(1, min(-(-items // threads), 16 * self.multiprocessors))

    def fill(self, pointer: int, dtype: DType, parameters: Fill, stream: Any) -> None:
        """Write a tensor's values to ``pointer``."""
        blocks = self._blocks(-(-parameters.components // 4))
        self._launch(fill_kernel(dtype), stream, blocks, 256, ctypes.c_uint64(pointer), parameters)

    def evict(self, stream: Any, pattern: int) -> None:
        """Leave nothing of the contestant in L2, and no dirty line: write twice its size, write and
        then read another buffer of twice its size (so that neither can carry a message)."""
        words = ctypes.c_uint64(self.evict_bytes // 16)
        blocks = self._blocks(words.value)
        for buffer in (self._read, self._written):
            arguments = (ctypes.c_uint64(buffer), words, ctypes.c_uint32(pattern & 0xFFFFFFFF))
            self._launch("evict_write", stream, blocks, 256, *arguments)
        sink = ctypes.c_uint64(self._counters)
        self._launch("evict_read", stream, blocks, 256, ctypes.c_uint64(self._read), words, sink)

    def wipe(self, stream: Any, pattern: int) -> None:
        """Overwrite shared memory, registers and local memory of the whole device, and our counters."""
        api.cuMemsetD8Async(self._counters, 0, PAGE, stream)
        per_sm = self.threads_per_sm // 512
        jobs = (
            ("wipe_shared", self.multiprocessors, 1024, self.shared_bytes),
            (f"wipe_local_{self.local_kernel}", per_sm * self.multiprocessors, 512, 0),
        )
        for name, blocks, threads, shared in jobs:
            api.cuMemsetD32Async(self._counters, 0, 1, stream)
            arguments = (
                ctypes.c_uint64(self._counters),
                ctypes.c_uint32(blocks),
                ctypes.c_uint32(shared),
                ctypes.c_uint32(pattern & 0xFFFFFFFF),
            )
            self._launch(name, stream, blocks, threads, *arguments, shared=shared, together=True)

    # --- results of hash and count lie in slots of the counter page ------------------------------

    def clear_slots(self, stream: Any) -> None:
        api.cuMemsetD8Async(self._counters + 1024, 0, 3072, stream)

    def hash(self, slot: int, pointer: int, size: int, stream: Any) -> None:
        """Put the hash of ``size`` bytes at ``pointer`` into ``slot`` (0 .. 383)."""
        arguments = (ctypes.c_uint64(pointer), ctypes.c_uint64(size), self._slot(slot))
        self._launch("hash_bytes", stream, self._blocks(size // 8), 256, *arguments)

    def count_other(self, slot: int, pointer: int, size: int, value: int, stream: Any) -> None:
        """Count in ``slot`` the bytes at ``pointer`` that differ from the 16-bit pattern ``value``."""
        arguments = (
            ctypes.c_uint64(pointer),
            ctypes.c_uint64(size),
            ctypes.c_uint32(value),
            self._slot(slot),
        )
        self._launch("count_other", stream, self._blocks(size), 256, *arguments)

    def _slot(self, number: int) -> ctypes.c_uint64:
        if not 0 <= number < 384:
            raise ValueError(f"slot {number} is outside 0 .. 383")
        return ctypes.c_uint64(self._counters + 1024 + 8 * number)

    def slots(self, count: int, stream: Any) -> list[int]:
        """The first ``count`` slots' values; waits for ``stream``."""
        values = np.zeros(max(count, 1), np.uint64)
        api.cuMemcpyDtoHAsync(values.ctypes.data, self._counters + 1024, values.nbytes, stream)
        api.cuStreamSynchronize(stream)
        return [int(v) for v in values[:count]]

    def close(self) -> None:
        for pointer in (self._written, self._read, self._counters):
            api.cuMemFree(pointer)
        api.cuModuleUnload(self.module)
