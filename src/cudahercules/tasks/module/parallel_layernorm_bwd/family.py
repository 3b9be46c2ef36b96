"""Gradients of two layer normalisations of one sum: of the sum's parts, of both weights and both biases."""


def reference(inputs, sizes, scalars, xp):
    """The formula of the prompt in float64; mean and rstd are taken as they are given."""
    mean, rstd = inputs["mean"][:, None], inputs["rstd"][:, None]
    dz0, dz1 = inputs["dz0"], inputs["dz1"]
    normal = (inputs["x"] - mean) * rstd
    gradient = dz0 * inputs["weight0"] + dz1 * inputs["weight1"]
    a = xp.mean(gradient * normal, axis=1, keepdims=True)
    b = xp.mean(gradient, axis=1, keepdims=True)
    return {
        "dx0": inputs["dx"] + rstd * (gradient - b - normal * a),
        "dweight0": xp.sum(dz0 * normal, axis=0),
        "dbias0": xp.sum(dz0, axis=0),
        "dweight1": xp.sum(dz1 * normal, axis=0),
        "dbias1": xp.sum(dz1, axis=0),
    }


def flops(sizes):
    """Normalise 2, weigh 3, the row's sums 3, dx0 5, the columns' sums 6 operations an element."""
    return 19.0 * sizes["rows"] * sizes["hidden"]
