"""Product of a lower triangular matrix with a dense one."""


def reference(inputs, sizes, scalars, xp):
    """The product in float64, with zeros above the diagonal."""
    return {"c": scalars["alpha"] * xp.matmul(xp.tril(inputs["a"]), inputs["b"])}


def flops(sizes):
    """One multiplication and one addition for each element of the triangle and each column."""
    return 1.0 * sizes["m"] * (sizes["m"] + 1) * sizes["n"]
