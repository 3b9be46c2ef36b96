"""Rotary position embedding of queries and keys with a gathered cos/sin table."""


def reference(inputs, sizes, scalars, xp):
    """Both rotations in float64 from the stored bf16 values and fp32 table."""
    half = sizes["head_dim"] // 2
    rows = xp.take(inputs["cos_sin"], inputs["position"], axis=0)
    cos, sin = rows[:, None, :half], rows[:, None, half:]
    rotate = _rotate_interleaved if sizes["interleaved"] else _rotate_halved
    return {
        "q_out": rotate(inputs["q"], cos, sin, xp),
        "k_out": rotate(inputs["k"], cos, sin, xp),
    }


def _rotate_halved(x, cos, sin, xp):
    half = x.shape[-1] // 2
    first, second = x[..., :half], x[..., half:]
    return xp.concat([first * cos - second * sin, second * cos + first * sin], axis=-1)


def _rotate_interleaved(x, cos, sin, xp):
    first, second = x[..., 0::2], x[..., 1::2]
    pairs = xp.stack([first * cos - second * sin, second * cos + first * sin], axis=-1)
    return xp.reshape(pairs, x.shape)


def flops(sizes):
    """Four multiplications and two additions for each pair."""
    heads = sizes["q_heads"] + sizes["k_heads"]
    return 3.0 * sizes["tokens"] * heads * sizes["head_dim"]
