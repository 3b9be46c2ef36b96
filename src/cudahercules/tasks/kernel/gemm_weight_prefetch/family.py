"""RMSNorm of few rows, then the product with a transposed weight."""


def reference(inputs, sizes, scalars, xp):
    """Everything in float64, nothing rounded on the way."""
    x = inputs["x"]
    size = xp.sqrt(xp.mean(x * x, axis=1, keepdims=True) + scalars["eps"])
    return {"c": xp.matmul(x / size * inputs["gain"], xp.matrix_transpose(inputs["w"]))}


def flops(sizes):
    """The product; the norm adds about four operations an element of X."""
    return (2.0 * sizes["n"] + 4.0) * sizes["m"] * sizes["k"]
