"""Attention of few queries over many keys, in the layout of a key-value cache: o and the log-sum-exp."""


def reference(inputs, sizes, scalars, xp):
    """Softmax over the visible keys in float64, one sequence and key head at a time."""
    group = sizes["q_heads"] // sizes["kv_heads"]
    outs, sums = [], []
    for b in range(sizes["batch"]):
        for g in range(sizes["kv_heads"]):
            q = inputs["q"][b, :, g * group : (g + 1) * group, :]
            o, lse = _group(q, inputs["k"][b, :, g, :], inputs["v"][b, :, g, :], sizes, scalars, xp)
            outs.append(o)
            sums.append(lse)
    shape = (sizes["batch"], sizes["kv_heads"], sizes["q_len"], group)
    o = xp.reshape(xp.stack(outs), (*shape, sizes["head_dim"]))
    o = xp.permute_dims(o, (0, 2, 1, 3, 4))
    lse = xp.permute_dims(xp.reshape(xp.stack(sums), shape), (0, 1, 3, 2))
    whole = (sizes["batch"], sizes["q_len"], sizes["q_heads"], sizes["head_dim"])
    return {"o": xp.reshape(o, whole), "lse": xp.reshape(lse, (whole[0], whole[2], whole[1]))}


def _group(q, k, v, sizes, scalars, xp):
    """(o, lse) of the heads that share a key head: q is (q_len, heads, head_dim), k and v (kv_len, ..)."""
    score = scalars["scale"] * xp.matmul(q, xp.permute_dims(k, (1, 0)))
    if sizes["causal"]:
        visible = xp.tril(xp.ones_like(score[:, 0, :]), k=sizes["kv_len"] - sizes["q_len"]) > 0
        score = xp.where(xp.expand_dims(visible, axis=1), score, xp.full_like(score, -float("inf")))
    largest = xp.max(score, axis=2, keepdims=True)
    weight = xp.exp(score - largest)
    total = xp.sum(weight, axis=2, keepdims=True)
    return xp.matmul(weight, v) / total, (largest + xp.log(total))[:, :, 0]


def flops(sizes):
    """Two products of 2 * HEAD_DIM operations for every visible pair of query and key."""
    pairs = sizes["q_len"] * sizes["kv_len"]
    if sizes["causal"]:
        pairs -= sizes["q_len"] * (sizes["q_len"] - 1) // 2
    return 4.0 * sizes["batch"] * sizes["q_heads"] * pairs * sizes["head_dim"]
