"""Scores of a sparse attention's indexer: many query heads, one key head, ReLU, a weighted sum of heads."""

SCORES = 1 << 25
"""Scores of one head held at a time (256 MiB in float64): queries are taken in pieces."""


def reference(inputs, sizes, scalars, xp):
    """Float64, head by head; minus infinity outside each query's range of keys."""
    step = max(1, SCORES // sizes["columns"])
    pieces = [
        _queries({n: inputs[n][i : i + step] for n in ("q", "w", "first", "end")}, inputs, sizes, xp)
        for i in range(0, sizes["queries"], step)
    ]
    return {"logits": xp.concat(pieces, axis=0)}


def _queries(mine, inputs, sizes, xp):
    """(queries, columns) of some queries: ``mine`` holds their rows of q, w, first and end."""
    keys = xp.permute_dims(inputs["k"], (1, 0))
    total = 0.0
    for head in range(sizes["heads"]):
        score = xp.matmul(mine["q"][:, head, :], keys)
        total = total + mine["w"][:, head : head + 1] * xp.maximum(score, xp.zeros_like(score))
    total = total * inputs["k_scale"][None, :]
    place = xp.cumulative_sum(xp.ones_like(total), axis=1) - 1.0  # each element's key
    inside = (place >= mine["first"][:, None]) & (place < mine["end"][:, None])
    minus_infinity = -float("inf")
    logits = xp.where(inside, total, xp.full_like(total, minus_infinity))
    padding = xp.full_like(total[:, :1], minus_infinity)
    padding = xp.broadcast_to(padding, (total.shape[0], sizes["columns"] - sizes["keys"]))
    return xp.concat([logits, padding], axis=1)


VISIBLE = 0.875
"""Share of the keys that a query sees on average, as every timed workload draws the ranges."""


def flops(sizes):
    """Products of the visible pairs of query and key; ReLU and weights add under two percent."""
    return VISIBLE * 2.0 * sizes["heads"] * sizes["head_dim"] * sizes["queries"] * sizes["keys"]
