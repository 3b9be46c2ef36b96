"""Batched matrix products of matrices named by tables: c[t] = a[a_of[t]] @ b[b_of[t]]."""

GATHERED = 1 << 28
"""Elements of B's matrices that are gathered at a time (2 GiB in float64)."""


def reference(inputs, sizes, scalars, xp):
    """The products in float64, some at a time."""
    step = max(1, GATHERED // (sizes["k"] * sizes["n"]))
    parts = []
    for first in range(0, sizes["batch"], step):
        a = xp.take(inputs["a"], inputs["a_of"][first : first + step], axis=0)
        b = xp.take(inputs["b"], inputs["b_of"][first : first + step], axis=0)
        parts.append(xp.matmul(a, b))
    return {"c": xp.concat(parts, axis=0)}


def flops(sizes):
    """One multiplication and one addition for each (t, i, j, p)."""
    return 2.0 * sizes["batch"] * sizes["m"] * sizes["n"] * sizes["k"]
