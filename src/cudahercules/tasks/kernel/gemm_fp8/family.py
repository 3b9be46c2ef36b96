"""FP8 matrix product with scales: c = (a * a_scale) @ (b * b_scale)^T, rounded to bf16 or e4m3."""

E4M3_MAX = 448.0


def reference(inputs, sizes, scalars, xp):
    """The product in float64; where C is e4m3, within its range (the conversion saturates)."""
    products = xp.matmul(inputs["a"], xp.matrix_transpose(inputs["b"]))
    scaled = products * inputs["a_scale"][:, None] * inputs["b_scale"][None, :]
    return {"c": xp.clip(scaled, -E4M3_MAX, E4M3_MAX) if sizes["c_is_e4m3"] else scaled}


def flops(sizes):
    """One multiplication and one addition for each (i, j, p)."""
    return 2.0 * sizes["m"] * sizes["n"] * sizes["k"]
