"""Tensor maps as the emulator's kernels see them: 128 opaque bytes in an encoding of our own.

The layout is ``struct TensorMap`` of ``runtime/tma.hpp``. The hardware's encoding is secret and changes;
kernels may only hand the bytes on, so any encoding will do, and a check sum tells when they do more.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from cudahercules.errors import PlanError
from cudahercules.record.plan import TensorMap

MAGIC = 0x70614D5363726548
ELEMENT_BYTES = (1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4)
"""By CUtensorMapDataType; the packed 4- and 6-bit types behind them are Blackwell's."""
FLOAT_TYPES = frozenset((6, 7, 8, 9, 10, 11, 12))
_LAYOUT = struct.Struct("<QQ4Q5I5H5B6B3x3h3h2H12x")


def unsupported_map(m: TensorMap) -> str | None:
    """Why the emulator cannot work with ``m`` (which may be legal), or None."""
    if m.data_type >= len(ELEMENT_BYTES):
        return f"tensor map of data type {m.data_type}"
    if m.interleave:
        return f"tensor map with interleave {m.interleave}"
    if m.swizzle > 3:
        return f"tensor map with swizzle {m.swizzle}"
    if m.kind != "tiled":
        return "tensor map of cuTensorMapEncodeIm2col"
    return None


def encode(m: TensorMap) -> bytes:
    """The 128 bytes for ``m``. Raises PlanError where cuTensorMapEncodeTiled would refuse it."""
    _check(m)
    body = _LAYOUT.pack(
        MAGIC,
        m.address,
        *_five(m.strides)[:4],
        *(d - 1 if d else 0 for d in _five(m.dimensions)),
        *_five(m.box),
        *_five(m.element_strides),
        m.data_type,
        m.rank,
        m.interleave,
        m.swizzle,
        m.oob_fill,
        int(m.kind == "im2col"),
        *_five(m.pixel_box_lower)[:3],
        *_five(m.pixel_box_upper)[:3],
        m.channels_per_pixel,
        m.pixels_per_column,
    )
    return body + _fnv1a(body).to_bytes(8, "little")


def _five(values: Sequence[int]) -> list[int]:
    return [*values, *(0,) * 5][:5]


def _fnv1a(data: bytes) -> int:
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & (2**64 - 1)
    return value


def _check(m: TensorMap) -> None:
    if problem := unsupported_map(m) or _wrong(m):
        raise PlanError(f"tensor map of {m.rank} dimensions at {m.address:#x}: {problem}")


def _wrong(m: TensorMap) -> str | None:
    inner = m.box[0] * ELEMENT_BYTES[m.data_type] if m.box else 0
    wrong = {
        "lists of other lengths than the rank": not (
            len(m.dimensions) == len(m.box) == len(m.element_strides) == m.rank
            and len(m.strides) == m.rank - 1
        ),
        "the global address is not aligned to 16 bytes": m.address % 16,
        "a dimension outside 1 to 2^32": any(not 1 <= d <= 1 << 32 for d in m.dimensions),
        "a stride that is no multiple of 16 or not below 2^40": any(
            s % 16 or not 0 <= s < 1 << 40 for s in m.strides
        ),
        "a box dimension outside 1 to 256": any(not 1 <= b <= 256 for b in m.box),
        "an element stride outside 1 to 8": any(not 1 <= s <= 8 for s in m.element_strides),
        "the box's inner dimension is no multiple of 16 bytes": inner % 16,
        "the box's inner dimension is wider than the swizzle": m.swizzle and inner > 16 << m.swizzle,
        "a NaN fill for elements that are no floats": m.oob_fill and m.data_type not in FLOAT_TYPES,
    }
    return next((what for what, is_wrong in wrong.items() if is_wrong), None)
