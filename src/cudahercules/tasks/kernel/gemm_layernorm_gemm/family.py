"""Two matrix products with a layer normalisation in between."""

NUMBERS = 1 << 26
"""Hidden numbers and results held at a time (512 MiB in float64): rows are taken in pieces."""


def reference(inputs, sizes, scalars, xp):
    """Everything in float64."""
    step = max(1, NUMBERS // (sizes["hidden"] + sizes["n"]))
    pieces = [
        _rows(inputs["x"][first : first + step], inputs, scalars["eps"], xp)
        for first in range(0, sizes["m"], step)
    ]
    return {"y": xp.concat(pieces, axis=0)}


def _rows(x, weights, eps, xp):
    z = xp.matmul(x, weights["w0"])
    centred = z - xp.mean(z, axis=1, keepdims=True)
    variance = xp.mean(centred * centred, axis=1, keepdims=True)
    normalised = centred / xp.sqrt(variance + eps) * weights["gamma"] + weights["beta"]
    return xp.matmul(normalised, weights["w1"])


def flops(sizes):
    """Both products; the normalisation adds about eight operations a hidden number."""
    return sizes["m"] * sizes["hidden"] * (2.0 * sizes["k"] + 2.0 * sizes["n"] + 8.0)
