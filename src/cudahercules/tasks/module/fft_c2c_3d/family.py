"""Batched forward complex Fourier transforms of three dimensions."""

import math


def reference(inputs, sizes, scalars, xp):
    """The library's transform in complex128."""
    return {"y": xp.fft.fftn(inputs["x"], axes=(-3, -2, -1))}


def flops(sizes):
    """5 N log2 N a transform of N points, the usual count."""
    points = sizes["depth"] * sizes["height"] * sizes["width"]
    return 5.0 * points * math.log2(points) * sizes["batch"]
