"""Numbers of PTX and their bit patterns."""

from __future__ import annotations

import struct

from cudahercules.emulator.ptx.ir import Immediate, bits


def immediate(text: str, negative: bool = False) -> Immediate:
    """``0f…`` and ``0d…`` are bit patterns, decimals with a point doubles, all others integers."""
    lower = text.lower()
    if lower.startswith("0f") and len(text) == 10:
        return Immediate("f32", int(text[2:], 16) ^ (negative << 31))
    if lower.startswith("0d") and len(text) == 18:
        return Immediate("f64", int(text[2:], 16) ^ (negative << 63))
    if not lower.startswith("0x") and any(c in lower for c in ".e"):
        value = -float(text) if negative else float(text)
        return Immediate("f64", struct.unpack("<Q", struct.pack("<d", value))[0])
    number = integer(text)
    return Immediate("int", -number if negative else number)


def integer(text: str) -> int:
    """Decimal, hexadecimal, binary or octal (a leading zero), with an optional ``U``."""
    text = text.rstrip("U")
    lower = text.lower()
    if lower.startswith(("0x", "0b")):
        return int(text, 0)
    if len(text) > 1 and text[0] == "0":
        return int(text, 8)
    return int(text)


def encode(value: Immediate, type_: str) -> bytes:
    """The bytes of an initialiser item of type ``type_``."""
    width = max(1, bits(type_) // 8)
    if value.kind == "int" and type_ not in ("f32", "f64"):
        return (value.value & ((1 << (8 * width)) - 1)).to_bytes(width, "little")
    number = as_float(value)
    if type_ == "f32":
        return value.value.to_bytes(4, "little") if value.kind == "f32" else struct.pack("<f", number)
    if type_ == "f64":
        return value.value.to_bytes(8, "little") if value.kind == "f64" else struct.pack("<d", number)
    return value.value.to_bytes(8 if value.kind == "f64" else 4, "little")[:width].ljust(width, b"\0")


def as_float(value: Immediate) -> float:
    if value.kind == "f32":
        return struct.unpack("<f", value.value.to_bytes(4, "little"))[0]
    if value.kind == "f64":
        return struct.unpack("<d", value.value.to_bytes(8, "little"))[0]
    return float(value.value)
