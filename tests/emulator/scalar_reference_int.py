"""Integer and bit instructions of PTX on Python integers, written from the PTX manual."""

from __future__ import annotations

from collections.abc import Callable

Modifiers = frozenset[str]


def mask(width: int) -> int:
    return (1 << width) - 1


def as_signed(word: int, width: int) -> int:
    word &= mask(width)
    return word - (1 << width) if word >> (width - 1) else word


def number(type_: str, word: int) -> int:
    width = int(type_[1:])
    return as_signed(word, width) if type_[0] == "s" else word & mask(width)


def limits(type_: str) -> tuple[int, int]:
    width = int(type_[1:])
    return (-(1 << (width - 1)), (1 << (width - 1)) - 1) if type_[0] == "s" else (0, mask(width))


def clamp(type_: str, value: int) -> int:
    low, high = limits(type_)
    return max(low, min(high, value))


def truncated_division(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def product_part(modifiers: Modifiers, a: int, b: int, width: int) -> int:
    return (a * b) >> width if "hi" in modifiers else a * b


def _mul24(m: Modifiers, t: str, a: int, b: int) -> int:
    cut = (lambda x: as_signed(x, 24)) if t[0] == "s" else (lambda x: x & 0xFFFFFF)
    product = cut(a) * cut(b)
    return product >> 16 if "hi" in m else product


def _saturated_or_wrapped(m: Modifiers, t: str, value: int) -> int:
    return clamp(t, value) if "sat" in m else value


def _mad(m: Modifiers, t: str, a: int, b: int, c: int) -> int:
    width = int(t[1:])
    product = product_part(m, a, b, width)
    if "sat" in m:
        return clamp(t, as_signed(product, width) + c)
    return product + c


def _mad24(m: Modifiers, t: str, a: int, b: int, c: int) -> int:
    product = as_signed(_mul24(m, t, a, b), 32) if "sat" in m else _mul24(m, t, a, b)
    return _saturated_or_wrapped(m, t, product + c)


ARITHMETIC: dict[str, Callable[..., int]] = {
    "add": lambda m, t, a, b: _saturated_or_wrapped(m, t, a + b),
    "sub": lambda m, t, a, b: _saturated_or_wrapped(m, t, a - b),
    "mul": lambda m, t, a, b: product_part(m, a, b, int(t[1:])),
    "mad": _mad,
    "mul24": _mul24,
    "mad24": _mad24,
    "div": lambda m, t, a, b: truncated_division(a, b) if b else -1,
    "rem": lambda m, t, a, b: a - b * truncated_division(a, b) if b else -1,
    "abs": lambda m, t, a: abs(a),
    "neg": lambda m, t, a: -a,
    "min": lambda m, t, a, b: max(min(a, b), 0) if "relu" in m else min(a, b),
    "max": lambda m, t, a, b: max(a, b, 0) if "relu" in m else max(a, b),
    "sad": lambda m, t, a, b, c: c + abs(a - b),
}


def carry(opcode: str, modifiers: Modifiers, width: int, *words: int) -> tuple[int, int]:
    """Result and carry of the extended-precision family; the last word is the carry in. A subtraction adds
    the complement, so its carry means "no borrow"."""
    *operands, flag = words
    carry_in = flag if opcode.endswith("c") else int(opcode == "sub")  # addc, subc, madc
    if opcode.startswith("mad"):
        first, second = product_part(modifiers, operands[0], operands[1], width), operands[2]
    else:
        first, second = operands
        if opcode.startswith("sub"):
            second = ~second
    total = (first & mask(width)) + (second & mask(width)) + carry_in
    return total & mask(width), total >> width if "cc" in modifiers else flag


def lop3(a: int, b: int, c: int, table: int) -> int:
    result = 0
    for bit in range(32):
        index = (a >> bit & 1) << 2 | (b >> bit & 1) << 1 | c >> bit & 1
        result |= (table >> index & 1) << bit
    return result


def shift(opcode: str, type_: str, a: int, n: int) -> int:
    return a << min(n, 64) if opcode == "shl" else a >> min(n, 64)


def funnel(modifiers: Modifiers, a: int, b: int, n: int) -> int:
    n = min(n, 32) if "clamp" in modifiers else n & 31
    both = b << 32 | a
    return both >> (32 - n) if "l" in modifiers else both >> n


def field_numbers(width: int, position: int, length: int) -> tuple[int, int]:
    return (position & 0xFF, length & 0xFF) if width == 32 else (position, length)


def bfe(type_: str, a: int, position: int, length: int) -> int:
    width = int(type_[1:])
    position, length = field_numbers(width, position, length)
    bits = [a >> i & 1 for i in range(width)]
    fill = 0 if type_[0] == "u" or length == 0 else bits[min(position + length - 1, width - 1)]
    result = 0
    for i in range(width):
        result |= (bits[position + i] if i < length and position + i < width else fill) << i
    return result


def bfi(width: int, a: int, b: int, position: int, length: int) -> int:
    position, length = field_numbers(width, position, length)
    result = b
    for i in range(width):
        if i < length and position + i < width:
            result = (result & ~(1 << (position + i))) | (a >> i & 1) << (position + i)
    return result


def bfind(modifiers: Modifiers, type_: str, a: int) -> int:
    width = int(type_[1:])
    pattern = ~a & mask(width) if a < 0 else a
    if pattern == 0:
        return mask(32)
    top = pattern.bit_length() - 1
    return width - 1 - top if "shiftamt" in modifiers else top


def brev(width: int, a: int) -> int:
    return int(f"{a:0{width}b}"[::-1], 2)


def fns(bits: int, base: int, offset: int) -> int:
    if offset == 0:
        return base if base < 32 and bits >> base & 1 else mask(32)
    positions = range(base, 32) if offset > 0 else range(base, -1, -1)
    if base > 31:
        return mask(32)
    found = [i for i in positions if bits >> i & 1]
    return found[abs(offset) - 1] if len(found) >= abs(offset) else mask(32)


def szext(modifiers: Modifiers, type_: str, a: int, n: int) -> int:
    if "clamp" in modifiers and n >= 32:
        return a
    n &= 31
    if n == 0:
        return 0
    return as_signed(a, n) if type_ == "s32" else a & mask(n)


def bmsk(modifiers: Modifiers, position: int, width: int) -> int:
    if "clamp" in modifiers:
        position, width = min(position, 32), min(width, 32)
    else:
        position, width = position & 31, width & 31
    return mask(width) << position


def prmt(mode: str, a: int, b: int, c: int) -> int:
    source = [(b << 32 | a) >> 8 * i & 0xFF for i in range(8)]
    n = c & 3
    table = {  # bytes 3, 2, 1, 0 of the result for c & 3 = 0, 1, 2, 3, from the manual's table
        "f4e": ("3210", "4321", "5432", "6543"),
        "b4e": ("5670", "6701", "7012", "0123"),
        "rc8": ("0000", "1111", "2222", "3333"),
        "ecl": ("3210", "3211", "3222", "3333"),
        "ecr": ("0000", "1110", "2210", "3210"),
        "rc16": ("1010", "3232", "1010", "3232"),
    }
    selectors = [int(d) for d in reversed(table[mode][n])] if mode else [c >> 4 * i & 15 for i in range(4)]
    result = 0
    for i, selector in enumerate(selectors):
        byte = source[selector & 7]
        if selector & 8:
            byte = 0xFF if byte & 0x80 else 0
        result |= byte << 8 * i
    return result


def lanes(word: int, width: int, signed: bool) -> list[int]:
    return [number(("s" if signed else "u") + str(width), word >> width * i) for i in range(32 // width)]


def dot(modifiers: Modifiers, opcode: str, types: tuple[str, ...], a: int, b: int, c: int) -> int:
    bytes_ = lanes(b, 8, types[1] == "s32")
    left = lanes(a, 8 if opcode == "dp4a" else 16, types[0] == "s32")
    if opcode == "dp2a":
        bytes_ = bytes_[2:] if "hi" in modifiers else bytes_[:2]
    return c + sum(x * y for x, y in zip(left, bytes_, strict=True))


def video(opcode: str, modifiers: Modifiers, types: tuple[str, ...], a: int, b: int, c: int) -> int:
    """Four bytes or two halves; the manual merges c only where the destination has a mask."""
    width = 8 if opcode.endswith("4") else 16
    operation = {
        "vadd": lambda x, y: x + y,
        "vsub": lambda x, y: x - y,
        "vabsdiff": lambda x, y: abs(x - y),
        "vavrg": lambda x, y: (x + y + (1 if x + y >= 0 else 0)) >> 1,
        "vmin": min,
        "vmax": max,
    }[opcode[:-1]]
    values = [
        operation(x, y)
        for x, y in zip(lanes(a, width, types[1] == "s32"), lanes(b, width, types[2] == "s32"), strict=True)
    ]
    if "add" in modifiers:
        return c + sum(values)
    if "sat" in modifiers:
        values = [clamp(types[0][0] + str(width), value) for value in values]
    return sum((value & mask(width)) << width * i for i, value in enumerate(values))


def cvt_pack(types: tuple[str, ...], a: int, b: int, c: int) -> int:
    width = int(types[0][1:])
    low, high = (clamp(types[0], as_signed(x, 32)) & mask(width) for x in (b, a))
    return (c << 2 * width | high << width | low) & mask(32)
