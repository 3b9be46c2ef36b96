"""The level-3 routines of cuBLAS that torch does not offer, on torch's own handle.

:func:`torch.cuda.current_blas_handle` gives a handle whose stream is torch's current one and whose workspace
survives capture into a CUDA graph, so that experts call these inside ``run``. All matrices are dense and
row-major. The library counts in columns: it sees every matrix transposed, a lower triangle as an upper one.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

from cudahercules.errors import MachineError

_UPPER, _RIGHT, _PLAIN, _TRANSPOSED, _DIAGONAL_READ = 1, 1, 0, 1, 0  # cublas_api.h
_SUM_32F, _DEFAULT = 68, -1  # cublasComputeType_t, cublasGemmAlgo_t
_KINDS = {"torch.float16": 2, "torch.bfloat16": 14}  # cudaDataType_t
_REALS = {"torch.float32": ("S", ctypes.c_float), "torch.float64": ("D", ctypes.c_double)}


def syrk_lower(a: Any, c: Any, alpha: float, beta: float) -> None:
    """Lower triangle of ``c`` (n by n) = alpha a a^T + beta c for ``a`` (n by k), fp32 or fp64.

    The triangle above the diagonal is neither read nor written. Raises MachineError."""
    letter, real = _REALS[str(a.dtype)]
    (n, k), one, other = a.shape, real(alpha), real(beta)
    _call(
        f"cublas{letter}syrk_v2",
        *(_UPPER, _TRANSPOSED, n, k, ctypes.byref(one)),
        *(_place(a), k, ctypes.byref(other), _place(c), n),
    )


def trmm_lower(a: Any, b: Any, c: Any, alpha: float) -> None:
    """``c`` = alpha tril(a) b for ``a`` (m by m), ``b`` and ``c`` (m by n), fp32 or fp64.

    What ``a`` holds above its diagonal is not read. Raises MachineError."""
    letter, real = _REALS[str(a.dtype)]
    (m, n), scale = b.shape, real(alpha)
    _call(
        f"cublas{letter}trmm_v2",
        *(_RIGHT, _UPPER, _PLAIN, _DIAGONAL_READ, n, m, ctypes.byref(scale)),
        *(_place(a), m, _place(b), n, _place(c), n),
    )


def complex_product_in_three(a: Any, b: Any, c: Any) -> None:
    """``c`` = a b for complex64 matrices, by three real products instead of four. Raises MachineError."""
    (m, k), n = a.shape, b.shape[1]
    one, zero = (ctypes.c_float * 2)(1.0, 0.0), (ctypes.c_float * 2)(0.0, 0.0)
    _call(
        "cublasCgemm3m",
        *(_PLAIN, _PLAIN, n, m, k, one),
        *(_place(b), n, _place(a), k, zero, _place(c), n),
    )


def products_of_pointers(a: Any, b: Any, c: Any, shape: tuple[int, int, int], dtype: Any) -> None:
    """``batch`` products c = a b, sums in fp32. ``a``, ``b``, ``c`` are int64 tensors of ``batch`` addresses
    of dense matrices, m by k, k by n and m by n (``shape`` is m, n, k), fp16 or bf16. Raises MachineError."""
    (m, n, k), kind = shape, _KINDS[str(dtype)]
    one, zero = ctypes.c_float(1.0), ctypes.c_float(0.0)
    _call(
        "cublasGemmBatchedEx",
        *(_PLAIN, _PLAIN, n, m, k, ctypes.byref(one)),
        *(_place(b), kind, n, _place(a), kind, k, ctypes.byref(zero), _place(c), kind, n),
        *(a.shape[0], _SUM_32F, _DEFAULT),
    )


def version() -> str:
    """The version of the library that torch has loaded."""
    number = ctypes.c_int()
    _call("cublasGetVersion_v2", ctypes.byref(number))
    return str(number.value)


def _place(tensor: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


def _call(name: str, *arguments: Any) -> None:
    import torch

    handle = ctypes.c_void_p(torch.cuda.current_blas_handle())
    status = getattr(_library(), name)(handle, *arguments)
    if status != 0:
        raise MachineError(f"{name} failed with cuBLAS status {status}")


@lru_cache(maxsize=1)
def _library() -> Any:
    """The libcublas that torch has loaded; another copy would not know its handle."""
    with open("/proc/self/maps") as maps:
        loaded = {line.split()[-1] for line in maps if "libcublas.so" in line}
    if not loaded:
        raise MachineError("torch has loaded no libcublas.so: experts of cuBLAS need a CUDA build of torch")
    return ctypes.CDLL(loaded.pop())
