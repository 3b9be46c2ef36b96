"""The panel for softmax. Everything is imported when it is called.

Each function prepares one workload and returns ``run``; see ``cudahercules.replay.interface``.
"""

from functools import cache
from pathlib import Path


def tuned(inputs, outputs, sizes, scalars):
    """Our own kernels in tuned.cu. An expert with a CUDA source of its name is built, recorded and
    replayed as a plan, exactly like a candidate; this function is never run on tensors."""
    return Path(__file__).with_name("tuned.cu")


def liger_softmax(inputs, outputs, sizes, scalars):
    """Liger's Triton kernels: one program a row, in one block up to 65536 elements, else online."""
    import torch
    from liger_kernel.ops import softmax

    if sizes["columns"] > 65536 and not hasattr(softmax, "MAX_FUSED_SIZE"):
        raise NotImplementedError("this version of Liger's softmax takes rows of up to 65536 elements")
    x = inputs["x"]

    def run():
        return {"y": softmax._softmax_forward(x)[0]}

    run.versions = {"torch": torch.__version__, "liger-kernel": _version("liger-kernel")}
    return run


def quack_softmax(inputs, outputs, sizes, scalars):
    """quack's CuTe-DSL kernel, compiled for the row length: long rows are split over a cluster of blocks
    and stay in their shared memory. Rows must be whole numbers of 16-byte vectors."""
    x, y = inputs["x"], outputs["y"]
    if sizes["columns"] * x.element_size() % 16:
        raise NotImplementedError("quack's softmax wants rows of whole 16-byte vectors")
    import torch
    from quack.softmax import _softmax_fwd

    def run():
        _softmax_fwd(x, y)

    run.versions = {"torch": torch.__version__, "quack-kernels": _version("quack-kernels")}
    return run


def torch_compile(inputs, outputs, sizes, scalars):
    """torch.softmax as torch.compile lowers it: one reduction kernel, autotuned."""
    import torch

    compiled = _compiled()
    x = inputs["x"]

    def run():
        return {"y": compiled(x)}

    run.versions = {"torch": torch.__version__, "triton": _version("triton")}
    return run


@cache
def _compiled():
    """Compiled once a process; every shape specialises it."""
    import torch

    return torch.compile(lambda x: torch.softmax(x, -1), mode="max-autotune-no-cudagraphs", dynamic=False)


def torch_softmax(inputs, outputs, sizes, scalars):
    """PyTorch's CUDA kernels: a warp a row up to 1024 elements, a block a row above."""
    import torch

    x, y = inputs["x"], outputs["y"]

    def run():
        torch.softmax(x, dim=-1, out=y)

    run.versions = {"torch": torch.__version__}
    return run


def _version(distribution):
    """The installed version, for the record."""
    from importlib.metadata import version

    return version(distribution)
