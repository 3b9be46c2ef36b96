"""Attention backward with grouped heads: dq, dk and dv from the forward pass's operands and results."""

SCORES = 1 << 24
"""Scores held at a time (128 MiB in float64, four such arrays): queries are taken in pieces."""


def reference(inputs, sizes, scalars, xp):
    """The formulas of the prompt in float64, head by head, with o and lse as they are given."""
    group = sizes["q_heads"] // sizes["kv_heads"]
    grads = {"dq": [], "dk": [], "dv": []}
    for b in range(sizes["batch"]):
        for g in range(sizes["kv_heads"]):
            k, v = inputs["k"][b, :, g, :], inputs["v"][b, :, g, :]
            dk, dv = xp.zeros_like(k), xp.zeros_like(v)
            for h in range(g * group, (g + 1) * group):
                queries = {name: inputs[name][b, :, h, :] for name in ("q", "o", "dout")}
                dq, dk_of_head, dv_of_head = _head(queries, inputs["lse"][b, h], k, v, sizes, scalars, xp)
                grads["dq"].append(dq)
                dk, dv = dk + dk_of_head, dv + dv_of_head
            grads["dk"].append(dk)
            grads["dv"].append(dv)
    return {name: _by_position(heads, sizes["batch"], xp) for name, heads in grads.items()}


def _by_position(heads, batch, xp):
    """A list of (length, head_dim), sequence by sequence, as (batch, length, heads, head_dim)."""
    stacked = xp.stack(heads)
    split = xp.reshape(stacked, (batch, stacked.shape[0] // batch, *stacked.shape[1:]))
    return xp.permute_dims(split, (0, 2, 1, 3))


def _head(queries, lse, k, v, sizes, scalars, xp):
    """(dq, dk, dv) of one query head: queries hold (q_len, head_dim), k and v are (kv_len, head_dim)."""
    dq, dk, dv = [], xp.zeros_like(k), xp.zeros_like(v)
    scale, step = scalars["scale"], max(1, SCORES // sizes["kv_len"])
    for first in range(0, sizes["q_len"], step):
        last = min(first + step, sizes["q_len"])
        q, o, dout = (queries[name][first:last] for name in ("q", "o", "dout"))
        weight = xp.exp(scale * xp.matmul(q, xp.permute_dims(k, (1, 0))) - lse[first:last, None])
        if sizes["causal"]:
            weight = xp.tril(weight, k=first + sizes["kv_len"] - sizes["q_len"])
        dot = xp.sum(o * dout, axis=1, keepdims=True)
        dscore = weight * (xp.matmul(dout, xp.permute_dims(v, (1, 0))) - dot)
        dq.append(scale * xp.matmul(dscore, k))
        dk = dk + scale * xp.matmul(xp.permute_dims(dscore, (1, 0)), q)
        dv = dv + xp.matmul(xp.permute_dims(weight, (1, 0)), dout)
    return xp.concat(dq, axis=0), dk, dv


def flops(sizes):
    """Five products of 2 * HEAD_DIM operations for every visible pair: scores again, dP, dq, dk and dv."""
    pairs = sizes["q_len"] * sizes["kv_len"]
    if sizes["causal"]:
        pairs -= sizes["q_len"] * (sizes["q_len"] - 1) // 2
    return 10.0 * sizes["batch"] * sizes["q_heads"] * pairs * sizes["head_dim"]
