"""The panel for convolutions. PyTorch and cuDNN are imported when they are called.

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


def cudnn(inputs, outputs, sizes, scalars):
    """cuDNN as PyTorch calls it, its algorithms searched; no TF32."""
    import torch

    search_algorithms()
    x, filter = channel_second(inputs["x"]), channel_second(inputs["filter"])
    how = geometry(scalars)

    def run():
        return {"y": channel_last(torch.conv2d(x, filter, None, *how))}

    run.versions = versions()
    return run


def cudnn_graph(inputs, outputs, sizes, scalars):
    """The same as a graph of one node, cuDNN's plans searched."""
    from cudahercules.measure.cudnn_graph import fastest_graph, version

    stride, padding, dilation = geometry(scalars)
    operands = {name: channel_second(inputs[name]) for name in ("x", "filter")}

    def describe(graph, t):
        return graph.conv_fprop(
            image=t["x"], weight=t["filter"], padding=padding, stride=stride, dilation=dilation
        )

    plan = fastest_graph(operands, channel_second(outputs["y"]), describe)

    def run():
        plan()

    run.versions = version()
    return run


def torch_compile(inputs, outputs, sizes, scalars):
    """torch.compile in max-autotune: the best of cuDNN and generated Triton kernels."""
    search_algorithms()
    compiled = _compiled()
    x, filter = channel_second(inputs["x"]), channel_second(inputs["filter"])
    how = geometry(scalars)

    def run():
        return {"y": channel_last(compiled(x, filter, *how))}

    run.versions = versions()
    return run


def cudnn_three_tf32(inputs, outputs, sizes, scalars):
    """fp32 accuracy from one convolution in TF32: with x = large + small and filter likewise, the channels
    (large, small, large) of x meet (large, large, small) of the filter: one sum holds the three products.
    The filter is split in preparation."""
    import torch

    search_algorithms(allow_tf32=True)
    split, how = _compiled_split(), geometry(scalars)
    k, r, s, c = inputs["filter"].shape
    parts = torch.empty((k, r, s, 3 * c), dtype=torch.float32, device=inputs["filter"].device)

    def prepare():
        whole, large = inputs["filter"], _large(inputs["filter"])
        torch.cat([large, large, whole - large], dim=-1, out=parts)

    def run():
        x = split(inputs["x"])
        return {"y": channel_last(torch.conv2d(channel_second(x), channel_second(parts), None, *how))}

    run.prepare = prepare
    run.versions = versions()
    return run


def triton_three_tf32(inputs, outputs, sizes, scalars):
    """Our own Triton kernel: an implicit product of operands split in registers, three products a step."""
    import triton

    from cudahercules.measure.triton_convolution import forward

    how = tuple(int(scalars[name]) for name in ("stride", "padding", "dilation"))
    run = forward(inputs["x"], inputs["filter"], outputs["y"], how)
    run.versions = {"triton": triton.__version__}
    return run


def cudnn_channels_first(inputs, outputs, sizes, scalars):
    """cuDNN's kernels for channels first, which single precision had first; the copies are charged."""
    import torch

    search_algorithms()
    how = geometry(scalars)

    def run():
        x, filter = (channel_second(inputs[name]).contiguous() for name in ("x", "filter"))
        outputs["y"].copy_(channel_last(torch.conv2d(x, filter, None, *how)))

    run.versions = versions()
    return run


@cache
def _compiled():
    """Compiled once a process and shape."""
    import torch

    def convolve(x, filter, stride, padding, dilation):
        return torch.conv2d(x, filter, None, stride, padding, dilation)

    return torch.compile(convolve, mode="max-autotune-no-cudagraphs", dynamic=False)


@cache
def _compiled_split():
    """x in three times the channels, by one generated kernel."""
    import torch

    def split(x):
        return torch.cat([_large(x), x - _large(x), _large(x)], dim=-1)

    return torch.compile(split, mode="max-autotune-no-cudagraphs", dynamic=False)


def _large(t):
    """Rounded to the 11 significant bits of TF32, halves away from zero."""
    import torch

    return ((t.view(torch.int32) + 0x1000) & -0x2000).view(torch.float32)
