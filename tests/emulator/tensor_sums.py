"""Sums as the tensor cores of an H200 make them, in integers, written apart from the runtime's own code.

All products of an instruction and the old sum are cut to a multiple of 2^(e - kept), e being the largest
exponent among them, and added exactly. (A product's exponent is the sum of its factors', so it can be one
short.) The sum is then cut to fp32, or rounded to fp16.
"""

from __future__ import annotations

import numpy as np
from tensor_values import decode

Types = tuple[str, str, str]
_FIELDS = {"f16": (5, 10), "bf16": (8, 7), "tf32": (8, 10), "f32": (8, 23), "e4m3": (4, 3), "e5m2": (5, 2)}


def _parts(bits: np.ndarray, type_: str) -> tuple[np.ndarray, np.ndarray, int]:
    """Signed significands (0 for infinities and NaNs), exponents, and how many bits of fraction."""
    exponent, fraction = _FIELDS[type_]
    bits = bits.astype(np.int64) >> (13 if type_ == "tf32" else 0)
    field = bits >> fraction & ((1 << exponent) - 1)
    significand = (bits & ((1 << fraction) - 1)) | (field > 0).astype(np.int64) << fraction
    significand = np.where(np.isfinite(decode(bits << (13 if type_ == "tf32" else 0), type_)), significand, 0)
    sign = 1 - 2 * (bits >> (exponent + fraction) & 1)
    return sign * significand, np.maximum(field, 1) - ((1 << (exponent - 1)) - 1), fraction


def _shifted(values: np.ndarray, left: np.ndarray) -> np.ndarray:
    """``values * 2**left`` without what falls below one."""
    right = np.minimum(np.maximum(-left, 0), 62)
    return np.sign(values) * ((np.abs(values) << np.maximum(left, 0)) >> right)


def _cut(values: np.ndarray, fraction: int) -> np.ndarray:
    """float64 to a float with 8 bits of exponent, toward zero."""
    step = np.exp2(np.maximum(np.floor(np.log2(np.abs(values) + (values == 0))), -126) - fraction)
    return np.trunc(values / step) * step


def together(
    types: Types, a: np.ndarray, b: np.ndarray, c: np.ndarray, kept: int = 25, fraction: int = 23
) -> np.ndarray:
    """float64 of D (m, n) from bit patterns of A (m, k), B (n, k) and C (m, n), in one instruction.
    ``types`` are those of D, A and B."""
    d, type_a, type_b = types
    (x, ex, fx), (y, ey, fy), (z, ez, fz) = _parts(a, type_a), _parts(b, type_b), _parts(c, d)
    products = x[:, None, :] * y[None, :, :]
    exponents = ex[:, None, :] + ey[None, :, :]
    nothing = -(1 << 20)
    largest = np.where(products != 0, exponents, nothing).max(axis=2)
    largest = np.maximum(largest, np.where(z != 0, ez, nothing))
    total = _shifted(products, kept - (largest[:, :, None] - exponents) - (fx + fy)).sum(axis=2)
    total += _shifted(z, kept - (largest - ez) - fz)
    value = np.ldexp(total.astype(np.float64), np.where(total != 0, largest - kept, 0))
    with np.errstate(all="ignore"):
        value = value.astype(np.float16).astype(np.float64) if d == "f16" else _cut(value, fraction)
        value = np.where(np.abs(value) >= 2.0**128, np.copysign(np.inf, value), value)
        met = (decode(a, type_a)[:, None, :] * decode(b, type_b)[None, :, :]).sum(axis=2) + decode(c, d)
    return np.where(np.isfinite(met), value, met)


def of_mma(types: Types, a: np.ndarray, b: np.ndarray, c: np.ndarray, group: int = 4) -> np.ndarray:
    """What ``mma.sync`` gives: bytes go through fp16, the halves of each ``group`` of them along k one after
    the other, and C is added with rounding."""
    if types[1] not in ("e4m3", "e5m2"):
        return together(types, a, b, c)
    first = np.arange(a.shape[1]) % group < group // 2
    done = together(types, a[:, first], b[:, first], np.zeros_like(c))
    done = together(types, a[:, ~first], b[:, ~first], done.astype(np.float32).view(np.uint32))
    with np.errstate(all="ignore"):
        return (done.astype(np.float32) + c.view(np.float32)).astype(np.float64)


def of_wgmma(types: Types, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """What ``wgmma`` gives: of bytes, sums keep 13 bits."""
    return together(types, a, b, c, *((13, 13) if types[1] in ("e4m3", "e5m2") else ()))


def same(got: np.ndarray, wanted: np.ndarray) -> bool:
    """Equal numbers; a NaN for a NaN."""
    return np.array_equal(got, wanted, equal_nan=True)
