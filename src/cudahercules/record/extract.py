"""Find what is not plain data in recorded bytes: addresses (relocations) and tensor maps.

Both are cut out of the bytes, which read as zero in their place, and kept beside them. An address
is any 8-byte aligned word that points into a buffer or symbol, its end included (an end pointer).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Literal

import numpy as np

from cudahercules.errors import PlanError
from cudahercules.record.plan import ARENA_BASE, Buffer, Placed, Relocation, Symbol

Kind = Literal["buffer", "symbol"]
TENSOR_MAP_BYTES = 128
TENSOR_MAP_ALIGNMENT = 64
MAGIC = bytes([0x9D]) + b"HerculesTMap" + bytes([0xC3, 0x5A, 0xE1])
"""First bytes of the placeholder that the recorder writes for a tensor map (runtime/tensormap.c)."""


def placeholder(number: int) -> bytes:
    """The 128 bytes that stand for tensor map ``number`` while recording."""
    fill = bytes((0xA5 ^ (i * 7) ^ (number * 31)) & 0xFF for i in range(24, TENSOR_MAP_BYTES))
    return MAGIC + number.to_bytes(4, "little") + (number ^ 0xFFFFFFFF).to_bytes(4, "little") + fill


class AddressBook:
    """Which buffer or symbol an address lies in."""

    def __init__(self, buffers: Sequence[Buffer], symbols: Sequence[Symbol]):
        spans: list[tuple[int, int, Kind, int]] = []
        spans += [(b.address, b.size, "buffer", i) for i, b in enumerate(buffers)]
        spans += [(s.address, s.size, "symbol", i) for i, s in enumerate(symbols)]
        self._spans = sorted(spans)
        self._starts = [s[0] for s in self._spans]
        self._end = max((s[0] + s[1] for s in self._spans), default=ARENA_BASE)

    def find(self, address: int, size: int = 0) -> tuple[Kind, int, int] | None:
        """(kind, index, offset) of the buffer or symbol that holds ``[address, address + size]``."""
        at = bisect_right(self._starts, address) - 1
        if at < 0:
            return None
        start, length, kind, index = self._spans[at]
        offset = address - start
        return (kind, index, offset) if offset + size <= length else None

    def words(self, data: bytes, first: int) -> list[tuple[int, int]]:
        """(offset, value) of the words from offset ``first`` on that may be addresses."""
        count = (len(data) - first) // 8
        if count <= 0:
            return []
        words = np.frombuffer(data, "<u8", count, first)
        (hits,) = np.nonzero((words >= ARENA_BASE) & (words <= self._end))
        return [(first + 8 * int(i), int(words[i])) for i in hits]


def misaligned(offset: int, origins: Sequence[int], alignment: int) -> bool:
    """Whether ``offset`` is no multiple of ``alignment`` counted from the nearest origin before it.

    Origins are ascending: the starts of the parameters (an over-aligned one begins where its place
    in constant memory is aligned, so its offset alone says nothing), or where an upload's
    destination would be zero."""
    origin = origins[max(0, bisect_right(origins, offset) - 1)] if origins else 0
    return (offset - origin) % alignment != 0


def extract(
    data: bytes, book: AddressBook, origins: Sequence[int], maps: int = 0
) -> tuple[bytes, tuple[Relocation, ...], tuple[Placed, ...]]:
    """Split ``data`` into plain bytes, relocations and placed tensor maps.

    ``origins`` as for :func:`misaligned`; ``maps`` is how many tensor maps the recording has. Raises
    PlanError for a placeholder that was changed, names no map, or stands where the device could not
    use it.
    """
    placed = _tensor_maps(data, origins, maps) if MAGIC in data else ()
    clean = bytearray(data)
    for p in placed:
        clean[p.offset : p.offset + TENSOR_MAP_BYTES] = bytes(TENSOR_MAP_BYTES)
    relocations = []
    for offset, value in book.words(bytes(clean), origins[0] % 8 if origins else 0):
        found = book.find(value)
        if found is not None:
            kind, index, addend = found
            relocations.append(Relocation(offset=offset, kind=kind, index=index, addend=addend))
            clean[offset : offset + 8] = bytes(8)
    return bytes(clean), tuple(relocations), placed


def _tensor_maps(data: bytes, origins: Sequence[int], maps: int) -> tuple[Placed, ...]:
    placed = []
    at = data.find(MAGIC)
    while at >= 0:
        number = int.from_bytes(data[at + 16 : at + 20], "little")
        if number >= maps or data[at : at + TENSOR_MAP_BYTES] != placeholder(number):
            raise PlanError(f"the tensor map at byte {at} was changed or cut after it was encoded")
        if misaligned(at, origins, TENSOR_MAP_ALIGNMENT):
            raise PlanError(f"the tensor map at byte {at} is not aligned to {TENSOR_MAP_ALIGNMENT} bytes")
        placed.append(Placed(offset=at, index=number))
        at = data.find(MAGIC, at + TENSOR_MAP_BYTES)
    return tuple(placed)
