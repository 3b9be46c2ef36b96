"""The panel for convolutions of activations. PyTorch and cuDNN are imported when they are called.

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


def torch_compile(inputs, outputs, sizes, scalars):
    """The activations by one generated kernel, rounded to fp16; then the best of cuDNN and Triton."""
    search_algorithms()
    compiled, how = _compiled(), geometry(scalars)
    filter = channel_second(inputs["filter"])

    def run():
        y = compiled(inputs["x"], inputs["scale"], inputs["bias"], filter, *how)
        return {"y": channel_last(y)}

    run.versions = versions()
    return run


def triton_fused(inputs, outputs, sizes, scalars):
    """Our own Triton kernel: an implicit product, its operand activated between loading and multiplying."""
    import triton

    from cudahercules.measure.triton_convolution import forward

    how = tuple(int(scalars[name]) for name in ("stride", "padding", "dilation"))
    activate = (inputs["scale"], inputs["bias"])
    run = forward(inputs["x"], inputs["filter"], outputs["y"], how, activate)
    run.versions = {"triton": triton.__version__}
    return run


def triton_then_cudnn(inputs, outputs, sizes, scalars):
    """One generated kernel for the activations, then cuDNN as PyTorch calls it, its algorithms searched."""
    import torch

    search_algorithms()
    activations, how = _compiled_activations(), geometry(scalars)
    filter = channel_second(inputs["filter"])

    def run():
        made = channel_second(activations(inputs["x"], inputs["scale"], inputs["bias"]))
        return {"y": channel_last(torch.conv2d(made, filter, None, *how))}

    run.versions = versions()
    return run


def cudnn_graph(inputs, outputs, sizes, scalars):
    """Scale, bias, rectifier and convolution as one graph, cuDNN's plans searched."""
    from cudahercules.measure.cudnn_graph import fastest_graph, version

    stride, padding, dilation = geometry(scalars)
    operands = {name: channel_second(inputs[name]) for name in ("x", "filter")}
    operands |= {name: channel_second(inputs[name].view(1, 1, 1, -1)) for name in ("scale", "bias")}

    def describe(graph, t):
        scaled = graph.scale(input=t["x"], scale=t["scale"])
        made = graph.relu(graph.bias(input=scaled, bias=t["bias"]))
        return graph.conv_fprop(
            image=made, weight=t["filter"], padding=padding, stride=stride, dilation=dilation
        )

    plan = fastest_graph(operands, channel_second(outputs["y"]), describe)

    def run():
        plan()

    run.versions = version()
    return run


@cache
def _compiled():
    """Compiled once a process and shape."""
    import torch

    def convolve(x, scale, bias, filter, stride, padding, dilation):
        made = channel_second(_activations(x, scale, bias))
        return torch.conv2d(made, filter, None, stride, padding, dilation)

    return torch.compile(convolve, mode="max-autotune-no-cudagraphs", dynamic=False)


@cache
def _compiled_activations():
    import torch

    return torch.compile(_activations, mode="max-autotune-no-cudagraphs", dynamic=False)


def _activations(x, scale, bias):
    """Arithmetic in fp32, rounded once."""
    return (x.float() * scale.float() + bias.float()).relu().to(x.dtype)
