"""Product whose result is stored with its rows' and columns' parts in another order."""

ORDERS = ((2, 0, 3, 1, 4), (2, 0, 3, 4, 1), (1, 0, 2, 3, 4))
"""Axes of the result among (batch, tokens, parts, heads, head_dim), by the member's `order`."""


def reference(inputs, sizes, scalars, xp):
    """The product in float64, cut into five axes and permuted."""
    rows = (sizes["batch"], sizes["tokens"])
    columns = (sizes["parts"], sizes["heads"], sizes["head_dim"])
    a = xp.reshape(inputs["a"], (rows[0] * rows[1], sizes["k"]))
    b = xp.reshape(inputs["b"], (sizes["k"], columns[0] * columns[1] * columns[2]))
    product = xp.reshape(xp.matmul(a, b), (*rows, *columns))
    return {"d": xp.permute_dims(product, ORDERS[sizes["order"]])}


def flops(sizes):
    """One multiplication and one addition for each (row, column, p)."""
    columns = sizes["parts"] * sizes["heads"] * sizes["head_dim"]
    return 2.0 * sizes["batch"] * sizes["tokens"] * columns * sizes["k"]
