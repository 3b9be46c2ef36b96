"""Grouped matrix product: each group of rows of A with a matrix of its own."""


def reference(inputs, sizes, scalars, xp):
    """One product a group, in float64."""
    parts, first = [], 0
    for group in range(sizes["groups"]):
        rows = int(inputs["group_rows"][group])
        part = inputs["a"][first : first + rows, :]
        parts.append(xp.matmul(part, xp.matrix_transpose(inputs["b"][group, :, :])))
        first += rows
    return {"c": xp.concat(parts, axis=0)}


def flops(sizes):
    """One multiplication and one addition for each row, column and p."""
    return 2.0 * sizes["m"] * sizes["n"] * sizes["k"]
