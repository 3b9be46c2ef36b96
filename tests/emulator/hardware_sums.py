"""Operands that show how tensor cores add: wide exponents, zeros, the ends of the range, sums that cancel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tensor_values import NP

FIELDS = {"f16": (5, 10), "bf16": (8, 7), "tf32": (8, 23), "f32": (8, 23), "e4m3": (4, 3), "e5m2": (5, 2)}
"""Bits of exponent and fraction. tf32 with the low bits that do not count."""
KINDS = ("spread", "zeros", "low", "high", "any", "cancel")
_SPREAD = {4: (1, 15), 5: (3, 28), 8: (115, 140)}
_LOW = {4: (0, 3), 5: (0, 4), 8: (0, 8)}
_HIGH = {4: (12, 16), 5: (26, 31), 8: (180, 200)}
Triple = tuple[np.ndarray, np.ndarray, np.ndarray]


def _floats(
    generator: np.random.Generator, type_: str, shape: tuple[int, ...], fields: tuple[int, int]
) -> np.ndarray:
    """Bit patterns with exponent fields in [low, high)."""
    exponent, fraction = FIELDS[type_]
    bits = generator.integers(*fields, shape) << fraction
    bits |= generator.integers(0, 1 << fraction, shape)
    bits |= generator.integers(0, 2, shape) << (exponent + fraction)
    return bits.astype(NP[type_])


def _sign(type_: str) -> int:
    return 1 << sum(FIELDS[type_])


def operands(kind: str, types: tuple[str, str, str], shapes: Sequence[tuple[int, int]], seed: int) -> Triple:
    """Bit patterns of A (rows, k), B (columns, k) and C (rows, columns). ``types`` are those of D, A, B."""
    generator = np.random.default_rng([seed, KINDS.index(kind)])
    named = [(types[1], shapes[0]), (types[2], shapes[1]), (types[0], shapes[2])]
    if kind == "any":
        a, b, c = (_any(generator, type_, shape) for type_, shape in named)
        return a, b, c
    table = {"low": _LOW, "high": _HIGH}.get(kind, _SPREAD)
    a, b, c = (_floats(generator, t, shape, table[FIELDS[t][0]]) for t, shape in named)
    if kind == "low" and FIELDS[types[2]][0] == 8:  # products around the smallest normal number
        b = _floats(generator, types[2], shapes[1], (120, 135))
    if kind in ("low", "spread", "cancel") and types[0] == "f32" and FIELDS[types[1]][0] < 8:
        c = _floats(generator, "f32", shapes[2], (70, 110) if kind == "low" else (100, 150))
    if kind == "high" and types[0] == "f32":
        c = _floats(generator, "f32", shapes[2], (240, 255) if FIELDS[types[1]][0] == 8 else (150, 165))
    if kind == "zeros":
        a, b, c = (
            np.where(generator.random(x.shape) < share, x & x.dtype.type(_sign(t)), x)
            for x, (t, _), share in zip((a, b, c), named, (0.6, 0.6, 0.5), strict=True)
        )
    if kind == "cancel":
        a[:, 1::2] = a[:, ::2] ^ a.dtype.type(_sign(types[1]))
        b[:, 1::2] = b[:, ::2]
        low = b.dtype.type(1 << 13 if types[2] == "tf32" else 1)
        b[:, 1::8] ^= low  # some products differ in their last bits
        c = np.where(generator.random(c.shape) < 0.3, c & c.dtype.type(_sign(types[0])), c)
    return a, b, c


def _any(generator: np.random.Generator, type_: str, shape: tuple[int, ...]) -> np.ndarray:
    """All bit patterns, with few infinities and NaNs."""
    exponent, _ = FIELDS[type_]
    finite = _floats(generator, type_, shape, (0, (1 << exponent) - 1))
    wild = _floats(generator, type_, shape, (0, 1 << exponent))
    return np.where(generator.random(shape) < 1 / 16, wild, finite)
