"""Linear layer whose weights are sparse two in four: values and a pattern for each four along k."""

WEIGHTS = 1 << 26
"""Weights held dense at a time (512 MiB in float64): outputs are taken in pieces."""
PLACES = ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3))
"""Where the two values of a pattern lie among four."""


def reference(inputs, sizes, scalars, xp):
    """Dense weights in float64, then the product."""
    depth = sizes["quads"] * 4
    x = xp.reshape(inputs["x"], (sizes["tokens"], depth))
    step = max(1, WEIGHTS // depth)
    pieces = []
    for first in range(0, sizes["outputs"], step):
        weights = dense(inputs["value"][first : first + step], inputs["pattern"][first : first + step], xp)
        pieces.append(xp.matmul(x, xp.permute_dims(xp.reshape(weights, (-1, depth)), (1, 0))))
    return {"y": xp.concat(pieces, axis=1)}


def dense(value, pattern, xp):
    """(outputs, quads, 4) from values (outputs, quads, 2) and patterns (outputs, quads)."""
    pattern = xp.astype(pattern, xp.float64)
    columns = []
    for place in range(4):
        column = xp.zeros_like(value[:, :, 0])
        for code, places in enumerate(PLACES):
            if place in places:
                column = xp.where(pattern == float(code), value[:, :, places.index(place)], column)
        columns.append(column)
    return xp.stack(columns, axis=-1)


def flops(sizes):
    """Products of the values that are kept: half of what the dense product has."""
    return 2.0 * sizes["tokens"] * sizes["outputs"] * sizes["quads"] * 2
