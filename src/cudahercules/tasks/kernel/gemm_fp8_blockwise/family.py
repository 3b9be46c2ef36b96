"""FP8 matrix product with a scale for every 128 elements along k, and for 1 or 128 rows of B."""

BLOCK = 128


def reference(inputs, sizes, scalars, xp):
    """The product of the scaled matrices in float64."""
    a = inputs["a"] * _spread(inputs["a_scale"], 1, sizes["m"], sizes["k"], xp)
    b = inputs["b"] * _spread(inputs["b_scale"], sizes["b_rows"], sizes["n"], sizes["k"], xp)
    return {"c": xp.matmul(a, xp.matrix_transpose(b))}


def _spread(scales, rows, height, width, xp):
    """Each scale repeated over its block of ``rows`` by 128, cut to the matrix."""
    tall = xp.repeat(scales, rows, axis=0) if rows > 1 else scales
    return xp.repeat(tall, BLOCK, axis=1)[:height, :width]


def flops(sizes):
    """One multiplication and one addition for each (i, j, p)."""
    return 2.0 * sizes["m"] * sizes["n"] * sizes["k"]
