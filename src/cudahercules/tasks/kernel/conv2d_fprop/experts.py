"""The panel for convolutions. Everything is imported when it is called.

Each function prepares one workload and returns ``run``; see ``cudahercules.replay.interface``. Tensors have
their channels last; PyTorch and cuDNN count axes as batch, channel, row, column, so they get views.
"""

from functools import cache


def cudnn(inputs, outputs, sizes, scalars):
    """cuDNN as PyTorch calls it, every algorithm tried; no TF32."""
    import torch

    _try_all(allow_tf32=False)
    x, filter, geometry = _channel_second(inputs["x"]), _channel_second(inputs["filter"]), _geometry(scalars)

    def run():
        return {"y": _channel_last(torch.conv2d(x, filter, None, *geometry))}

    run.versions = _versions()
    return run


def cudnn_graph(inputs, outputs, sizes, scalars):
    """The same as a graph of one node, all plans of cuDNN tried."""
    from cudahercules.measure.cudnn_graph import fastest_graph, version

    stride, padding, dilation = _geometry(scalars)
    operands = {name: _channel_second(inputs[name]) for name in ("x", "filter")}

    def describe(graph, t):
        return graph.conv_fprop(
            image=t["x"], weight=t["filter"], padding=padding, stride=stride, dilation=dilation
        )

    plan = fastest_graph(operands, _channel_second(outputs["y"]), describe)

    def run():
        plan()

    run.versions = version()
    return run


def torch_compile(inputs, outputs, sizes, scalars):
    """torch.compile in max-autotune: the best of cuDNN and generated Triton kernels."""
    _try_all(allow_tf32=False)
    compiled = _compiled(tuple(map(tuple, _geometry(scalars))))
    x, filter = _channel_second(inputs["x"]), _channel_second(inputs["filter"])

    def run():
        return {"y": _channel_last(compiled(x, filter))}

    run.versions = _versions()
    return run


def cudnn_three_tf32(inputs, outputs, sizes, scalars):
    """fp32 accuracy from one convolution in TF32: with x = large + small and filter likewise, the channels
    (large, small, large) of x meet (large, large, small) of the filter: one sum holds the three products."""
    import torch

    _try_all(allow_tf32=True)
    split, geometry = _compiled_split(), _geometry(scalars)

    def run():
        x, filter = split(inputs["x"], inputs["filter"])
        y = torch.conv2d(_channel_second(x), _channel_second(filter), None, *geometry)
        return {"y": _channel_last(y)}

    run.versions = _versions()
    return run


def cudnn_channels_first(inputs, outputs, sizes, scalars):
    """cuDNN's kernels for channels first, which single precision had first; the copies are charged."""
    import torch

    _try_all(allow_tf32=False)
    geometry = _geometry(scalars)

    def run():
        x, filter = (_channel_second(inputs[name]).contiguous() for name in ("x", "filter"))
        outputs["y"].copy_(_channel_last(torch.conv2d(x, filter, None, *geometry)))

    run.versions = _versions()
    return run


def _channel_second(t):
    return t.permute(0, 3, 1, 2)


def _channel_last(t):
    return t.permute(0, 2, 3, 1)


def _geometry(scalars):
    """Stride, padding and dilation as PyTorch and cuDNN take them: one number an axis."""
    return tuple([int(scalars[name])] * 2 for name in ("stride", "padding", "dilation"))


def _try_all(allow_tf32):
    """cuDNN times all its algorithms for a shape when it first sees it."""
    import torch

    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.benchmark_limit = 0
    torch.backends.cudnn.allow_tf32 = allow_tf32


@cache
def _compiled(geometry):
    """Compiled once a process and geometry."""
    import torch

    def convolve(x, filter):
        return torch.conv2d(x, filter, None, *geometry)

    return torch.compile(convolve, mode="max-autotune-no-cudagraphs", dynamic=False)


@cache
def _compiled_split():
    """x and filter in three times the channels, as one generated kernel each."""
    import torch

    def large(t):
        """Rounded to the 11 significant bits of TF32, halves away from zero."""
        return ((t.view(torch.int32) + 0x1000) & -0x2000).view(torch.float32)

    def split(x, filter):
        large_x, large_filter = large(x), large(filter)
        return (
            torch.cat([large_x, x - large_x, large_x], dim=-1),
            torch.cat([large_filter, large_filter, filter - large_filter], dim=-1),
        )

    return torch.compile(split, mode="max-autotune-no-cudagraphs", dynamic=False)


def _versions():
    import torch

    return {"cudnn": str(torch.backends.cudnn.version()), "torch": torch.__version__}
