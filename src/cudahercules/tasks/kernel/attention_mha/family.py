"""Multi-head attention over sequences of fixed length, heads side by side in each position."""

SCORES = 1 << 25
"""Scores held at a time (256 MiB in float64): heads and queries are taken in pieces."""


def reference(inputs, sizes, scalars, xp):
    """Softmax over the visible keys in float64, as many heads and queries as fit at a time."""
    q, k, v = (_heads_first(inputs[name], xp) for name in ("q", "k", "v"))
    queries = min(sizes["q_len"], max(1, SCORES // sizes["kv_len"]))
    heads = max(1, SCORES // (sizes["kv_len"] * queries))
    pieces = []
    for head in range(0, q.shape[0], heads):
        some = slice(head, head + heads)
        rows = [
            _attend(q[some, first : first + queries, :], k[some], v[some], first, sizes, scalars, xp)
            for first in range(0, sizes["q_len"], queries)
        ]
        pieces.append(xp.concat(rows, axis=1))
    o = xp.reshape(xp.concat(pieces, axis=0), (sizes["batch"], sizes["heads"], sizes["q_len"], -1))
    return {"o": xp.permute_dims(o, (0, 2, 1, 3))}


def _heads_first(t, xp):
    """(batch, position, head, element) to (batch and head, position, element)."""
    batch, length, heads, head_dim = t.shape
    return xp.reshape(xp.permute_dims(t, (0, 2, 1, 3)), (batch * heads, length, head_dim))


def _attend(q, k, v, first, sizes, scalars, xp):
    """Some heads' attention for the queries from ``first`` on: q (heads, queries, head_dim)."""
    keys = min(first + q.shape[1], sizes["kv_len"]) if sizes["causal"] else sizes["kv_len"]
    score = scalars["scale"] * xp.matmul(q, xp.permute_dims(k[:, :keys, :], (0, 2, 1)))
    if sizes["causal"]:
        visible = xp.tril(xp.ones_like(score), k=first) > 0
        score = xp.where(visible, score, xp.full_like(score, -float("inf")))
    weight = xp.exp(score - xp.max(score, axis=2, keepdims=True))
    return xp.matmul(weight, v[:, :keys, :]) / xp.sum(weight, axis=2, keepdims=True)


def flops(sizes):
    """Two products of 2 * HEAD_DIM operations for every visible pair of query and key."""
    pairs = sizes["q_len"] * sizes["kv_len"]
    if sizes["causal"]:
        short = min(sizes["q_len"], sizes["kv_len"])  # queries that do not see all keys, or just do
        pairs = short * (short + 1) // 2 + (sizes["q_len"] - short) * sizes["kv_len"]
    return 4.0 * sizes["batch"] * sizes["heads"] * pairs * sizes["head_dim"]
