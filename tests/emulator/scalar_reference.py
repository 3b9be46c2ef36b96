"""What a scalar PTX instruction gives, from its name and the raw bits of its sources.

``expected`` returns one entry for each destination: an int (exact bits), AnyNan, or Near.
"""

from __future__ import annotations

import math
from fractions import Fraction

import scalar_reference_float as fp
import scalar_reference_int as integer
from scalar_reference_float import AnyNan, Near, Value

from cudahercules.emulator.ptx import ir

Expected = int | type[AnyNan] | Near
FLOATS = ("f16", "bf16", "f32", "f64")
APPROXIMATE = {"sin", "cos", "lg2", "ex2", "tanh", "rsqrt"}
CARRY = {"addc", "subc", "madc"}


def expected(name: str, words: tuple[int, ...]) -> list[Expected]:
    opcode, *parts = name.split(".")
    types = tuple(part for part in parts if ir.is_type(part))
    modifiers = frozenset(part for part in parts if not ir.is_type(part))
    type_ = types[-1]
    if opcode in CARRY or "cc" in modifiers:
        return list(integer.carry(opcode, modifiers, int(type_[1:]), *_typed(type_, words[:-1]), words[-1]))
    if opcode == "cvt":
        return [_cvt(modifiers, types, words)]
    if opcode == "setp":
        return _setp(modifiers, type_, words)
    if opcode == "set":
        return [_set(modifiers, types, words)]
    if opcode in ("selp", "slct", "copysign", "testp"):
        return [_choice(opcode, modifiers, types, words)]
    if type_ in ("f16x2", "bf16x2", "f32x2"):
        return [_packed(opcode, modifiers, type_, words)]
    if type_ in FLOATS:
        return [_float(opcode, modifiers, types, words)]
    if type_ in ("u16x2", "s16x2"):
        return [_packed_int(opcode, modifiers, type_, words)]
    return _integer(opcode, modifiers, types, words)


def _typed(type_: str, words: tuple[int, ...]) -> list[int]:
    return [integer.number(type_, word) for word in words]


# ---- integers ------------------------------------------------------------------------------------------


def _integer(
    opcode: str, modifiers: frozenset[str], types: tuple[str, ...], words: tuple[int, ...]
) -> list[Expected]:
    type_ = types[-1]
    width = 1 if type_ == "pred" else int(type_[1:])
    full = integer.mask(width)
    if opcode in integer.ARITHMETIC:
        values = _typed(type_, words)
        if "wide" in modifiers:
            width *= 2
            if opcode == "mad":
                values[2] = integer.number(f"{type_[0]}{width}", words[2])
        return [integer.ARITHMETIC[opcode](modifiers, type_, *values) & integer.mask(width)]
    a, b, c, d = (*words, 0, 0, 0, 0)[:4]
    if opcode == "lop3":
        value = integer.lop3(a, b, c, d)
        if len(words) == 4:
            return [value]
        return [value, _combine(modifiers, int(value != 0), words[4])]
    result = {
        "and": lambda: a & b,
        "or": lambda: a | b,
        "xor": lambda: a ^ b,
        "not": lambda: ~a & full,
        "cnot": lambda: int(a == 0),
        "shl": lambda: integer.shift(opcode, type_, a, b) & full,
        "shr": lambda: integer.shift(opcode, type_, integer.number(type_, a), b) & full,
        "shf": lambda: integer.funnel(modifiers, a, b, c) & full,
        "bfe": lambda: integer.bfe(type_, a, b, c),
        "bfi": lambda: integer.bfi(width, a, b, c, d),
        "bfind": lambda: integer.bfind(modifiers, type_, integer.number(type_, a)),
        "brev": lambda: integer.brev(width, a),
        "clz": lambda: width - a.bit_length(),
        "popc": lambda: a.bit_count(),
        "fns": lambda: integer.fns(a, b, integer.as_signed(c, 32)),
        "szext": lambda: integer.szext(modifiers, type_, a, b) & full,
        "bmsk": lambda: integer.bmsk(modifiers, a, b) & full,
        "prmt": lambda: integer.prmt(next(iter(modifiers), ""), a, b, c),
        "dp4a": lambda: integer.dot(modifiers, opcode, types, a, b, c) & full,
        "dp2a": lambda: integer.dot(modifiers, opcode, types, a, b, c) & full,
    }.get(opcode, lambda: integer.video(opcode, modifiers, types, a, b, c) & full)
    return [result()]


def _packed_int(opcode: str, modifiers: frozenset[str], type_: str, words: tuple[int, ...]) -> int:
    half = type_[:-2]
    result = 0
    for shift in (0, 16):
        values = [integer.number(half, word >> shift) for word in words]
        result |= (integer.ARITHMETIC[opcode](modifiers, half, *values) & 0xFFFF) << shift
    return result


# ---- comparisons and choices ---------------------------------------------------------------------------

_INTEGER_NAMES = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


def _combine(modifiers: frozenset[str], first: int, second: int) -> int:
    if "and" in modifiers:
        return first & second
    if "or" in modifiers:
        return first | second
    return first ^ second if "xor" in modifiers else first


def _compare(modifiers: frozenset[str], type_: str, a: int, b: int) -> int:
    names = [_INTEGER_NAMES.get(m, m) for m in modifiers]
    name = next(n for n in names if n in fp.COMPARISONS)
    if type_ in FLOATS:
        x, y = (fp.decode(type_, word) for word in (a, b))
        if "ftz" in modifiers:
            x, y = fp.flush(type_, x), fp.flush(type_, y)
        return int(fp.order(x, y) in fp.COMPARISONS[name])
    x, y = _typed("u" + type_[1:] if type_[0] == "b" else type_, (a, b))
    return int(("lt" if x < y else "gt" if x > y else "eq") in fp.COMPARISONS[name])


def _setp(modifiers: frozenset[str], type_: str, words: tuple[int, ...]) -> list[Expected]:
    a, b, c = (*words, 0)[:3]
    if type_.endswith("x2"):
        tests = [_compare(modifiers, type_[:-2], a >> s & 0xFFFF, b >> s & 0xFFFF) for s in (0, 16)]
        return [_combine(modifiers, test, c) for test in tests]
    test = _compare(modifiers, type_, a, b)
    results: list[Expected] = [_combine(modifiers, test, c)]
    if type_ not in ("f16", "bf16"):
        results.append(_combine(modifiers, 1 - test, c))
    return results


_ONE = {"f32": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80}


def _set(modifiers: frozenset[str], types: tuple[str, ...], words: tuple[int, ...]) -> int:
    target, source = types
    a, b, c = (*words, 0)[:3]
    if source.endswith("x2"):
        one = _ONE[target[:-2]] if target.endswith("x2") else 0xFFFF
        return sum(
            (one if _compare(modifiers, source[:-2], a >> s & 0xFFFF, b >> s & 0xFFFF) else 0) << s
            for s in (0, 16)
        )
    if not _combine(modifiers, _compare(modifiers, source, a, b), c):
        return 0
    return _ONE[target] if target in _ONE else integer.mask(int(target[1:]))


def _choice(opcode: str, modifiers: frozenset[str], types: tuple[str, ...], words: tuple[int, ...]) -> int:
    a, b, c = (*words, 0, 0)[:3]
    if opcode == "selp":
        return a if c else b
    if opcode == "slct":
        if types[1] == "s32":
            return a if integer.as_signed(c, 32) >= 0 else b
        value = fp.decode("f32", c)
        if "ftz" in modifiers:
            value = fp.flush("f32", value)
        return a if value is not None and fp.signed(value) >= 0 else b
    width = int(types[0][1:])
    if opcode == "copysign":
        sign = 1 << (width - 1)
        return (a & sign) | (b & (sign - 1))
    value = fp.decode(types[0], a)
    finite = value is not None and value[1] != fp.INFINITY
    flushed = fp.flush(types[0], value)
    subnormal = finite and flushed != value
    (test,) = modifiers
    return int(
        {
            "finite": finite,
            "infinite": value is not None and not finite,
            "number": value is not None,
            "notanumber": value is None,
            "normal": finite and not subnormal,
            "subnormal": subnormal,
        }[test]
    )


# ---- floating point ------------------------------------------------------------------------------------


def _packed(opcode: str, modifiers: frozenset[str], type_: str, words: tuple[int, ...]) -> Expected:
    half = type_[:-2]
    width = ir.bits(half)
    parts = [
        _float(opcode, modifiers, (half,), tuple(word >> s & integer.mask(width) for word in words))
        for s in (0, width)
    ]
    if all(isinstance(part, int) for part in parts):
        return parts[0] | parts[1] << width  # type: ignore[operator]
    return Pair(half, parts)  # type: ignore[return-value]


class Pair:
    """Expectations of the halves of a packed result."""

    def __init__(self, half: str, parts: list[Expected]) -> None:
        self.half, self.parts = half, parts


def _mode(modifiers: frozenset[str]) -> str:
    return next((m for m in ("rn", "rz", "rm", "rp", "rna") if m in modifiers), "rn")


def _float(
    opcode: str, modifiers: frozenset[str], types: tuple[str, ...], words: tuple[int, ...]
) -> Expected:
    target, source = types[0], types[-1]
    mixed = len(types) == 2  # .f32.f16: the last operand and the result are f32
    formats = [source] * len(words)
    if mixed:
        formats[-1] = "f32"
    ftz = "ftz" in modifiers
    if ftz and source == "f64":  # the approximate functions see the upper word alone
        words = tuple(word & ~0xFFFFFFFF for word in words)
    values = [fp.decode(format_, word) for format_, word in zip(formats, words, strict=True)]
    if ftz:
        values = [fp.flush(format_, value) for format_, value in zip(formats, values, strict=True)]
    if opcode in APPROXIMATE or "approx" in modifiers or "full" in modifiers:
        return _approximate(opcode, modifiers, target, values)
    if opcode in ("neg", "abs"):
        if values[0] is None:
            return AnyNan if target in ("f32", "f64") else fp.CANONICAL[target]
        value = fp.negate(values[0]) if opcode == "neg" else (0, values[0][1])
        return fp.encode(target, value)
    if opcode in ("min", "max"):
        if "abs" in modifiers:
            values = [value and (0, value[1]) for value in values]
        value = values[0]
        for other in values[1:]:
            value = fp.smaller(value, other, modifiers, opcode == "max")
        if "xorsign" in modifiers and value is not None:
            top = ir.bits(target) - 1  # a NaN's sign counts too
            value = (words[0] ^ words[1]) >> top & 1, value[1]
        return AnyNan if value is None and target == "f64" else fp.encode(target, value)
    mode = _mode(modifiers)
    exact = _arithmetic(opcode, mode, values)
    if "sat" in modifiers:
        bits = fp.encode(target, exact, mode, ftz=ftz)
        return fp.encode(target, fp.saturate(None if exact is None else fp.decode(target, bits)))
    if exact is None:
        return fp.CANONICAL[target] if target in ("f16", "bf16") else AnyNan
    if "relu" in modifiers and exact[0]:
        return 0
    return fp.encode(target, exact, mode, ftz=ftz)


def _arithmetic(opcode: str, mode: str, values: list[Value]) -> Value:
    if opcode == "add":
        return fp.add(values[0], values[1], mode)
    if opcode == "sub":
        return fp.add(values[0], fp.negate(values[1]), mode)
    if opcode == "mul":
        return fp.multiply(values[0], values[1])
    if opcode in ("fma", "mad"):
        return fp.add(fp.multiply(values[0], values[1]), values[2], mode)
    if opcode == "div":
        return fp.divide(values[0], values[1])
    if opcode == "rcp":
        return fp.divide((0, Fraction(1)), values[0])
    assert opcode == "sqrt", opcode
    return fp.square_root(values[0])


_BOUNDS = {  # (relative, absolute) error that the PTX manual states, plus half an ulp of the type
    "f32": {
        "sin": (0, 2.0**-20.5),
        "cos": (0, 2.0**-20.5),
        "lg2": (2.0**-22, 2.0**-22),
        "tanh": (2.0**-11, 0),
        "div": (2.0**-22, 0),
    },
    "f16": {"ex2": (2.0**-9.9, 2.0**-24), "tanh": (2.0**-10, 2.0**-10.9)},
    "bf16": {"ex2": (2.0**-7, 0), "tanh": (2.0**-8, 0)},
    "f64": {"rcp": (2.0**-20, 0), "rsqrt": (2.0**-20, 0)},
}


def _approximate(opcode: str, modifiers: frozenset[str], target: str, values: list[Value]) -> Expected:
    relative, absolute = _BOUNDS[target].get(opcode, (2.0**-22.5, 0))
    absolute += 2.0**-149 if target == "f32" else 0.0
    if "ftz" in modifiers and target != "f64":
        absolute += 2.0**-126
    if opcode == "rcp" and target == "f64":
        absolute += 2.0**-1022
    if any(value is None for value in values):
        return AnyNan
    x = fp.to_float(values[0])
    if opcode == "div":
        divisor = fp.signed(values[1])
        if "approx" in modifiers and 2**126 < abs(divisor) < fp.INFINITY:
            return AnyNan if math.isinf(x) else Near(0.0, 0)
        quotient = fp.divide(values[0], values[1])
        return AnyNan if quotient is None else Near(fp.to_float(quotient), relative, absolute)
    if opcode in ("rcp", "sqrt", "rsqrt"):
        root = fp.square_root(values[0]) if "sqrt" in opcode else values[0]
        exact = root if opcode == "sqrt" else fp.divide((0, Fraction(1)), root)
        return AnyNan if exact is None else Near(_float_or_infinity(exact), relative, absolute)
    if opcode in ("sin", "cos"):
        if math.isinf(x):
            return AnyNan
        angle_error = abs(x) * 2.0**-22  # the angle in turns is rounded to fp32
        return Near(getattr(math, opcode)(x), 0, absolute + angle_error)
    if opcode == "lg2":
        if x < 0:
            return AnyNan
        return Near(-math.inf if x == 0 else math.log2(x), relative, absolute)
    if opcode == "ex2":
        return Near(2.0**x if x < 1000 else math.inf, relative, absolute)
    assert opcode == "tanh", opcode
    return Near(math.tanh(x), relative, absolute)


def _float_or_infinity(value: Value) -> float:
    assert value is not None
    try:
        return fp.to_float(value)
    except OverflowError:
        return math.inf


# ---- conversions ---------------------------------------------------------------------------------------


def _cvt(modifiers: frozenset[str], types: tuple[str, ...], words: tuple[int, ...]) -> Expected:
    if "pack" in modifiers:
        return integer.cvt_pack(types, *(*words, 0)[:3])
    target, source = types[0], types[1]
    if target.endswith("x2") or source.endswith("x2"):
        return _cvt_pair(modifiers, target, source, words)
    return _cvt_one(modifiers, target, source, words[0])


def _cvt_one(modifiers: frozenset[str], target: str, source: str, word: int) -> Expected:
    mode = _mode(modifiers)
    integral = next((m[:-1] for m in modifiers if m in ("rni", "rzi", "rmi", "rpi")), "")
    if source not in FLOATS:
        number = integer.number(source, word)
        if target not in FLOATS:
            if "sat" in modifiers:
                number = integer.clamp(target, number)
            return number & integer.mask(int(target[1:]))
        bits = fp.encode(target, (int(number < 0), Fraction(abs(number))), mode)
        return fp.encode(target, fp.saturate(fp.decode(target, bits))) if "sat" in modifiers else bits
    value = fp.decode(source, word)
    if "ftz" in modifiers and source == "f32" and target != "f16":
        value = fp.flush(source, value)
    if target not in FLOATS and target != "tf32":
        return _to_integer(integral, target, source, value)
    if integral and value is not None and value[1] != fp.INFINITY:
        value = value[0], Fraction(fp.round_integer(value[0], Fraction(value[1]), integral))
    return _to_float(modifiers, target, source, word, value)


def _to_integer(mode: str, target: str, source: str, value: Value) -> int:
    width = int(target[1:])
    if value is None:
        return 1 << (width - 1) if source == "f64" or width == 64 else 0
    low, high = integer.limits(target)
    if value[1] == fp.INFINITY:
        return (low if value[0] else high) & integer.mask(width)
    magnitude = fp.round_integer(value[0], Fraction(value[1]), mode)
    return integer.clamp(target, -magnitude if value[0] else magnitude) & integer.mask(width)


def _to_float(modifiers: frozenset[str], target: str, source: str, word: int, value: Value) -> Expected:
    if value is None and "rna" in modifiers and "satfinite" not in modifiers:
        return word & 0xFFFFE000  # an H200 only clears the bits
    if value is None and "sat" not in modifiers:
        if "relu" not in modifiers and (
            source == "f64" or target == "f64" or target == source or target == "tf32"
        ):
            return AnyNan
        if source == "bf16" and target == "f32" and "ftz" not in modifiers:
            return word << 16
        return fp.CANONICAL[target] << 13 if target == "tf32" else fp.CANONICAL[target]
    if "relu" in modifiers and value is not None and (value[0] or value[1] == 0):
        return 0
    bits = fp.encode(target, value, _mode(modifiers), satfinite="satfinite" in modifiers)
    if "ftz" in modifiers and target == "f32":
        bits = fp.encode(target, fp.flush(target, fp.decode(target, bits)))
    if "sat" in modifiers:
        return fp.encode(target, fp.saturate(None if value is None else fp.decode(target, bits)))
    return bits << 13 if target == "tf32" else bits


def _cvt_pair(modifiers: frozenset[str], target: str, source: str, words: tuple[int, ...]) -> int:
    small = target[:-2] if target.endswith("x2") else target
    if source.endswith("x2"):
        format_ = source[:-2]
        width = 16 if format_ in ("f16", "bf16") else 4 if format_ == "e2m1" else 8
        sources = [words[0] >> width & integer.mask(width), words[0] & integer.mask(width)]
    else:
        format_, sources = source, list(words)
    out_width = 16 if small in ("f16", "bf16") else 4 if small == "e2m1" else 8
    high, low = (_small(modifiers, small, format_, word) for word in sources)
    return high << out_width | low


def _small(modifiers: frozenset[str], target: str, source: str, word: int) -> int:
    if source == "ue8m0":
        value: Value = None if word == 0xFF else (0, Fraction(2) ** (word - 127))
    else:
        value = fp.decode(source, word)
    if target == "ue8m0":
        return _power_of_two("rp" in modifiers, "satfinite" in modifiers, value)
    if value is not None and "relu" in modifiers and (value[0] or value[1] == 0):
        return 0
    return fp.encode(target, value, _mode(modifiers), satfinite="satfinite" in modifiers)


def _power_of_two(up: bool, satfinite: bool, value: Value) -> int:
    if value is None:
        return 0xFF
    if value[1] == fp.INFINITY:
        return 0xFE if satfinite else 0xFF
    if value[1] == 0:
        return 0
    magnitude = Fraction(value[1])
    exponent = fp.floor_log2(magnitude)
    if up and Fraction(2) ** exponent != magnitude:
        exponent += 1
    if exponent > 127:
        return 0xFE if satfinite else 0xFF
    return max(exponent, -127) + 127
