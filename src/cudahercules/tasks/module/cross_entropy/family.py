"""Cross entropy over a vocabulary: every token's loss, and the gradient of their sum."""


def reference(inputs, sizes, scalars, xp):
    """The maximum is taken away first; everything in float64."""
    logits, labels = inputs["logits"], inputs["labels"]
    counts = labels != scalars["ignore_index"]
    classes = xp.arange(sizes["vocabulary"], dtype=labels.dtype, device=labels.device)
    is_label = (classes[None, :] == labels[:, None]) & counts[:, None]

    shifted = logits - xp.max(logits, axis=1, keepdims=True)
    zero = xp.zeros_like(shifted[:1, :1])
    at_label = xp.sum(xp.where(is_label, shifted, zero), axis=1)
    weights = xp.exp(shifted)
    sums = xp.sum(weights, axis=1)
    loss = xp.where(counts, xp.log(sums) - at_label, zero[0])

    factor = xp.where(counts, scalars["grad_scale"] / sums, zero[0])
    gradient = weights * factor[:, None]
    return {"loss": loss, "dlogits": xp.where(is_label, gradient - scalars["grad_scale"], gradient)}


def flops(sizes):
    """Maximum, difference, exponential, sum, scaling and the label's term: one operation each."""
    return 6.0 * sizes["rows"] * sizes["vocabulary"]
