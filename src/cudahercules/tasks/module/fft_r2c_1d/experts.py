"""The panel for transforms of real signals: cuFFT twice, and ours. Imports happen when called.

Each function prepares one workload and returns ``run``; see ``cudahercules.replay.interface``.
"""

from pathlib import Path


def cufft_planned(inputs, outputs, sizes, scalars):
    """cuFFT by its own interface, out of place; the plan and its scratch are made before timing."""
    from cudahercules.measure import cufft

    return cufft.forward(inputs["x"], outputs["y"], (sizes["length"],))


def torch_fft(inputs, outputs, sizes, scalars):
    """torch.fft.rfft into the output; torch keeps the plan in a cache after the first call."""
    import torch

    x, y = inputs["x"], outputs["y"]

    def run():
        torch.fft.rfft(x, dim=-1, out=y)

    run.versions = {"torch": torch.__version__}
    return run


def two_pass(inputs, outputs, sizes, scalars):
    """Our own kernels in two_pass.cu. An expert with a CUDA source of its name is built, recorded and
    replayed as a plan, exactly like a candidate; this function is never run on tensors."""
    return Path(__file__).with_name("two_pass.cu")


def tuned(inputs, outputs, sizes, scalars):
    """Our own kernel in tuned.cu, likewise."""
    return Path(__file__).with_name("tuned.cu")
