"""The panel for the backward pass of parallel layer normalisation. Everything is imported when it is called.

Each function prepares one workload and returns ``run``; see ``cudahercules.replay.interface``.
"""

from functools import cache
from pathlib import Path

_NAMES = ("dz0", "dz1", "dx", "x", "weight0", "weight1", "mean", "rstd")


def tuned(inputs, outputs, sizes, scalars):
    """Our own kernel in tuned.cu. An expert with a CUDA source of its name is built, recorded and
    replayed as a plan, exactly like a candidate; this function is never run on tensors."""
    return Path(__file__).with_name("tuned.cu")


def torch_compile(inputs, outputs, sizes, scalars):
    """The formula as torch.compile fuses it, autotuned."""
    import torch

    compiled = _compiled()

    def run():
        return compiled(*(inputs[name] for name in _NAMES))

    run.versions = {"torch": torch.__version__}
    return run


@cache
def _compiled():
    """Compiled once a process."""
    import torch

    return torch.compile(_backward, mode="max-autotune-no-cudagraphs", dynamic=False)


def _backward(dz0, dz1, dx, x, weight0, weight1, mean, rstd):
    mean, rstd = mean[:, None], rstd[:, None]
    d0, d1 = dz0.float(), dz1.float()
    normal = (x.float() - mean) * rstd
    gradient = d0 * weight0.float() + d1 * weight1.float()
    a = (gradient * normal).mean(dim=1, keepdim=True)
    b = gradient.mean(dim=1, keepdim=True)
    dtype = x.dtype
    return {
        "dx0": (dx.float() + rstd * (gradient - b - normal * a)).to(dtype),
        "dweight0": (d0 * normal).sum(dim=0).to(dtype),
        "dbias0": d0.sum(dim=0).to(dtype),
        "dweight1": (d1 * normal).sum(dim=0).to(dtype),
        "dbias1": d1.sum(dim=0).to(dtype),
    }


def torch_native(inputs, outputs, sizes, scalars):
    """PyTorch's own backward kernels, one call for each normalisation, and the sum of what they give."""
    import torch

    hidden, x = (sizes["hidden"],), inputs["x"]
    mean, rstd = inputs["mean"][:, None], inputs["rstd"][:, None]

    def backward(k):
        # The bias only says that its gradient is wanted.
        dz, weight = inputs[f"dz{k}"], inputs[f"weight{k}"]
        return torch.ops.aten.native_layer_norm_backward(
            dz, x, hidden, mean, rstd, weight, weight, (True, True, True)
        )

    def run():
        first, second = backward(0), backward(1)
        return {
            "dx0": (inputs["dx"] + first[0]).add_(second[0]),
            "dweight0": first[1],
            "dbias0": first[2],
            "dweight1": second[1],
            "dbias1": second[2],
        }

    run.versions = {"torch": torch.__version__}
    return run
