"""The panel for convolutions with bias and rectifier. PyTorch and cuDNN are imported when they are called.

Each function prepares one workload and returns ``run``; see ``cudahercules.replay.interface``.
"""

from functools import cache

from cudahercules.measure.convolution import (
    channel_last,
    channel_second,
    geometry,
    search_algorithms,
    versions,
)


def cudnn_fused(inputs, outputs, sizes, scalars):
    """cuDNN's fused kernels as PyTorch calls them. They add a tensor of the result's shape before the bias.
    PyTorch's variant without one lets them read the result's own, uninitialised memory; so it is zeros here,
    and reading them is charged."""
    import torch

    search_algorithms()
    x, filter = channel_second(inputs["x"]), channel_second(inputs["filter"])
    zeros = channel_second(torch.zeros_like(outputs["y"]))
    how = geometry(scalars)

    def run():
        y = torch.cudnn_convolution_add_relu(x, filter, zeros, 1.0, inputs["bias"], *how, 1)
        return {"y": channel_last(y)}

    run.versions = versions()
    return run


def cudnn_graph(inputs, outputs, sizes, scalars):
    """Convolution, bias and rectifier as one graph, cuDNN's plans searched."""
    from cudahercules.measure.cudnn_graph import fastest_graph, version

    stride, padding, dilation = geometry(scalars)
    operands = {name: channel_second(inputs[name]) for name in ("x", "filter")}
    operands["bias"] = channel_second(inputs["bias"].view(1, 1, 1, -1))

    def describe(graph, t):
        y = graph.conv_fprop(
            image=t["x"], weight=t["filter"], padding=padding, stride=stride, dilation=dilation
        )
        return graph.relu(graph.bias(input=y, bias=t["bias"]))

    plan = fastest_graph(operands, channel_second(outputs["y"]), describe)

    def run():
        plan()

    run.versions = version()
    return run


def triton_fused(inputs, outputs, sizes, scalars):
    """Our own Triton kernel: an implicit product with bias and rectifier on the accumulator."""
    import triton

    from cudahercules.measure.triton_convolution import forward

    how = tuple(int(scalars[name]) for name in ("stride", "padding", "dilation"))
    run = forward(inputs["x"], inputs["filter"], outputs["y"], how, bias=inputs["bias"])
    run.versions = {"triton": triton.__version__}
    return run


def torch_compile(inputs, outputs, sizes, scalars):
    """torch.compile in max-autotune: cuDNN, then bias and rectifier in one kernel; or Triton for all."""
    search_algorithms()
    compiled, how = _compiled(), geometry(scalars)
    x, filter = channel_second(inputs["x"]), channel_second(inputs["filter"])

    def run():
        return {"y": channel_last(compiled(x, filter, inputs["bias"], *how))}

    run.versions = versions()
    return run


@cache
def _compiled():
    """Compiled once a process and shape."""
    import torch

    def convolve(x, filter, bias, stride, padding, dilation):
        return torch.relu(torch.conv2d(x, filter, bias, stride, padding, dilation))

    return torch.compile(convolve, mode="max-autotune-no-cudagraphs", dynamic=False)
