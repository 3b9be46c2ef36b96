"""Product of complex matrices: c = a @ b."""


def reference(inputs, sizes, scalars, xp):
    """The product in complex128."""
    return {"c": xp.matmul(inputs["a"], inputs["b"])}


def flops(sizes):
    """Four multiplications and four additions for each (i, j, p). Three multiplications would do."""
    return 8.0 * sizes["m"] * sizes["n"] * sizes["k"]
