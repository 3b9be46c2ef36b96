"""Layer normalisation forward with weight and bias; the statistics are outputs."""


def reference(inputs, sizes, scalars, xp):
    """Two passes in float64."""
    x = inputs["x"]
    mean = xp.mean(x, axis=1, keepdims=True)
    centred = x - mean
    variance = xp.mean(centred * centred, axis=1, keepdims=True)
    rstd = 1.0 / xp.sqrt(variance + scalars["eps"])
    return {
        "z": centred * rstd * inputs["weight"] + inputs["bias"],
        "mean": mean[:, 0],
        "rstd": rstd,
    }


def flops(sizes):
    """Mean 1, variance 3, normalise and scale 4 operations an element."""
    return 8.0 * sizes["rows"] * sizes["hidden"]
