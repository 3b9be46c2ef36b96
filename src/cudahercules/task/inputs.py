"""Input values: the same bits for the same (task, tensor, workload, seed) on every machine.

This text is a specification. The generator on the GPU follows it, and tests hold both to the same
bits. It needs nothing but integer operations, single (and for fp64 storage double) precision
additions and multiplications rounded to nearest even, *never fused*, and conversions.

**Positions.** A tensor is dense. Its *components* are its elements in memory order (``layout: row``:
last axis fastest; ``column``: first axis fastest), a complex element giving two: real part, then
imaginary part. Component ``i`` belongs to element ``e = i // parts`` (parts = 2 if complex, else 1).
The *row* of element e is ``e // last_extent`` for row layout and ``e % first_extent`` for column
layout. (For a tensor of rank 1 there is one row.)

**Words.** ``word(s, i)`` is 32-bit word ``i`` of stream ``s`` (see :mod:`cudahercules.task.philox`):

==========  =======================================================
stream 0    the value itself, i = component
stream 1    the second draw (outlier or not; empty or not; exponent), i = component
stream 2    the row's exponent, i = row; a part's exponent, i = element
stream 3    low bits for fp64 storage, i = component
==========  =======================================================

**Building blocks**, for a 32-bit word w:

* ``below(w, n)`` = high 32 bits of the 64-bit product w * n, n in 1 .. 2**32 (n = 2**32 gives w).
* ``unit(w)`` = float(w >> 8) * 2**-24, exact, in [0, 1).
* ``power(e)`` = 2**e as a float, e in -126 .. 127 (bits (e + 127) << 23).
* ``normal(w)``: let m = w & 0x7fffffff. If m < 8: segment = m, t = 0. Otherwise let b be the 64-bit
  pattern of double(m); segment = (b >> 49) - 8200 and t = float((b >> 25) & 0xffffff) * 2**-24, that
  is: the power of two below m, split in 8, and the next 24 bits of m as a fraction. With c0 .. c3 of
  that segment from ``normal_table.h``: ``x = ((c3 * t + c2) * t + c1) * t + c0``, six operations in
  float, each rounded. Bit 31 of w is then XORed into the sign bit of x.

**Distributions** give a float v; parameters are rounded to float first:

* normal: ``mean + std * normal(word(0, i))``
* uniform: ``low + width * unit(word(0, i))``, width = high - low taken in double, then rounded.
  (Rounding may reach ``high`` itself.)
* integer: the 64-bit integer ``k = low + below(word(0, i), high - low + 1)``. Integer storage takes
  k. fp64 storage takes double(k); any other takes float(k), rounded to nearest.
* constant: the value, as float (fp64 storage: as double; integer storage: truncated).
* outliers: ``v = std * normal(word(0, i))``; if word(1, i) < threshold then ``v = v * scale``.
  threshold = floor(fraction * 2**32) as a 64-bit integer, the product taken in double.
* wide: w = word(0, i), e = low_exponent + below(word(1, i), high_exponent - low_exponent + 1);
  bits of v = (w & 0x80000000) | (e + 127) << 23 | (w & 0x007fffff).
* row_scaled: e = low_exponent + below(word(2, row), high_exponent - low_exponent + 1);
  ``v = power(e) * normal(word(0, i))``
* partition (integer storage, at most 4096 elements): element e has the weight 0 if word(1, e) < threshold
  (as for outliers, of ``empty``), else ``(256 + (word(0, e) >> 24)) << below(word(2, e), spread + 1)``. With
  W(e) the sum of the weights before e and W that of all, e takes the integers from total * W(e) // W up to
  total * W(e + 1) // W, in 64 bits; if W is 0, the last element takes all.
* low_rank: as normal with mean 0 (``v = std * normal(word(0, j))``), where j is the component at
  the same column and part in row ``row % rank``.

**Storage.** First v is clamped to the largest finite value of the storage type (so that no input is
infinite), then converted, rounding to nearest even (subnormals included). fp32, tf32 and complex64
take v as it is. fp64 and complex128 widen v to double, and except for integer and constant fill the
low bits: ``d = (double(word(3, i)) - 2147483648.0) * 2**-57`` (exact), ``v + v * d`` in double.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from cudahercules.task import philox
from cudahercules.task.model import (
    Constant,
    Distribution,
    DType,
    Integer,
    LowRank,
    Normal,
    Outliers,
    Partition,
    RowScaled,
    Task,
    Tensor,
    Uniform,
    Wide,
    Workload,
)

Array = NDArray[Any]
Float32 = NDArray[np.float32]
Index = NDArray[np.uint64]

CHUNK = 1 << 16  # components at a time: the working set stays in the cache
POISON_FLOAT, POISON_INTEGER = 0xFFFF, 0x7FFF
NORMAL_TABLE = Path(__file__).with_name("normal_table.h")

_VALUE, _SECOND, _ROW, _LOW_BITS = range(4)


def generate(task: Task, tensor: Tensor, workload: Workload, seed: int) -> Array:
    """The values of one input tensor: storage dtype, logical shape (column layout: Fortran order).

    ``seed`` is in 0 .. 2**64 - 1 (ValueError otherwise). Tensors of one task never share words.
    """
    number = next(i for i, t in enumerate(task.tensors) if t.name == tensor.name)
    return generate_values(
        tensor, task.shape(tensor, workload), task.distribution(tensor, workload), number, seed
    )


def generate_values(
    tensor: Tensor, shape: tuple[int, ...], distribution: Distribution, number: int, seed: int
) -> Array:
    """As :func:`generate`, with the shape, the distribution and the tensor's number given."""
    parts = 2 if tensor.dtype.is_complex else 1
    storage = np.dtype(f"f{tensor.dtype.size // 2}") if parts == 2 else tensor.dtype.numpy
    result = np.empty(math.prod(shape) * parts, storage)
    draw = _Draw(shape, tensor.layout, parts, number, seed)
    for start in range(0, result.size, CHUNK):
        piece = result[start : start + CHUNK]
        piece[:] = _component_values(draw, distribution, storage, start, piece.size)
    order: Any = "C" if tensor.layout == "row" else "F"
    return result.view(tensor.dtype.numpy).reshape(shape, order=order)


def poison_word(dtype: DType) -> int:
    """The 16 bits that outputs of ``dtype`` are filled with before a call.

    Floating-point and complex types: 0xffff, a NaN with its sign set in every width down to fp8. A
    GPU's arithmetic gives NaNs without the sign (0x7fffffff, 0x7fff, 0x7f), so that a computed NaN
    is told from an element that nobody wrote. Integers: 0x7fff, as int32 the absurd 2147450879.
    """
    return POISON_INTEGER if dtype.is_integer else POISON_FLOAT


def poison(nbytes: int, dtype: DType) -> NDArray[np.uint8]:
    """``nbytes`` bytes of what outputs of ``dtype`` hold before a call (see :func:`poison_word`)."""
    return np.resize(np.frombuffer(poison_word(dtype).to_bytes(2, "little"), np.uint8), nbytes)


class _Draw:
    """The words of one tensor, and where its components lie."""

    def __init__(self, shape: tuple[int, ...], layout: str, parts: int, number: int, seed: int) -> None:
        self._shape, self._column = shape, layout == "column"
        self._parts, self._number, self._seed = parts, number, seed

    @property
    def elements(self) -> int:
        return math.prod(self._shape)

    def words(self, stream: int, start: int, count: int) -> philox.Words:
        return philox.words(self._seed, self._number, stream, start, count)

    def words_at(self, stream: int, index: Index) -> philox.Words:
        return philox.words_at(self._seed, self._number, stream, index)

    def rows(self, start: int, count: int) -> Index:
        """The row of each component in a range."""
        element = np.arange(start, start + count, dtype=np.uint64) // np.uint64(self._parts)
        if self._column:
            return element % np.uint64(self._shape[0])
        return element // np.uint64(self._shape[-1])

    def first_with_rank(self, start: int, count: int, rank: int) -> Index:
        """The component in row ``row % rank`` that each component repeats."""
        row = self.rows(start, count)
        step = self._parts if self._column else self._shape[-1] * self._parts
        component: Index = np.arange(start, start + count, dtype=np.uint64)
        beyond: Index = row - row % np.uint64(rank)
        return component - beyond * np.uint64(step)


def _component_values(
    draw: _Draw, distribution: Distribution, storage: np.dtype, start: int, count: int
) -> Array:
    if isinstance(distribution, Integer):
        span = distribution.high - distribution.low + 1
        k = distribution.low + _below(draw.words(_VALUE, start, count), span).astype(np.int64)
        return _store_integer(k, storage)
    if isinstance(distribution, Partition):
        return _partition(distribution, draw)[start : start + count].astype(storage)
    if isinstance(distribution, Constant):
        return np.full(count, _constant(distribution.value, storage), storage)
    value = _FLOATS[type(distribution)](distribution, draw, start, count)
    if storage == np.float64:
        low_bits = draw.words(_LOW_BITS, start, count).astype(np.float64)
        wide = _clamp(value, np.float32).astype(np.float64)
        return wide + wide * ((low_bits - 2.0**31) * 2.0**-57)
    return _clamp(value, storage).astype(storage)


def _store_integer(k: NDArray[np.int64], storage: np.dtype) -> Array:
    if storage.kind in "iu" or storage == np.float64:
        return k.astype(storage)
    return _clamp(k.astype(np.float32), storage).astype(storage)


def _partition(d: Partition, draw: _Draw) -> NDArray[np.int64]:
    """All elements: each depends on the weights of all."""
    count = draw.elements
    kept = draw.words(_SECOND, 0, count).astype(np.uint64) >= np.uint64(math.floor(d.empty * 2.0**32))
    size = np.uint64(256) + (draw.words(_VALUE, 0, count) >> np.uint32(24)).astype(np.uint64)
    weight = np.where(kept, size << _below(draw.words(_ROW, 0, count), d.spread + 1), np.uint64(0))
    ends = np.cumsum(weight, dtype=np.uint64)
    if ends[-1] == 0:
        ends[-1] = np.uint64(1)
    cuts = np.uint64(d.total) * ends // ends[-1]
    return np.diff(cuts, prepend=np.uint64(0)).astype(np.int64)


def _constant(value: float, storage: np.dtype) -> Any:
    if storage.kind in "iu":
        return int(value)
    if storage == np.float64:
        return value
    return _clamp(np.array([value], np.float32), storage).astype(storage)[0]


def _clamp(value: Float32, storage: Any) -> Float32:
    largest = np.float32(ml_dtypes.finfo(storage).max)
    return np.minimum(np.maximum(value, -largest), largest)


# --- building blocks -----------------------------------------------------------------------------


def _below(words: philox.Words, span: int) -> NDArray[np.uint64]:
    if not 1 <= span <= 2**32:
        raise ValueError(f"an integer distribution has 1 .. 2**32 values, not {span}")
    if span == 2**32:
        return words.astype(np.uint64)
    return (words.astype(np.uint64) * np.uint64(span)) >> np.uint64(32)


def unit(words: philox.Words) -> Float32:
    """Words to floats in [0, 1)."""
    return (words >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)


def standard_normal(words: philox.Words) -> Float32:
    """Words to standard normal variates, by the inverse CDF (error under 6e-7, |z| <= 6.34)."""
    magnitude = words & np.uint32(0x7FFF_FFFF)
    pattern = magnitude.astype(np.float64).view(np.uint64)
    segment = (pattern >> np.uint64(49)).astype(np.int64) - 8200
    t = ((pattern >> np.uint64(25)) & np.uint64(0xFF_FFFF)).astype(np.float32) * np.float32(2.0**-24)
    few = magnitude < 8
    if few.any():
        segment[few] = magnitude[few]
        t[few] = 0
    c0, c1, c2, c3 = (c[segment] for c in normal_table())
    c3 *= t
    c3 += c2
    c3 *= t
    c3 += c1
    c3 *= t
    c3 += c0
    sign = words & np.uint32(0x8000_0000)
    return (c3.view(np.uint32) ^ sign).view(np.float32)


@cache
def normal_table() -> Float32:
    """The committed table: shape (4, 232), row j holds coefficient c_j of every segment."""
    found = re.findall(r"0x([0-9a-f]{8})", NORMAL_TABLE.read_text(encoding="ascii"))
    bits = np.array([int(word, 16) for word in found], np.uint32)
    table = np.ascontiguousarray(bits.reshape(232, 4).T.view(np.float32))
    table.setflags(write=False)
    return table


def _power(exponent: NDArray[np.int64]) -> Float32:
    return ((exponent + 127) << 23).astype(np.uint32).view(np.float32)


# --- distributions: (distribution, draw, start, count) -> float32 --------------------------------


def _normal(d: Normal, draw: _Draw, start: int, count: int) -> Float32:
    return np.float32(d.mean) + np.float32(d.std) * standard_normal(draw.words(_VALUE, start, count))


def _uniform(d: Uniform, draw: _Draw, start: int, count: int) -> Float32:
    return np.float32(d.low) + np.float32(d.high - d.low) * unit(draw.words(_VALUE, start, count))


def _outliers(d: Outliers, draw: _Draw, start: int, count: int) -> Float32:
    value = np.float32(d.std) * standard_normal(draw.words(_VALUE, start, count))
    threshold = np.uint64(math.floor(d.fraction * 2.0**32))
    chosen = draw.words(_SECOND, start, count).astype(np.uint64) < threshold
    return np.where(chosen, value * np.float32(d.scale), value)


def _wide(d: Wide, draw: _Draw, start: int, count: int) -> Float32:
    word = draw.words(_VALUE, start, count)
    exponent = _exponents(draw.words(_SECOND, start, count), d)
    bits = (word & np.uint32(0x807F_FFFF)) | ((exponent + 127) << 23).astype(np.uint32)
    return bits.view(np.float32)


def _row_scaled(d: RowScaled, draw: _Draw, start: int, count: int) -> Float32:
    row = draw.rows(start, count)
    first, last = int(row.min()), int(row.max())
    exponent = _exponents(draw.words(_ROW, first, last - first + 1), d)
    scale = _power(exponent)[(row - np.uint64(first)).astype(np.int64)]
    with np.errstate(over="ignore"):  # infinities are clamped when stored
        return scale * standard_normal(draw.words(_VALUE, start, count))


def _low_rank(d: LowRank, draw: _Draw, start: int, count: int) -> Float32:
    index = draw.first_with_rank(start, count, d.rank)
    return np.float32(d.std) * standard_normal(draw.words_at(_VALUE, index))


def _exponents(words: philox.Words, d: Wide | RowScaled) -> NDArray[np.int64]:
    return d.low_exponent + _below(words, d.high_exponent - d.low_exponent + 1).astype(np.int64)


_FLOATS: dict[type, Callable[[Any, _Draw, int, int], Float32]] = {
    Normal: _normal,
    Uniform: _uniform,
    Outliers: _outliers,
    Wide: _wide,
    RowScaled: _row_scaled,
    LowRank: _low_rank,
}
