"""The panel for transforms of real signals: cuFFT twice. Everything is imported when it is called.

Each function prepares one workload and returns ``run``; see ``cudahercules.replay.interface``.
"""


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
