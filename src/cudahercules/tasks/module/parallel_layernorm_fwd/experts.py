"""The panel for the forward pass of parallel layer normalisation. Everything is imported when it is called.

Each function prepares one workload and returns ``run``; see ``cudahercules.replay.interface``.
"""

from functools import cache
from pathlib import Path

_NAMES = ("x0", "residual", "weight0", "bias0", "weight1", "bias1")


def tuned(inputs, outputs, sizes, scalars):
    """Our own kernel in tuned.cu. An expert with a CUDA source of its name is built, recorded and
    replayed as a plan, exactly like a candidate; this function is never run on tensors."""
    return Path(__file__).with_name("tuned.cu")


def torch_compile(inputs, outputs, sizes, scalars):
    """The formula as torch.compile fuses it: one reduction kernel, autotuned."""
    import torch

    compiled = _compiled(sizes["hidden"], scalars["eps"])

    def run():
        return compiled(*(inputs[name] for name in _NAMES))

    run.versions = {"torch": torch.__version__}
    return run


@cache
def _compiled(hidden, eps):
    """Compiled once a process and eps."""
    import torch

    return torch.compile(_forward(hidden, eps), mode="max-autotune-no-cudagraphs", dynamic=False)


def torch_native(inputs, outputs, sizes, scalars):
    """The same operators one by one: a sum in fp32, PyTorch's layer norm, two scales."""
    import torch

    forward = _forward(sizes["hidden"], scalars["eps"])

    def run():
        return forward(*(inputs[name] for name in _NAMES))

    run.versions = {"torch": torch.__version__}
    return run


def _forward(hidden, eps):
    import torch

    def forward(x0, residual, weight0, bias0, weight1, bias1):
        total = x0.float() + residual.float()
        normal, mean, rstd = torch.native_layer_norm(total, (hidden,), None, None, eps)
        return {
            "x": total.to(x0.dtype),
            "z0": (normal * weight0 + bias0).to(x0.dtype),
            "z1": (normal * weight1 + bias1).to(x0.dtype),
            "mean": mean.reshape(-1),
            "rstd": rstd.reshape(-1, 1),
        }

    return forward
