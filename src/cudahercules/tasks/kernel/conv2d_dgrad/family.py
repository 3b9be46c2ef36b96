"""Gradient of a convolution's images, or transposed convolution: windows of all pixels are added up."""

ELEMENTS = 1 << 26
"""Elements of dy and dx held at a time (512 MiB in float64): images are taken in pieces."""


def reference(inputs, sizes, scalars, xp):
    """Windows added up in float64, some images at a time."""
    around = 2 * int(scalars["padding"])
    image = (sizes["h"] + around) * (sizes["w"] + around) * sizes["c"]
    step = max(1, ELEMENTS // (image + sizes["p"] * sizes["q"] * sizes["k"]))
    pieces = [
        _gradient(inputs["dy"][first : first + step], inputs["filter"], sizes, scalars, xp)
        for first in range(0, sizes["n"], step)
    ]
    return {"dx": xp.concat(pieces, axis=0)}


def _gradient(dy, filter, sizes, scalars, xp):
    """dy (images, p, q, k) and filter (k, r, s, c) to (images, h, w, c)."""
    stride, padding, dilation = (int(scalars[name]) for name in ("stride", "padding", "dilation"))
    images, p, q, k = dy.shape
    h, w, c = sizes["h"], sizes["w"], sizes["c"]
    padded = xp.zeros((images, h + 2 * padding, w + 2 * padding, c), dtype=dy.dtype, device=dy.device)
    pixels = xp.reshape(dy, (-1, k))
    for r in range(sizes["r"]):
        rows = slice(r * dilation, r * dilation + (p - 1) * stride + 1, stride)
        for s in range(sizes["s"]):
            columns = slice(s * dilation, s * dilation + (q - 1) * stride + 1, stride)
            share = xp.reshape(xp.matmul(pixels, filter[:, r, s, :]), (images, p, q, c))
            padded[:, rows, columns, :] = padded[:, rows, columns, :] + share
    return padded[:, padding : padding + h, padding : padding + w, :]


def flops(sizes):
    """A multiplication and an addition for every output pixel, filter, tap and channel, padding included."""
    products = sizes["n"] * sizes["p"] * sizes["q"] * sizes["k"] * sizes["r"] * sizes["s"] * sizes["c"]
    return 2.0 * products
