"""Convolution of images, channels last, with a bias and a rectifier: a sum of matrix products, one a tap."""

ELEMENTS = 1 << 26
"""Elements of x and y held at a time (512 MiB in float64): images are taken in pieces."""


def reference(inputs, sizes, scalars, xp):
    """Cross-correlation with zero padding, bias and rectifier in float64, some images at a time."""
    around = 2 * int(scalars["padding"])
    image = (sizes["h"] + around) * (sizes["w"] + around) * sizes["c"]
    step = max(1, ELEMENTS // (image + sizes["p"] * sizes["q"] * sizes["k"]))
    pieces = [
        _convolve(inputs["x"][first : first + step], inputs["filter"], sizes, scalars, xp)
        for first in range(0, sizes["n"], step)
    ]
    y = xp.concat(pieces, axis=0) + inputs["bias"]
    return {"y": xp.where(y > 0, y, xp.zeros_like(y))}


def _convolve(x, filter, sizes, scalars, xp):
    """x (images, h, w, c) and filter (k, r, s, c) to (images, p, q, k)."""
    stride, padding, dilation = (int(scalars[name]) for name in ("stride", "padding", "dilation"))
    images, h, w, c = x.shape
    padded = xp.zeros((images, h + 2 * padding, w + 2 * padding, c), dtype=x.dtype, device=x.device)
    padded[:, padding : padding + h, padding : padding + w, :] = x
    y = xp.zeros((images * sizes["p"] * sizes["q"], sizes["k"]), dtype=x.dtype, device=x.device)
    for r in range(sizes["r"]):
        rows = slice(r * dilation, r * dilation + (sizes["p"] - 1) * stride + 1, stride)
        for s in range(sizes["s"]):
            columns = slice(s * dilation, s * dilation + (sizes["q"] - 1) * stride + 1, stride)
            under_tap = xp.reshape(padded[:, rows, columns, :], (-1, c))
            y += xp.matmul(under_tap, xp.permute_dims(filter[:, r, s, :], (1, 0)))
    return xp.reshape(y, (images, sizes["p"], sizes["q"], sizes["k"]))


def flops(sizes):
    """A multiplication and an addition for every output, tap and channel, padding included, and bias and
    rectifier."""
    outputs = sizes["n"] * sizes["p"] * sizes["q"] * sizes["k"]
    return outputs * (2.0 * sizes["r"] * sizes["s"] * sizes["c"] + 2.0)
