"""Row softmax of a scaled matrix product."""

LOGITS = 1 << 25
"""Logits held at a time (256 MiB in float64): rows are taken in pieces."""


def reference(inputs, sizes, scalars, xp):
    """Product and softmax in float64."""
    step = max(1, LOGITS // sizes["n"])
    pieces = [
        _rows(inputs["a"][first : first + step], inputs["b"], scalars["alpha"], xp)
        for first in range(0, sizes["m"], step)
    ]
    return {"d": xp.concat(pieces, axis=0)}


def _rows(a, b, alpha, xp):
    logits = alpha * xp.matmul(a, b)
    weights = xp.exp(logits - xp.max(logits, axis=1, keepdims=True))
    return weights / xp.sum(weights, axis=1, keepdims=True)


def flops(sizes):
    """The product; the softmax adds about five operations an element."""
    return (2.0 * sizes["k"] + 5.0) * sizes["m"] * sizes["n"]
