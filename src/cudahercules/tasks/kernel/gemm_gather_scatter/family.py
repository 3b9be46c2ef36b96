"""Rows of A, gathered by a table, times B, added to the rows of D that another table names."""


def reference(inputs, sizes, scalars, xp):
    """In float64. A step takes at most one pair of each row of D, so that plain assignments can add."""
    target, d = inputs["scatter"], inputs["d"] + 0.0
    order = xp.argsort(target, stable=True)
    in_order = xp.take(target, order)
    place = xp.arange(sizes["pairs"], device=target.device)
    earlier = place - xp.searchsorted(in_order, in_order)  # pairs before this one that have the same target
    for step in range(int(xp.max(earlier)) + 1):
        pairs = order[earlier == step]
        rows = xp.take(inputs["a"], xp.take(inputs["gather"], pairs), axis=0)
        targets = xp.take(target, pairs)
        d[targets] = d[targets] + xp.matmul(rows, inputs["b"])
    return {"d": d}


def flops(sizes):
    """One multiplication and one addition for each pair, column and p."""
    return 2.0 * sizes["pairs"] * sizes["n"] * sizes["k"]
