"""Router of a mixture of experts: the largest products of each row, softmax over these, zeros elsewhere."""

ELEMENTS = 1 << 25
"""Elements of A held at a time (256 MiB in float64): rows are taken in pieces."""


def reference(inputs, sizes, scalars, xp):
    """Products are integers and exact; a stable sort puts the first of equals first."""
    step = max(1, ELEMENTS // sizes["k"])
    b = xp.permute_dims(inputs["b"], (1, 0))
    pieces = [
        _rows(xp.matmul(inputs["a"][first : first + step], b), sizes, scalars, xp)
        for first in range(0, sizes["m"], step)
    ]
    return {"d": xp.concat(pieces, axis=0)}


def _rows(products, sizes, scalars, xp):
    order = xp.argsort(-products, axis=1, stable=True)
    rank = xp.argsort(order, axis=1, stable=True)  # each column's place in the order
    weights = xp.exp(scalars["alpha"] * (products - xp.max(products, axis=1, keepdims=True)))
    weights = xp.where(rank < sizes["top"], weights, xp.zeros_like(weights))
    return weights / xp.sum(weights, axis=1, keepdims=True)


def flops(sizes):
    """The product; choosing compares, and the softmax is over a few columns."""
    return 2.0 * sizes["m"] * sizes["n"] * sizes["k"]
