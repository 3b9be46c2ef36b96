"""cuBLASLt at its best: every algorithm that its heuristics offer is timed, and the fastest is kept.

``torch.mm`` takes the first answer of the heuristics; the list behind it holds faster ones often
enough that an opponent of record must be searched. The C library is called through ctypes on device
addresses and timed with the driver's events, so that torch is not needed; the choice is remembered
for the process and on disk, keyed by library version and GPU.
"""

from __future__ import annotations

import ctypes
import json
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import lru_cache
from pathlib import Path
from typing import Any

from cudahercules import cache
from cudahercules.errors import MachineError
from cudahercules.replay.driver import api
from cudahercules.task.model import DType

WORKSPACE_BYTES = 64 << 20
"""What an algorithm may use beside its operands; cuBLAS's own default on Hopper is 32 MiB."""
CANDIDATES = 64
"""Algorithms asked of the heuristics; usually 8 to 30 come back."""
SCREENING_RUNS, FINAL_RUNS, FINALISTS = 3, 12, 4
"""All are timed a few times, the best ones then more often."""
_R_32F, _R_64F, _R_16F, _R_8I, _R_16BF, _R_8F_E4M3 = 0, 1, 2, 3, 14, 28  # cudaDataType_t
_KINDS = {
    DType.FP8_E4M3: _R_8F_E4M3,
    DType.INT8: _R_8I,
    DType.FP32: _R_32F,
    DType.TF32: _R_32F,
    DType.FP64: _R_64F,
    DType.FP16: _R_16F,
    DType.BF16: _R_16BF,
}
_COMPUTE = {"32f": 68, "32f_fast_tf32": 77, "64f": 70, "32i": 72}  # cublasComputeType_t
_SCALE = {"32f": _R_32F, "32f_fast_tf32": _R_32F, "64f": _R_64F, "32i": _R_32F}
_MAX_WORKSPACE = 1  # CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES
_TRANSPOSE_FIRST, _TRANSPOSE_SECOND, _FAST_SUMS = 3, 4, 25  # CUBLASLT_MATMUL_DESC_TRANSA, _B, _FAST_ACCUM
_EPILOGUE, _BIAS_PLACE = 7, 8  # CUBLASLT_MATMUL_DESC_EPILOGUE, _BIAS_POINTER
_SUMS_OF_SECOND = 512  # CUBLASLT_EPILOGUE_BGRADB: sums of the second operand along k, in the bias
_FIRST_SCALE, _SECOND_SCALE = (17, 31), (18, 32)  # _A_SCALE_POINTER and _A_SCALE_MODE, the same of B
_BATCH_COUNT, _BATCH_STRIDE = 5, 6  # CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, _STRIDED_BATCH_OFFSET
_POINTER = ctypes.c_void_p


class Scaled(IntEnum):
    """What one fp32 scale of an FP8 operand is for (``cublasLtMatmulMatrixScale_t``): the whole matrix,
    a row, 128 elements of a row, or 128 by 128 elements. Scales of ``ROW_PIECE`` lie with rows contiguous,
    those of ``BLOCK`` with blocks along k contiguous, at a pitch that is a multiple of 4."""

    MATRIX = 0
    ROW = 3
    ROW_PIECE = 4
    BLOCK = 5


class _Heuristic(ctypes.Structure):
    """``cublasLtMatmulHeuristicResult_t``."""

    _fields_ = (
        ("algo", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


_VERSIONS = ("13", "12")


@lru_cache(maxsize=1)
def _library() -> Any:
    """The C library: the one that is loaded already, else that of NVIDIA's wheels, of a toolkit or of
    the system. Raises MachineError."""
    for name in (*_loaded(), *_in_wheels(), *(f"libcublasLt.so.{v}" for v in _VERSIONS), *_in_toolkit()):
        try:
            return ctypes.CDLL(str(name))
        except OSError:
            continue
    raise MachineError("libcublasLt.so is not found: pip install nvidia-cublas (it comes with torch, too)")


def _loaded() -> Iterator[str]:
    """What this process has mapped (torch loads its own), by path."""
    with open("/proc/self/maps") as maps:
        yield from {line.split()[-1] for line in maps if "libcublasLt.so" in line}


def _in_wheels() -> Iterator[Path]:
    for entry in sys.path:
        for folder in ("nvidia/cu13/lib", "nvidia/cublas/lib"):
            yield from (
                p for v in _VERSIONS if (p := Path(entry or ".", folder, f"libcublasLt.so.{v}")).is_file()
            )


def _in_toolkit() -> Iterator[Path]:
    from cudahercules.build.toolchain import find_toolchain

    root = find_toolchain().root
    for folder in ("lib64", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"):
        yield from (p for v in _VERSIONS if (p := root / folder / f"libcublasLt.so.{v}").is_file())


def _call(function: Any, *arguments: Any) -> None:
    status = function(*arguments)
    if status != 0:
        raise MachineError(f"{function.__name__} failed with cuBLAS status {status}")


@dataclass(frozen=True)
class Product:
    """C (m by n) = A (m by k) B (k by n), all row-major and dense with elements of ``dtype``.
    ``compute`` is ``32f`` (true single precision for fp32 operands), ``32f_fast_tf32``, ``64f`` or ``32i``.

    ``transposed``: B is stored n by k, and C = A B^T. ``batch`` such products lie one after the other.
    ``result`` is C's type where it is another. ``scaled``: operands are FP8, with scales of A and of B.
    ``alpha`` multiplies the product. ``first_transposed``: A is stored k by m, and C = A^T B. ``sums``: those
    of A along k are made beside the product."""

    m: int
    n: int
    k: int
    dtype: DType
    compute: str = "32f"
    transposed: bool = False
    batch: int = 1
    result: DType | None = None
    scaled: tuple[Scaled, Scaled] | None = None
    alpha: float = 1.0
    first_transposed: bool = False
    sums: bool = False


@dataclass
class _Problem:
    """A product as cuBLASLt sees it.

    The library counts in columns: its first operand is B read as n by k, its second A read as k by m.
    """

    library: Any
    handle: Any
    description: Any
    layouts: tuple[Any, Any, Any]  # first and second operand, result
    addend: Any  # its layout where its type is not the result's: beta is 0, but types are checked; else None
    alpha: Any  # of the ctypes type of alpha and beta

    @classmethod
    def make(cls, p: Product) -> _Problem:
        library = _library()
        handle, description = _POINTER(), _POINTER()
        _call(library.cublasLtCreate, ctypes.byref(handle))
        kinds = (_COMPUTE[p.compute], _SCALE[p.compute])
        _call(library.cublasLtMatmulDescCreate, ctypes.byref(description), *kinds)
        if p.transposed:
            _set(library.cublasLtMatmulDescSetAttribute, description, _TRANSPOSE_FIRST, ctypes.c_int32(1))
        if p.first_transposed:
            _set(library.cublasLtMatmulDescSetAttribute, description, _TRANSPOSE_SECOND, ctypes.c_int32(1))
        result = p.result or p.dtype
        first = _layout(library, p.dtype, *((p.k, p.n) if p.transposed else (p.n, p.k)), p.batch)
        second = _layout(library, p.dtype, *((p.m, p.k) if p.first_transposed else (p.k, p.m)), p.batch)
        layouts = (first, second, _layout(library, result, p.n, p.m, p.batch))
        other = result is DType.FP8_E4M3
        addend = _layout(library, DType.BF16, p.n, p.m, p.batch) if other else None
        scale = ctypes.c_double if p.compute == "64f" else ctypes.c_float
        return cls(library, handle, description, layouts, addend, scale(p.alpha))

    def scale_by(self, scaled: tuple[Scaled, Scaled], places: Places) -> None:
        """Take the operands' scales from ``places``. Sums stay in the tensor core unless scales change
        along k."""
        describe = self.library.cublasLtMatmulDescSetAttribute
        for (pointer, mode), kind, place in (
            (_FIRST_SCALE, scaled[1], places.b_scale),
            (_SECOND_SCALE, scaled[0], places.a_scale),
        ):
            _set(describe, self.description, mode, ctypes.c_int32(kind))
            _set(describe, self.description, pointer, _POINTER(place))
        if scaled[0] in (Scaled.MATRIX, Scaled.ROW):
            _set(describe, self.description, _FAST_SUMS, ctypes.c_int8(1))

    def sum_into(self, place: int) -> None:
        """Leave the sums of A along k at ``place``, m of them in C's type."""
        describe = self.library.cublasLtMatmulDescSetAttribute
        _set(describe, self.description, _EPILOGUE, ctypes.c_int32(_SUMS_OF_SECOND))
        _set(describe, self.description, _BIAS_PLACE, _POINTER(place))

    def offers(self) -> list[_Heuristic]:
        """The algorithms that the heuristics offer, their best guess first."""
        preference = _POINTER()
        _call(self.library.cublasLtMatmulPreferenceCreate, ctypes.byref(preference))
        limit = ctypes.c_uint64(WORKSPACE_BYTES)
        _set(self.library.cublasLtMatmulPreferenceSetAttribute, preference, _MAX_WORKSPACE, limit)
        found, count = (_Heuristic * CANDIDATES)(), ctypes.c_int()
        first, second, result = self.layouts
        _call(
            self.library.cublasLtMatmulAlgoGetHeuristic,
            self.handle,
            self.description,
            first,
            second,
            self.addend or result,
            result,
            preference,
            CANDIDATES,
            found,
            ctypes.byref(count),
        )
        self.library.cublasLtMatmulPreferenceDestroy(preference)
        return [h for h in found[: count.value] if h.state == 0]

    def run(self, places: Places, algorithm: Any, stream: int) -> int:
        """Enqueue with one algorithm; returns the cuBLAS status."""
        zero = type(self.alpha)(0)
        first, second, result = self.layouts
        out = _POINTER(places.c)
        return self.library.cublasLtMatmul(
            self.handle,
            self.description,
            ctypes.byref(self.alpha),
            _POINTER(places.b),
            first,
            _POINTER(places.a),
            second,
            ctypes.byref(zero),
            None if self.addend else out,
            self.addend or result,
            out,
            result,
            ctypes.byref(algorithm),
            _POINTER(places.workspace),
            ctypes.c_size_t(WORKSPACE_BYTES),
            _POINTER(stream),
        )

    def close(self) -> None:
        for layout in (*self.layouts, *([self.addend] if self.addend else [])):
            self.library.cublasLtMatrixLayoutDestroy(layout)
        self.library.cublasLtMatmulDescDestroy(self.description)
        self.library.cublasLtDestroy(self.handle)


def _set(function: Any, thing: Any, attribute: int, value: Any) -> None:
    """Set one attribute of a description or a layout."""
    _call(function, thing, attribute, ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value)))


def _layout(library: Any, kind: DType, rows: int, columns: int, batch: int) -> Any:
    """``batch`` dense column-major matrices, one after the other."""
    layout = _POINTER()
    size = (ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(rows))
    _call(library.cublasLtMatrixLayoutCreate, ctypes.byref(layout), _KINDS[kind], *size)
    if batch > 1:
        change = library.cublasLtMatrixLayoutSetAttribute
        _set(change, layout, _BATCH_COUNT, ctypes.c_int32(batch))
        _set(change, layout, _BATCH_STRIDE, ctypes.c_int64(rows * columns))
    return layout


@dataclass(frozen=True)
class Places:
    """Device addresses of operands, result, WORKSPACE_BYTES of workspace; of scales and sums if there are."""

    a: int
    b: int
    c: int
    workspace: int
    a_scale: int = 0
    b_scale: int = 0
    sums: int = 0


def version() -> str:
    library = _library()
    library.cublasLtGetVersion.restype = ctypes.c_size_t
    return str(library.cublasLtGetVersion())


_chosen: dict[str, bytes] = {}


def searched(product: Product, places: Places, stream: int) -> Callable[[int], None]:
    """A function that enqueues the product on a stream with the fastest algorithm.

    The first call for a shape searches on ``stream`` (about a second); the result is overwritten.
    Needs a current context. Raises MachineError. ``close()`` of the function frees the library's handle.
    """
    problem = _Problem.make(product)
    if product.scaled:
        problem.scale_by(product.scaled, places)
    if product.sums:
        problem.sum_into(places.sums)
    key = cache.digest("cublaslt 3", version(), _device_name(), repr(product))
    if key not in _chosen:
        _chosen[key] = _remembered(key, lambda: _search(problem, places, stream))
    algorithm = (ctypes.c_uint64 * 8).from_buffer_copy(_chosen[key])

    def run(on: int) -> None:
        status = problem.run(places, algorithm, on)
        if status != 0:
            raise MachineError(f"cublasLtMatmul failed with status {status}")

    run.close = problem.close  # type: ignore[attr-defined]
    return run


def best_product(a: Any, b: Any, c: Any, compute: str = "32f") -> Callable[[int], None]:
    """``c = a @ b`` for :class:`cudahercules.replay.library.DeviceTensor` places: what an expert without
    torch returns. With three axes, the first counts products that lie one after the other."""
    *batch, m, k = a.shape
    product = Product(m, b.shape[-1], k, a.dtype, compute, batch=math.prod(batch))
    return _searched_on_the_device(product, a, b, c)


def best_scaled_product(
    a: Any, b: Any, c: Any, scales: tuple[Any, Any], scaled: tuple[Scaled, Scaled]
) -> Callable[[int], None]:
    """``c = (a * scale) @ (b * scale)^T`` for FP8 operands, places as above: a is m by k, b is n by k.
    ``scales`` are the places of a's and b's, ``scaled`` says what one of each is for."""
    (m, k), n = a.shape, b.shape[0]
    product = Product(m, n, k, a.dtype, transposed=True, result=c.dtype, scaled=scaled)
    return _searched_on_the_device(product, a, b, c, *scales)


def best_integer_product(a: Any, b: Any, c: Any, scale: float) -> Callable[[int], None]:
    """``c = scale * a @ b^T`` for INT8 places as above, summed in 32 bits, then rounded and saturated:
    a is m by k, b is n by k."""
    (m, k), n = a.shape, b.shape[0]
    product = Product(m, n, k, a.dtype, "32i", transposed=True, alpha=scale)
    return _searched_on_the_device(product, a, b, c)


def best_product_with_sums(a: Any, b: Any, c: Any, sums: Any) -> Callable[[int], None]:
    """``c = a^T @ b`` and ``sums = a.sum(0)`` for places as above: a is k by m, b is k by n, and c and sums
    have their type."""
    (k, m), n = a.shape, b.shape[1]
    product = Product(m, n, k, a.dtype, first_transposed=True, sums=True)
    return _searched_on_the_device(product, a, b, c, sums=sums)


def _searched_on_the_device(
    product: Product, a: Any, b: Any, c: Any, *scales: Any, sums: Any = None
) -> Callable[[int], None]:
    workspace = int(api.cuMemAlloc(WORKSPACE_BYTES))
    stream = api.cuStreamCreate(1)
    places = Places(a.pointer, b.pointer, c.pointer, workspace, *(s.pointer for s in scales))
    if sums is not None:
        places = replace(places, sums=sums.pointer)
    try:
        run = searched(product, places, int(stream))
    except BaseException:
        api.cuMemFree(workspace)
        raise
    finally:
        api.cuStreamDestroy(stream)
    destroy = run.close  # type: ignore[attr-defined]

    def close() -> None:
        destroy()
        api.cuMemFree(workspace)

    run.close = close  # type: ignore[attr-defined]
    run.versions = {"cublasLt": version()}  # type: ignore[attr-defined]
    return run


def best_matmul(
    a: Any, b: Any, c: Any, compute: str = "32f", *, transposed: bool = False
) -> Callable[[], None]:
    """The same for CUDA tensors of torch, on torch's current stream: for experts that go on in torch.

    ``a`` (m by k), ``b`` (k by n) and ``c`` (m by n) are dense, row-major and of one dtype.
    ``transposed``: b is n by k, and c = a b^T."""
    import torch

    names = {"float32": DType.FP32, "float64": DType.FP64, "float16": DType.FP16, "bfloat16": DType.BF16}
    (m, k), n = a.shape, b.shape[0 if transposed else 1]
    workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=a.device)
    places = Places(a.data_ptr(), b.data_ptr(), c.data_ptr(), workspace.data_ptr())
    dtype = names[str(a.dtype).removeprefix("torch.")]
    product = Product(m, n, k, dtype, compute, transposed=transposed)
    product_on = searched(product, places, torch.cuda.current_stream(a.device).cuda_stream)

    def run() -> None:
        product_on(torch.cuda.current_stream(a.device).cuda_stream)

    run.kept = workspace  # type: ignore[attr-defined]
    return run


def _device_name() -> str:
    return bytes(api.cuDeviceGetName(256, api.cuCtxGetDevice())).split(b"\0")[0].decode()


def _remembered(key: str, search: Any) -> bytes:
    """The algorithm of an earlier search from the cache, else that of ``search()``."""

    def make(directory: Any) -> None:
        algorithm, report = search()
        report = {"algorithm": algorithm.hex(), "tried": report}
        (directory / "algorithm.json").write_text(json.dumps(report, indent=1))

    directory, _ = cache.entry("cublaslt", key, make)
    return bytes.fromhex(json.loads((directory / "algorithm.json").read_text())["algorithm"])


def _search(problem: _Problem, places: Places, stream: int) -> tuple[bytes, list[float]]:
    """The fastest algorithm's 64 bytes, and the median microseconds of all that were tried."""
    offers = problem.offers()
    screened = [_median_us(problem, o.algo, places, stream, SCREENING_RUNS) for o in offers]
    runnable = [i for i in sorted(range(len(offers)), key=screened.__getitem__) if screened[i] < float("inf")]
    if not runnable:
        raise MachineError("cuBLASLt offers no algorithm that runs for this problem")
    finalists = runnable[:FINALISTS]
    final = {i: _median_us(problem, offers[i].algo, places, stream, FINAL_RUNS) for i in finalists}
    best = min(final, key=final.__getitem__)
    return bytes(offers[best].algo), [screened[i] for i in runnable]


def _median_us(problem: _Problem, algorithm: Any, places: Places, stream: int, runs: int) -> float:
    """Median microseconds of single runs with something else written in between (so that L2 is not
    full of the operands); infinity for an algorithm that does not run."""
    if problem.run(places, algorithm, stream) != 0:
        return float("inf")
    on = api.CUstream(stream)
    start, stop = api.cuEventCreate(0), api.cuEventCreate(0)
    times = []
    for _ in range(runs):
        api.cuMemsetD8Async(places.workspace, 0, WORKSPACE_BYTES, on)
        api.cuEventRecord(start, on)
        problem.run(places, algorithm, stream)
        api.cuEventRecord(stop, on)
        api.cuEventSynchronize(stop)
        times.append(1000 * float(api.cuEventElapsedTime(start, stop)))
    api.cuEventDestroy(start)
    api.cuEventDestroy(stop)
    return sorted(times)[len(times) // 2]
