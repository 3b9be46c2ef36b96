"""The panel for layer normalisation. Everything is imported when it is called.

Each function prepares one workload and returns ``run``; see ``cudahercules.replay.interface``.
"""

from functools import cache
from pathlib import Path


def tuned(inputs, outputs, sizes, scalars):
    """Our own kernel in tuned.cu. An expert with a CUDA source of its name is built, recorded and
    replayed as a plan, exactly like a candidate; this function is never run on tensors."""
    return Path(__file__).with_name("tuned.cu")


def liger_layer_norm(inputs, outputs, sizes, scalars):
    """Liger's Triton kernel: one program a row, two passes over registers."""
    import torch
    from liger_kernel.ops.layer_norm import layer_norm_forward

    x, weight, bias, eps = inputs["x"], inputs["weight"], inputs["bias"], scalars["eps"]

    def run():
        z, _, mean, rstd, *_ = layer_norm_forward(x, weight, bias, eps)
        return {"z": z, "mean": mean, "rstd": rstd.view(-1, 1)}

    run.versions = {"torch": torch.__version__}
    return run


def torch_compile(inputs, outputs, sizes, scalars):
    """native_layer_norm as torch.compile lowers it: one fused reduction kernel, autotuned."""
    import torch

    compiled = _compiled(sizes["hidden"], scalars["eps"])

    def run():
        z, mean, rstd = compiled(inputs["x"], inputs["weight"], inputs["bias"])
        return {"z": z, "mean": mean, "rstd": rstd}

    run.versions = {"torch": torch.__version__}
    return run


@cache
def _compiled(hidden, eps):
    """Compiled once a process and eps."""
    import torch

    def forward(x, weight, bias):
        z, mean, rstd = torch.native_layer_norm(x, (hidden,), weight, bias, eps)
        return z, mean.reshape(-1), rstd.reshape(-1, 1)

    return torch.compile(forward, mode="max-autotune-no-cudagraphs", dynamic=False)


def torch_native(inputs, outputs, sizes, scalars):
    """PyTorch's own CUDA kernel (Welford), eager."""
    import torch

    hidden, eps = sizes["hidden"], scalars["eps"]

    def run():
        z, mean, rstd = torch.native_layer_norm(inputs["x"], (hidden,), inputs["weight"], inputs["bias"], eps)
        return {"z": z, "mean": mean.view(-1), "rstd": rstd.view(-1, 1)}

    run.versions = {"torch": torch.__version__}
    return run
