"""The panel for Fourier transforms: cuFFT twice. Everything is imported when it is called.

Each function prepares one workload and returns ``run``; see ``cudahercules.replay.interface``.
"""

import ctypes

_TYPES = {"torch.complex64": (0x29, "cufftExecC2C"), "torch.complex128": (0x69, "cufftExecZ2Z")}
"""CUFFT_C2C and CUFFT_Z2Z of cufft.h, each with the function that executes such a plan."""
_FORWARD = -1


def cufft_planned(inputs, outputs, sizes, scalars):
    """cuFFT by its own interface, out of place; the plan and its scratch are made before timing."""
    import torch

    x, y = inputs["x"], outputs["y"]
    library = _library()
    kind, execute = _TYPES[str(x.dtype)]
    plan, length = ctypes.c_int(), ctypes.c_int(sizes["length"])
    _call(
        library.cufftPlanMany,
        *(ctypes.byref(plan), 1, ctypes.byref(length)),
        *(None, 1, sizes["length"]),  # no embedding: dense signals one behind the other
        *(None, 1, sizes["length"]),
        *(kind, sizes["batch"]),
    )
    source, target = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())

    def run():
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        _call(library.cufftSetStream, plan, stream)
        _call(getattr(library, execute), plan, source, target, _FORWARD)

    version = ctypes.c_int()
    _call(library.cufftGetVersion, ctypes.byref(version))
    run.versions = {"cufft": str(version.value), "torch": torch.__version__}
    run.plan = _Plan(library, plan)
    return run


class _Plan:
    """Destroys the plan, and so frees its scratch, when the expert goes."""

    def __init__(self, library, plan):
        self._library, self._plan = library, plan

    def __del__(self):
        self._library.cufftDestroy(self._plan)


def _library():
    """The cuFFT that torch has loaded; without one there is no expert."""
    import torch

    torch.fft.fft(torch.zeros(2, dtype=torch.complex64, device="cuda"))  # loads it, if nothing has yet
    for name in ("libcufft.so.12", "libcufft.so.11"):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise NotImplementedError("libcufft 11 or 12 is not loaded: this torch is no CUDA build of that age")


def _call(function, *arguments):
    status = function(*arguments)
    if status != 0:
        raise RuntimeError(f"{function.__name__} failed with cuFFT status {status}")


def torch_fft(inputs, outputs, sizes, scalars):
    """torch.fft.fft into the output; torch keeps the plan in a cache after the first call."""
    import torch

    x, y = inputs["x"], outputs["y"]

    def run():
        torch.fft.fft(x, dim=-1, out=y)

    run.versions = {"torch": torch.__version__}
    return run
