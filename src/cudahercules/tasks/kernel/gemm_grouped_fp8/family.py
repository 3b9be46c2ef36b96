"""Grouped FP8 product with scales of blocks: each group of 128-row tiles of A has a matrix of its own."""


def reference(inputs, sizes, scalars, xp):
    """One product of scaled matrices a group, in float64."""
    parts, first, block = [], 0, sizes["block"]
    for group in range(sizes["groups"]):
        rows = slice(first, first + block * int(inputs["group_tiles"][group]))
        a = inputs["a"][rows, :] * _along_k(inputs["a_scale"][rows, :], sizes, xp)
        of_b = xp.repeat(inputs["b_scale"][group, :, :], block, axis=0)[: sizes["n"], :]
        b = inputs["b"][group, :, :] * _along_k(of_b, sizes, xp)
        parts.append(xp.matmul(a, xp.matrix_transpose(b)))
        first = rows.stop
    return {"c": xp.concat(parts, axis=0)}


def _along_k(scales, sizes, xp):
    """Each scale repeated over its block along k."""
    return xp.repeat(scales, sizes["block"], axis=1)[:, : sizes["k"]]


def flops(sizes):
    """One multiplication and one addition for each row, column and p."""
    return 2.0 * sizes["m"] * sizes["n"] * sizes["k"]
