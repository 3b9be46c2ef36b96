"""Product of matrices of quaternions, by Hamilton's rule, real part first."""


def reference(inputs, sizes, scalars, xp):
    """Sixteen real products in float64."""
    a, b = inputs["a"], inputs["b"]
    w1, x1, y1, z1 = (a[..., i] for i in range(4))
    w2, x2, y2, z2 = (b[..., i] for i in range(4))
    times = xp.matmul
    parts = [
        times(w1, w2) - times(x1, x2) - times(y1, y2) - times(z1, z2),
        times(w1, x2) + times(x1, w2) + times(y1, z2) - times(z1, y2),
        times(w1, y2) - times(x1, z2) + times(y1, w2) + times(z1, x2),
        times(w1, z2) + times(x1, y2) - times(y1, x2) + times(z1, w2),
    ]
    return {"c": xp.stack(parts, axis=-1)}


def flops(sizes):
    """Sixteen multiplications and as many additions for each (i, j, p). Eight multiplications would do."""
    return 32.0 * sizes["m"] * sizes["n"] * sizes["k"]
