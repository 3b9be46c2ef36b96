"""The panel for the backward pass of layer normalisation. Everything is imported when it is called.

Each function prepares one workload and returns ``run``; see ``cudahercules.replay.interface``.
"""

from functools import cache
from pathlib import Path


def tuned(inputs, outputs, sizes, scalars):
    """Our own kernel in tuned.cu. An expert with a CUDA source of its name is built, recorded and
    replayed as a plan, exactly like a candidate; this function is never run on tensors."""
    return Path(__file__).with_name("tuned.cu")


def liger_layer_norm(inputs, outputs, sizes, scalars):
    """Liger's Triton kernel: one program a multiprocessor, its column sums in registers, then torch.sum."""
    import torch
    from liger_kernel.ops.layer_norm import layer_norm_backward

    dy, x, weight, mean, rstd = (inputs[name] for name in ("dy", "x", "weight", "mean", "rstd"))

    def run():
        # Liger asks for the bias only to learn its type.
        dx, dweight, dbias = layer_norm_backward(dy, x, weight, weight, mean, rstd)
        return {"dx": dx, "dweight": dweight, "dbias": dbias}

    run.versions = {"torch": torch.__version__}
    return run


def torch_compile(inputs, outputs, sizes, scalars):
    """native_layer_norm_backward as torch.compile lowers it, autotuned."""
    import torch

    compiled = _compiled(sizes["hidden"])

    def run():
        return _named(compiled(*(inputs[name] for name in ("dy", "x", "weight", "mean", "rstd"))))

    run.versions = {"torch": torch.__version__}
    return run


@cache
def _compiled(hidden):
    """Compiled once a process."""
    import torch

    return torch.compile(_backward(hidden), mode="max-autotune-no-cudagraphs", dynamic=False)


def torch_native(inputs, outputs, sizes, scalars):
    """PyTorch's own CUDA kernels, eager."""
    import torch

    backward = _backward(sizes["hidden"])

    def run():
        return _named(backward(*(inputs[name] for name in ("dy", "x", "weight", "mean", "rstd"))))

    run.versions = {"torch": torch.__version__}
    return run


def _backward(hidden):
    """PyTorch's operator as a function of (dy, x, weight, mean, rstd) that gives (dx, dweight, dbias)."""
    import torch

    def backward(dy, x, weight, mean, rstd):
        # The bias only says that its gradient is wanted.
        return torch.ops.aten.native_layer_norm_backward(
            dy, x, (hidden,), mean[:, None], rstd[:, None], weight, weight, (True, True, True)
        )

    return backward


def _named(gradients):
    return dict(zip(("dx", "dweight", "dbias"), gradients, strict=True))
