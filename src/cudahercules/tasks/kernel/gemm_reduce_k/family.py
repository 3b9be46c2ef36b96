"""Product together with the sums of one operand along k: gradients of a linear layer's weights and bias."""


def reference(inputs, sizes, scalars, xp):
    """Both in float64."""
    a = xp.permute_dims(inputs["a"], (1, 0))
    return {"c": xp.matmul(a, inputs["b"]), "sum": xp.sum(inputs["a"], axis=0)}


def flops(sizes):
    """The product, and one addition for each element of A."""
    return (2.0 * sizes["n"] + 1.0) * sizes["m"] * sizes["k"]
