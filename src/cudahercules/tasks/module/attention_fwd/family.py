"""Attention forward with grouped heads: o and the log-sum-exp of the scores."""

SCORES = 1 << 25
"""Scores held at a time (256 MiB in float64): queries are taken in pieces."""


def reference(inputs, sizes, scalars, xp):
    """Softmax over the visible keys in float64, head by head, and as many queries as fit at a time."""
    group = sizes["q_heads"] // sizes["kv_heads"]
    heads = [
        _head(inputs["q"][b, h], inputs["k"][b, h // group], inputs["v"][b, h // group], sizes, scalars, xp)
        for b in range(sizes["batch"])
        for h in range(sizes["q_heads"])
    ]
    shape = (sizes["batch"], sizes["q_heads"], sizes["q_len"])
    return {
        "o": xp.reshape(xp.stack([o for o, _ in heads]), (*shape, sizes["head_dim"])),
        "lse": xp.reshape(xp.stack([lse for _, lse in heads]), shape),
    }


def _head(q, k, v, sizes, scalars, xp):
    """(o, lse) of one head: q is (q_len, head_dim), k and v are (kv_len, head_dim)."""
    pieces = []
    step = max(1, SCORES // sizes["kv_len"])
    for first in range(0, sizes["q_len"], step):
        last = min(first + step, sizes["q_len"])
        # Of the queries first .. last - 1, the first sees `seen` keys and the last one all of these.
        seen = first + 1 + sizes["kv_len"] - sizes["q_len"]
        keys = seen + (last - first - 1) if sizes["causal"] else sizes["kv_len"]
        score = scalars["scale"] * xp.matmul(q[first:last], xp.permute_dims(k[:keys], (1, 0)))
        if sizes["causal"]:
            visible = xp.tril(xp.ones_like(score), k=seen - 1) > 0
            score = xp.where(visible, score, xp.full_like(score, -float("inf")))
        largest = xp.max(score, axis=1, keepdims=True)
        weight = xp.exp(score - largest)
        total = xp.sum(weight, axis=1, keepdims=True)
        pieces.append((xp.matmul(weight, v[:keys]) / total, (largest + xp.log(total))[:, 0]))
    return xp.concat([o for o, _ in pieces], axis=0), xp.concat([lse for _, lse in pieces], axis=0)


def flops(sizes):
    """Two products of 2 * HEAD_DIM operations for every visible pair of query and key."""
    pairs = sizes["q_len"] * sizes["kv_len"]
    if sizes["causal"]:
        pairs -= sizes["q_len"] * (sizes["q_len"] - 1) // 2
    return 4.0 * sizes["batch"] * sizes["q_heads"] * pairs * sizes["head_dim"]
