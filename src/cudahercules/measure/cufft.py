"""cuFFT by its own interface, for experts: a plan is made, with its scratch, before anything is timed.

The library is the one that torch has loaded. Arrays are dense; transforms lie one behind the other.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any

_KINDS = {
    ("complex64", "complex64"): (0x29, "cufftExecC2C", True),
    ("complex128", "complex128"): (0x69, "cufftExecZ2Z", True),
    ("float32", "complex64"): (0x2A, "cufftExecR2C", False),
}
"""CUFFT_C2C, CUFFT_Z2Z and CUFFT_R2C of cufft.h, the function that executes such a plan, and whether that
takes a direction."""
_FORWARD = -1


def forward(x: Any, y: Any, lengths: tuple[int, ...]) -> Callable[[], None]:
    """A function that transforms ``x`` into ``y`` (torch tensors on the GPU, out of place) on torch's current
    stream, forward and without normalisation, over the last axes, whose real lengths ``lengths`` are.

    complex64 and complex128 to themselves; float32 to complex64 of length // 2 + 1 in the last axis. The plan
    lives as long as the function. Raises NotImplementedError without a cuFFT of CUDA 12 or 13, RuntimeError
    with the status if cuFFT refuses."""
    import torch

    library = _library()
    kind, execute, has_direction = _KINDS[_name(x), _name(y)]
    plan, sizes = ctypes.c_int(), (ctypes.c_int * len(lengths))(*lengths)
    batch = x.numel() // math.prod(lengths)
    # No embedding: cuFFT then takes the dense layouts from the lengths, and ignores strides and distances.
    _call(
        library.cufftPlanMany,
        *(ctypes.byref(plan), len(lengths), sizes),
        *(None, 1, 0, None, 1, 0),
        *(kind, batch),
    )
    source, target = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
    direction = (_FORWARD,) if has_direction else ()

    def run() -> None:
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        _call(library.cufftSetStream, plan, stream)
        _call(getattr(library, execute), plan, source, target, *direction)

    version = ctypes.c_int()
    _call(library.cufftGetVersion, ctypes.byref(version))
    run.versions = {"cufft": str(version.value), "torch": torch.__version__}  # type: ignore[attr-defined]
    run.plan = _Plan(library, plan)  # type: ignore[attr-defined]
    return run


class _Plan:
    """Destroys the plan, and so frees its scratch, when the expert goes."""

    def __init__(self, library: Any, plan: ctypes.c_int):
        self._library, self._plan = library, plan

    def __del__(self) -> None:
        self._library.cufftDestroy(self._plan)


def _name(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _library() -> Any:
    """The cuFFT that torch has loaded; without one there is no expert."""
    import torch

    torch.fft.fft(torch.zeros(2, dtype=torch.complex64, device="cuda"))  # loads it, if nothing has yet
    for name in ("libcufft.so.12", "libcufft.so.11"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise NotImplementedError("libcufft 11 or 12 is not loaded: this torch is no CUDA build of that age")


def _call(function: Any, *arguments: Any) -> None:
    status = function(*arguments)
    if status != 0:
        raise RuntimeError(f"{function.__name__} failed with cuFFT status {status}")
