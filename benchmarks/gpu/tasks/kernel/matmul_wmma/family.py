"""c = a @ b for bf16 operands and an fp32 result."""


def reference(inputs, sizes, scalars, xp):
    """The product of the stored values in float64."""
    return {"c": xp.matmul(inputs["a"], inputs["b"])}


def flops(sizes):
    """A multiplication and an addition for each (i, j, p)."""
    return 2.0 * sizes["n"] ** 3
