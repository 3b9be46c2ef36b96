"""Grouped product of bf16 activations with the few-bit weights of several experts."""

COLUMNS = 1 << 26
"""Decoded weights held at a time (512 MiB in float64): columns of the result are taken in pieces."""


def reference(inputs, sizes, scalars, xp):
    """Expert by expert: weights decoded and scaled in float64, then the product."""
    depth = sizes["groups"] * sizes["group"]
    a = xp.reshape(inputs["a"], (sizes["rows"], depth))
    step = max(1, COLUMNS // depth)
    parts, begin = [], 0
    for expert in range(sizes["experts"]):
        end = begin + int(inputs["length"][expert])
        pieces = []
        for first in range(0, sizes["n"], step):
            weights = decoded(inputs["w"][expert, first : first + step], sizes, xp)
            scale = xp.permute_dims(inputs["scale"][expert, :, first : first + step], (1, 0))
            weights = xp.reshape(weights * scale[:, :, None], (-1, depth))
            pieces.append(xp.matmul(a[begin:end], xp.permute_dims(weights, (1, 0))))
        parts.append(xp.concat(pieces, axis=1))
        begin = end
    return {"c": xp.concat(parts, axis=0)}


def decoded(w, sizes, xp):
    """(columns, groups, group) weights without scales, from bytes (columns, groups, group_bytes)."""
    w = xp.astype(w, xp.float64)
    if sizes["format"] != 4:
        return w
    high = xp.floor(w / 16.0)
    pairs = xp.stack([w - 16.0 * high, high], axis=-1)  # the even weight has the low four bits
    signed = xp.where(pairs >= 8.0, pairs - 16.0, pairs)  # two's complement
    return xp.reshape(signed, (w.shape[0], w.shape[1], sizes["group"]))


def flops(sizes):
    """One multiplication and one addition for each (row, column, p)."""
    return 2.0 * sizes["rows"] * sizes["n"] * sizes["groups"] * sizes["group"]
