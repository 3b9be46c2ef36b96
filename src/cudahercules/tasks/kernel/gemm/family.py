"""Dense matrix product: c = a @ b."""


def reference(inputs, sizes, scalars, xp):
    """The product in float64; a sum of k products each rounded at 2**-53."""
    return {"c": xp.matmul(inputs["a"], inputs["b"])}


def flops(sizes):
    """One multiplication and one addition for each (i, j, p)."""
    return 2.0 * sizes["m"] * sizes["n"] * sizes["k"]
