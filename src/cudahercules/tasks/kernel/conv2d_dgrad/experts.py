"""The panel for transposed convolutions. PyTorch and cuDNN are imported when they are called.

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
    """cuDNN as PyTorch calls it for a transposed convolution, its algorithms searched."""
    import torch

    search_algorithms()
    dy, filter = channel_second(inputs["dy"]), channel_second(inputs["filter"])
    stride, padding, dilation = geometry(scalars)
    beyond = _rows_past_the_last_window(sizes, scalars)

    def run():
        dx = torch.conv_transpose2d(dy, filter, None, stride, padding, beyond, 1, dilation)
        return {"dx": channel_last(dx)}

    run.versions = versions()
    return run


def cudnn_graph(inputs, outputs, sizes, scalars):
    """The same as a graph of one node, cuDNN's plans searched."""
    from cudahercules.measure.cudnn_graph import fastest_graph, version

    stride, padding, dilation = geometry(scalars)
    operands = {name: channel_second(inputs[name]) for name in ("dy", "filter")}

    def describe(graph, t):
        return graph.conv_dgrad(
            loss=t["dy"], filter=t["filter"], padding=padding, stride=stride, dilation=dilation
        )

    plan = fastest_graph(operands, channel_second(outputs["dx"]), describe)

    def run():
        plan()

    run.versions = version()
    return run


def product_and_shuffle(inputs, outputs, sizes, scalars):
    """Where windows touch and do not overlap: one product for all taps, whose results are put in order."""
    stride, padding, dilation = (int(scalars[name]) for name in ("stride", "padding", "dilation"))
    window = (sizes["r"], sizes["s"], padding, dilation)
    if window != (stride, stride, 0, 1) or _rows_past_the_last_window(sizes, scalars) != [0, 0]:
        raise NotImplementedError("this product is for windows that touch and do not overlap")
    import torch

    compiled = _compiled()

    def run():
        return {"dx": compiled(inputs["dy"], inputs["filter"])}

    run.versions = {"torch": torch.__version__}
    return run


def _rows_past_the_last_window(sizes, scalars):
    """Rows and columns of dx beyond what dy's windows reach: PyTorch's output_padding."""
    stride, padding, dilation = (int(scalars[name]) for name in ("stride", "padding", "dilation"))
    return [
        sizes[image] - ((sizes[out] - 1) * stride - 2 * padding + dilation * (sizes[taps] - 1) + 1)
        for image, taps, out in (("h", "r", "p"), ("w", "s", "q"))
    ]


@cache
def _compiled():
    """Compiled once a process and shape."""
    import torch

    def up(dy, filter):
        n, p, q, k = dy.shape
        _, r, s, c = filter.shape
        taps = torch.mm(dy.view(-1, k), filter.view(k, -1)).view(n, p, q, r, s, c)
        return taps.permute(0, 1, 3, 2, 4, 5).reshape(n, p * r, q * s, c)

    return torch.compile(up, mode="max-autotune-no-cudagraphs", dynamic=False)
