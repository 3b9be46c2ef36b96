"""INT8 matrix product, scaled in fp32 and rounded to the nearest even integer in -128 .. 127."""


def reference(inputs, sizes, scalars, xp):
    """Exact sums (integers in float64 up to 2**53), then fp32's own product with the scale: for sums under
    2**24 it is exact in float64, and rounded to fp32 once."""
    a, b = (xp.astype(inputs[name], xp.float64) for name in ("a", "b"))
    scaled = xp.astype(xp.matmul(a, xp.matrix_transpose(b)) * scalars["scale"], xp.float32)
    return {"c": xp.astype(xp.clip(xp.round(scaled), -128, 127), xp.int64)}


def flops(sizes):
    """One multiplication and one addition for each (i, j, p)."""
    return 2.0 * sizes["m"] * sizes["n"] * sizes["k"]
