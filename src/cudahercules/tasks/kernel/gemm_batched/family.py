"""Batched matrix products: c[t] = a[t] @ b[t]."""


def reference(inputs, sizes, scalars, xp):
    """The products in float64."""
    return {"c": xp.matmul(inputs["a"], inputs["b"])}


def flops(sizes):
    """One multiplication and one addition for each (t, i, j, p)."""
    return 2.0 * sizes["batch"] * sizes["m"] * sizes["n"] * sizes["k"]
