"""cuBLASLt at its best: every algorithm that its heuristics offer is timed, and the fastest is kept.

``torch.mm`` takes the first answer of the heuristics; the list behind it holds faster ones often
enough that an opponent of record must be searched. The C library is called through ctypes on torch
tensors; the choice is remembered for the process and on disk, keyed by library version and GPU.
"""

from __future__ import annotations

import ctypes
import json
from dataclasses import dataclass
from typing import Any

from cudahercules import cache
from cudahercules.errors import MachineError

WORKSPACE_BYTES = 64 << 20
"""What an algorithm may use beside its operands; cuBLAS's own default on Hopper is 32 MiB."""
CANDIDATES = 64
"""Algorithms asked of the heuristics; usually 8 to 30 come back."""
SCREENING_RUNS, FINAL_RUNS, FINALISTS = 3, 12, 4
"""All are timed a few times, the best ones then more often."""
_ALGO_BYTES = 64
_R_32F, _R_64F, _R_16F, _R_16BF = 0, 1, 2, 14  # cudaDataType_t
_COMPUTE = {"32f": 68, "32f_fast_tf32": 77, "64f": 70}  # cublasComputeType_t
_SCALE = {"32f": _R_32F, "32f_fast_tf32": _R_32F, "64f": _R_64F}
_MAX_WORKSPACE = 1  # CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES
_POINTER = ctypes.c_void_p


class _Heuristic(ctypes.Structure):
    """``cublasLtMatmulHeuristicResult_t``."""

    _fields_ = (
        ("algo", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


def _library() -> Any:
    for name in ("libcublasLt.so.13", "libcublasLt.so.12"):
        try:
            return ctypes.CDLL(name)  # torch has loaded it from its own folder by now
        except OSError:
            continue
    raise MachineError("libcublasLt is not loaded: install a CUDA build of torch")


def _call(function: Any, *arguments: Any) -> None:
    status = function(*arguments)
    if status != 0:
        raise MachineError(f"{function.__name__} failed with cuBLAS status {status}")


@dataclass
class _Problem:
    """C (m by n) = A (m by k) B (k by n), all row-major and dense, as cuBLASLt sees it.

    The library counts in columns: its first operand is B read as n by k, its second A read as k by m.
    """

    library: Any
    handle: Any
    description: Any
    layouts: tuple[Any, Any, Any]
    scale: Any  # ctypes type of alpha and beta

    @classmethod
    def make(cls, a: Any, b: Any, compute: str) -> _Problem:
        import torch

        kinds = {
            torch.float32: _R_32F,
            torch.float64: _R_64F,
            torch.float16: _R_16F,
            torch.bfloat16: _R_16BF,
        }
        library = _library()
        (m, k), n = a.shape, b.shape[1]
        handle, description = _POINTER(), _POINTER()
        _call(library.cublasLtCreate, ctypes.byref(handle))
        _call(library.cublasLtMatmulDescCreate, ctypes.byref(description), _COMPUTE[compute], _SCALE[compute])
        layouts = []
        for rows, columns in ((n, k), (k, m), (n, m)):
            layout = _POINTER()
            size = (ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(rows))
            _call(library.cublasLtMatrixLayoutCreate, ctypes.byref(layout), kinds[a.dtype], *size)
            layouts.append(layout)
        scale = ctypes.c_double if compute == "64f" else ctypes.c_float
        return cls(library, handle, description, (layouts[0], layouts[1], layouts[2]), scale)

    def offers(self) -> list[_Heuristic]:
        """The algorithms that the heuristics offer, their best guess first."""
        preference = _POINTER()
        _call(self.library.cublasLtMatmulPreferenceCreate, ctypes.byref(preference))
        limit = ctypes.c_size_t(WORKSPACE_BYTES)
        _call(
            self.library.cublasLtMatmulPreferenceSetAttribute,
            preference,
            _MAX_WORKSPACE,
            ctypes.byref(limit),
            ctypes.c_size_t(ctypes.sizeof(limit)),
        )
        found, count = (_Heuristic * CANDIDATES)(), ctypes.c_int()
        first, second, result = self.layouts
        _call(
            self.library.cublasLtMatmulAlgoGetHeuristic,
            self.handle,
            self.description,
            first,
            second,
            result,
            result,
            preference,
            CANDIDATES,
            found,
            ctypes.byref(count),
        )
        self.library.cublasLtMatmulPreferenceDestroy(preference)
        return [h for h in found[: count.value] if h.state == 0]

    def run(self, a: Any, b: Any, c: Any, algorithm: Any, workspace: Any, stream: int) -> int:
        """Enqueue with one algorithm; returns the cuBLAS status."""
        one, zero = self.scale(1), self.scale(0)
        first, second, result = self.layouts
        out = _POINTER(c.data_ptr())
        return self.library.cublasLtMatmul(
            self.handle,
            self.description,
            ctypes.byref(one),
            _POINTER(b.data_ptr()),
            first,
            _POINTER(a.data_ptr()),
            second,
            ctypes.byref(zero),
            out,
            result,
            out,
            result,
            ctypes.byref(algorithm),
            _POINTER(workspace.data_ptr()),
            ctypes.c_size_t(WORKSPACE_BYTES),
            _POINTER(stream),
        )

    def close(self) -> None:
        for layout in self.layouts:
            self.library.cublasLtMatrixLayoutDestroy(layout)
        self.library.cublasLtMatmulDescDestroy(self.description)
        self.library.cublasLtDestroy(self.handle)


def version() -> str:
    library = _library()
    library.cublasLtGetVersion.restype = ctypes.c_size_t
    return str(library.cublasLtGetVersion())


_chosen: dict[str, bytes] = {}


def best_matmul(a: Any, b: Any, c: Any, compute: str = "32f"):
    """A function that enqueues ``c = a @ b`` on the current stream with the fastest algorithm.

    ``a`` (m by k), ``b`` (k by n) and ``c`` (m by n) are dense row-major CUDA tensors of one dtype;
    ``compute`` is ``32f`` (true single precision for fp32 operands), ``32f_fast_tf32`` or ``64f``.
    The first call for a shape searches (about a second); ``c`` is overwritten. Raises MachineError.
    """
    import torch

    problem = _Problem.make(a, b, compute)
    workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=a.device)
    key = cache.digest(
        "cublaslt 1", version(), torch.cuda.get_device_name(a.device), str(a.dtype), compute,
        f"{tuple(a.shape)} {tuple(b.shape)}",
    )  # fmt: skip
    if key not in _chosen:
        _chosen[key] = _remembered(key, lambda: _search(problem, a, b, c, workspace))
    algorithm = (ctypes.c_uint64 * 8).from_buffer_copy(_chosen[key])

    def run() -> None:
        stream = torch.cuda.current_stream(a.device).cuda_stream
        status = problem.run(a, b, c, algorithm, workspace, stream)
        if status != 0:
            raise MachineError(f"cublasLtMatmul failed with status {status}")

    return run


def _remembered(key: str, search: Any) -> bytes:
    """The algorithm of an earlier search from the cache, else that of ``search()``."""

    def make(directory: Any) -> None:
        algorithm, report = search()
        report = {"algorithm": algorithm.hex(), "tried": report}
        (directory / "algorithm.json").write_text(json.dumps(report, indent=1))

    directory, _ = cache.entry("cublaslt", key, make)
    return bytes.fromhex(json.loads((directory / "algorithm.json").read_text())["algorithm"])


def _search(problem: _Problem, a: Any, b: Any, c: Any, workspace: Any) -> tuple[bytes, list[float]]:
    """The fastest algorithm's 64 bytes, and the median microseconds of all that were tried."""
    offers = problem.offers()
    screened = [_median_us(problem, o.algo, a, b, c, workspace, SCREENING_RUNS) for o in offers]
    runnable = [i for i in sorted(range(len(offers)), key=screened.__getitem__) if screened[i] < float("inf")]
    if not runnable:
        raise MachineError("cuBLASLt offers no algorithm that runs for this problem")
    finalists = runnable[:FINALISTS]
    final = {i: _median_us(problem, offers[i].algo, a, b, c, workspace, FINAL_RUNS) for i in finalists}
    best = min(final, key=final.__getitem__)
    return bytes(offers[best].algo), [screened[i] for i in runnable]


def _median_us(problem: _Problem, algorithm: Any, a: Any, b: Any, c: Any, workspace: Any, runs: int) -> float:
    """Median microseconds of single runs with something else written in between (so that L2 is not
    full of the operands); infinity for an algorithm that does not run."""
    import torch

    stream = torch.cuda.current_stream(a.device)
    if problem.run(a, b, c, algorithm, workspace, stream.cuda_stream) != 0:
        return float("inf")
    times = []
    for _ in range(runs):
        workspace.zero_()
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record(stream)
        problem.run(a, b, c, algorithm, workspace, stream.cuda_stream)
        stop.record(stream)
        stop.synchronize()
        times.append(1000 * start.elapsed_time(stop))
    return sorted(times)[len(times) // 2]
