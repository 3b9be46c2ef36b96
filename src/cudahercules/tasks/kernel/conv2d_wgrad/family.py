"""Gradient of a convolution's filter with respect to what follows it: one matrix product a tap."""

ELEMENTS = 1 << 26
"""Elements of dy and x held at a time (512 MiB in float64): images are taken in pieces."""


def reference(inputs, sizes, scalars, xp):
    """Products of dy with the activations under each tap, in float64, some images at a time."""
    around = 2 * int(scalars["padding"])
    image = (sizes["h"] + around) * (sizes["w"] + around) * sizes["c"]
    step = max(1, ELEMENTS // (image + sizes["p"] * sizes["q"] * sizes["k"]))
    total = _gradient(inputs, 0, step, sizes, scalars, xp)
    for first in range(step, sizes["n"], step):
        total = total + _gradient(inputs, first, first + step, sizes, scalars, xp)
    return {"dfilter": total}


def _gradient(inputs, first, last, sizes, scalars, xp):
    """What the images first .. last - 1 contribute to dfilter (k, r, s, c)."""
    stride, padding, dilation = (int(scalars[name]) for name in ("stride", "padding", "dilation"))
    shifted = inputs["x"][first:last] * inputs["scale"] + inputs["bias"]
    made = xp.where(shifted > 0, shifted, xp.zeros_like(shifted))
    images, h, w, c = made.shape
    padded = xp.zeros((images, h + 2 * padding, w + 2 * padding, c), dtype=made.dtype, device=made.device)
    padded[:, padding : padding + h, padding : padding + w, :] = made
    dy = xp.permute_dims(xp.reshape(inputs["dy"][first:last], (-1, sizes["k"])), (1, 0))
    taps = []
    for r in range(sizes["r"]):
        rows = slice(r * dilation, r * dilation + (sizes["p"] - 1) * stride + 1, stride)
        for s in range(sizes["s"]):
            columns = slice(s * dilation, s * dilation + (sizes["q"] - 1) * stride + 1, stride)
            taps.append(xp.matmul(dy, xp.reshape(padded[:, rows, columns, :], (-1, c))))
    return xp.reshape(xp.stack(taps, axis=1), (sizes["k"], sizes["r"], sizes["s"], c))


def flops(sizes):
    """A multiplication and an addition for every output pixel, filter, tap and channel, padding included,
    and three operations for each element of x."""
    products = sizes["n"] * sizes["p"] * sizes["q"] * sizes["k"] * sizes["r"] * sizes["s"] * sizes["c"]
    return 2.0 * products + 3.0 * sizes["n"] * sizes["h"] * sizes["w"] * sizes["c"]
