"""The panel for filter gradients. PyTorch and cuDNN are imported when they are called.

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


def triton_fused(inputs, outputs, sizes, scalars):
    """Our own Triton kernel: activations made between loading and multiplying, pieces of the pixels added up
    in fp32, and one more kernel that rounds."""
    import triton

    from cudahercules.measure.triton_convolution import filter_gradient

    how = tuple(int(scalars[name]) for name in ("stride", "padding", "dilation"))
    operands = (inputs[name] for name in ("dy", "x", "scale", "bias"))
    run = filter_gradient(*operands, outputs["dfilter"], how)
    run.versions = {"triton": triton.__version__}
    return run


def triton_then_cudnn(inputs, outputs, sizes, scalars):
    """One generated kernel for the activations, then cuDNN as PyTorch calls it, its algorithms searched."""
    import torch

    search_algorithms()
    activations = _compiled_activations()
    dy = channel_second(inputs["dy"])
    like_filter = channel_second(torch.empty_like(outputs["dfilter"]))
    stride, padding, dilation = geometry(scalars)
    backward = torch.ops.aten.convolution_backward

    def run():
        made = channel_second(activations(inputs["x"], inputs["scale"], inputs["bias"]))
        mask = [False, True, False]
        _, gradient, _ = backward(
            dy, made, like_filter, None, stride, padding, dilation, False, [0, 0], 1, mask
        )
        return {"dfilter": channel_last(gradient)}

    run.versions = versions()
    return run


def cudnn_graph(inputs, outputs, sizes, scalars):
    """Scale, bias, rectifier and gradient as one graph, cuDNN's plans searched."""
    from cudahercules.measure.cudnn_graph import fastest_graph, version

    stride, padding, dilation = geometry(scalars)
    operands = {name: channel_second(inputs[name]) for name in ("dy", "x")}
    operands |= {name: channel_second(inputs[name].view(1, 1, 1, -1)) for name in ("scale", "bias")}

    def describe(graph, t):
        scaled = graph.scale(input=t["x"], scale=t["scale"])
        made = graph.relu(graph.bias(input=scaled, bias=t["bias"]))
        return graph.conv_wgrad(image=made, loss=t["dy"], padding=padding, stride=stride, dilation=dilation)

    plan = fastest_graph(operands, channel_second(outputs["dfilter"]), describe)

    def run():
        plan()

    run.versions = version()
    return run


def triton_then_cudnn_graph(inputs, outputs, sizes, scalars):
    """One generated kernel for the activations, then the gradient alone as a graph, plans searched."""
    import torch

    from cudahercules.measure.cudnn_graph import fastest_graph, version

    activations = _compiled_activations()
    made = torch.empty_like(inputs["x"])
    stride, padding, dilation = geometry(scalars)
    operands = {"dy": channel_second(inputs["dy"]), "made": channel_second(made)}

    def describe(graph, t):
        return graph.conv_wgrad(
            image=t["made"], loss=t["dy"], padding=padding, stride=stride, dilation=dilation
        )

    plan = fastest_graph(operands, channel_second(outputs["dfilter"]), describe)

    def run():
        activations(inputs["x"], inputs["scale"], inputs["bias"], made)
        plan()

    run.versions = {**version(), "torch": torch.__version__}
    return run


@cache
def _compiled_activations():
    """In fp32, rounded once; written to ``out`` if it is given, else returned."""
    import torch

    def activations(x, scale, bias, out=None):
        made = (x.float() * scale.float() + bias.float()).relu().to(x.dtype)
        return made if out is None else out.copy_(made)

    return torch.compile(activations, mode="max-autotune-no-cudagraphs", dynamic=False)
