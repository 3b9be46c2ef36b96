"""Floating-point PTX instructions by exact rational arithmetic: slow, and independent of the C++.

A value is None (a NaN), or a pair (sign, magnitude) with the magnitude a Fraction or INFINITY.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

INFINITY = math.inf
FORMATS = {  # exponent bits, mantissa bits, has an infinity
    "f64": (11, 52, True),
    "f32": (8, 23, True),
    "tf32": (8, 10, True),
    "f16": (5, 10, True),
    "bf16": (8, 7, True),
    "e5m2": (5, 2, True),
    "e4m3": (4, 3, False),
    "e3m2": (3, 2, False),
    "e2m3": (2, 3, False),
    "e2m1": (2, 1, False),
}
CANONICAL = {"f32": 0x7FFFFFFF, "f16": 0x7FFF, "bf16": 0x7FFF, "tf32": 0x3FFFF, "e5m2": 0x7F, "e4m3": 0x7F}
LARGEST = {"e4m3": 0x7E, "e3m2": 0x1F, "e2m3": 0x1F, "e2m1": 0x7}

Value = tuple[int, Fraction | float] | None


class AnyNan:
    """Any NaN of the type will do."""


@dataclass(frozen=True)
class Near:
    """A value that approximate instructions must come close to."""

    value: float
    relative: float
    absolute: float = 0.0


def decode(format_: str, word: int) -> Value:
    exponent_bits, mantissa_bits, infinity = FORMATS[format_]
    sign = word >> (exponent_bits + mantissa_bits) & 1
    exponent = word >> mantissa_bits & ((1 << exponent_bits) - 1)
    mantissa = word & ((1 << mantissa_bits) - 1)
    if infinity and exponent == (1 << exponent_bits) - 1:
        return None if mantissa else (sign, INFINITY)
    if format_ == "e4m3" and word & 0x7F == 0x7F:
        return None
    bias = (1 << (exponent_bits - 1)) - 1
    significand = mantissa + (1 << mantissa_bits if exponent else 0)
    return sign, Fraction(significand) * Fraction(2) ** (max(exponent, 1) - bias - mantissa_bits)


def flush(format_: str, value: Value) -> Value:
    exponent_bits, _, _ = FORMATS[format_]
    least = Fraction(2) ** (2 - (1 << (exponent_bits - 1)))
    if value is not None and value[1] < least:
        return value[0], Fraction(0)
    return value


def floor_log2(x: Fraction) -> int:
    guess = x.numerator.bit_length() - x.denominator.bit_length()
    return guess if Fraction(2) ** guess <= x else guess - 1


def round_integer(sign: int, x: Fraction, mode: str) -> int:
    """The magnitude x as an integer; ``mode`` is rn, rz, rm, rp or rna."""
    below = x.numerator // x.denominator
    rest = x - below
    half = Fraction(1, 2)
    up = {
        "rn": rest > half or (rest == half and below % 2 == 1),
        "rna": rest >= half,
        "rz": False,
        "rm": bool(sign) and rest > 0,
        "rp": not sign and rest > 0,
    }[mode]
    return below + up


def round_to_precision(format_: str, sign: int, x: Fraction, mode: str, unbounded: bool = False) -> Fraction:
    exponent_bits, mantissa_bits, _ = FORMATS[format_]
    exponent = floor_log2(x)
    if not unbounded:
        exponent = max(exponent, 2 - (1 << (exponent_bits - 1)))
    unit = Fraction(2) ** (exponent - mantissa_bits)
    return round_integer(sign, x / unit, mode) * unit


def encode(format_: str, value: Value, mode: str = "rn", satfinite: bool = False, ftz: bool = False) -> int:
    """The bits of a value rounded to a format; a NaN gives the canonical one."""
    exponent_bits, mantissa_bits, infinity = FORMATS[format_]
    if value is None:
        return CANONICAL.get(format_, LARGEST.get(format_, 0))
    sign, x = value
    top = sign << (exponent_bits + mantissa_bits)
    infinite = ((1 << exponent_bits) - 1) << mantissa_bits
    largest = infinite - 1 if infinity else LARGEST[format_]
    if x == INFINITY:
        return top | (infinite if infinity and not satfinite else largest)
    if x == 0:
        return top
    bias = (1 << (exponent_bits - 1)) - 1
    if ftz and round_to_precision(format_, sign, x, mode, unbounded=True) < Fraction(2) ** (1 - bias):
        return top
    rounded = round_to_precision(format_, sign, x, mode)
    if rounded == 0:
        return top
    exponent = max(floor_log2(rounded), 1 - bias)
    significand = int(rounded / Fraction(2) ** (exponent - mantissa_bits))
    code = significand + ((exponent + bias - 1) << mantissa_bits)
    if code <= largest:
        return top | code
    to_largest = (
        satfinite or not infinity or mode == "rz" or (mode == "rm" and not sign) or (mode == "rp" and sign)
    )
    return top | (largest if to_largest else infinite)


def add(a: Value, b: Value, mode: str) -> Value:
    if a is None or b is None:
        return None
    if a[1] == INFINITY or b[1] == INFINITY:
        if a[1] == b[1] and a[0] != b[0]:
            return None
        return a if a[1] == INFINITY else b
    total = (-a[1] if a[0] else a[1]) + (-b[1] if b[0] else b[1])
    if total == 0:
        zero_sign = a[0] if a[0] == b[0] else int(mode == "rm")
        return zero_sign, Fraction(0)
    return int(total < 0), abs(total)


def multiply(a: Value, b: Value) -> Value:
    if a is None or b is None:
        return None
    sign = a[0] ^ b[0]
    if INFINITY in (a[1], b[1]):
        return None if 0 in (a[1], b[1]) else (sign, INFINITY)
    return sign, a[1] * b[1]


def divide(a: Value, b: Value) -> Value:
    if a is None or b is None:
        return None
    sign = a[0] ^ b[0]
    if a[1] == INFINITY:
        return None if b[1] == INFINITY else (sign, INFINITY)
    if b[1] == INFINITY:
        return sign, Fraction(0)
    if b[1] == 0:
        return None if a[1] == 0 else (sign, INFINITY)
    return sign, a[1] / b[1]


def square_root(a: Value) -> Value:
    """Exact to 200 bits with a sticky last bit, which rounds as the exact root does."""
    if a is None or a[1] == 0:
        return a
    if a[0]:
        return None
    if a[1] == INFINITY:
        return a
    shift = 400 - 2 * (floor_log2(a[1]) // 2)
    scaled = a[1] * Fraction(2) ** shift
    whole = scaled.numerator // scaled.denominator
    root = math.isqrt(whole)
    if root * root != scaled:
        root = root * 2 + 1
        shift += 2
    return 0, Fraction(root) / Fraction(2) ** (shift // 2)


def negate(a: Value) -> Value:
    return None if a is None else (1 - a[0], a[1])


def signed(a: Value) -> Fraction | float:
    assert a is not None
    return -a[1] if a[0] else a[1]


def order(a: Value, b: Value) -> str:
    """lt, eq, gt, or un (unordered)."""
    if a is None or b is None:
        return "un"
    x, y = signed(a), signed(b)
    return "lt" if x < y else "gt" if x > y else "eq"


COMPARISONS = {
    "eq": {"eq"},
    "ne": {"lt", "gt"},
    "lt": {"lt"},
    "le": {"lt", "eq"},
    "gt": {"gt"},
    "ge": {"gt", "eq"},
    "num": {"lt", "eq", "gt"},
    "nan": {"un"},
}
COMPARISONS |= {f"{name}u": COMPARISONS[name] | {"un"} for name in ("eq", "ne", "lt", "le", "gt", "ge")}


def smaller(a: Value, b: Value, modifiers: frozenset[str], largest: bool) -> Value:
    """min and max: a number beats a NaN unless .NaN is given; -0 lies below +0."""
    if a is None or b is None:
        return None if "NaN" in modifiers or a is b is None else (b if a is None else a)
    key_a, key_b = (signed(a), 1 - a[0]), (signed(b), 1 - b[0])
    return max((key_a, a), (key_b, b))[1] if largest else min((key_a, a), (key_b, b))[1]


def saturate(value: Value) -> Value:
    if value is None or value[0]:
        return 0, Fraction(0)
    return 0, min(value[1], Fraction(1)) if value[1] != INFINITY else Fraction(1)


def to_float(value: Value) -> float:
    if value is None:
        return math.nan
    sign, x = value
    return math.copysign(float(x), -1.0 if sign else 1.0)
