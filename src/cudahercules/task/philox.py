"""Philox4x32-10, the counter-based generator of Salmon et al. ("Parallel random numbers: as easy as
1, 2, 3", SC'11), in NumPy.

A block is a pure function of a 128-bit counter (c0, c1, c2, c3) and a 64-bit key (k0, k1), all
32-bit words. One round, ten times in all::

    p0 = 0xD2511F53 * c0          p1 = 0xCD9E8D57 * c2          (64-bit products)
    c0, c1, c2, c3 = hi(p1) ^ c1 ^ k0, lo(p1), hi(p0) ^ c3 ^ k1, lo(p0)

and between rounds k0 += 0x9E3779B9, k1 += 0xBB67AE85 (mod 2**32). The block's words are c0 .. c3.

How CUDAHercules uses it (the generator on the GPU follows the same rules bit for bit):

* key: k0 = low 32 bits of the seed, k1 = high 32 bits;
* word number ``i`` of stream ``s`` of tensor ``t`` (``t`` counts the task's tensors from 0, outputs
  included) is word ``i % 4`` of the block with counter c0 = low 32 bits of ``i // 4``, c1 = high
  32 bits of ``i // 4``, c2 = ``t``, c3 = ``s``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint32]

_ROUNDS = 10
_LOW = np.uint64(0xFFFF_FFFF)
_SHIFT = np.uint64(32)
_MULTIPLIER_0 = np.uint64(0xD251_1F53)
_MULTIPLIER_1 = np.uint64(0xCD9E_8D57)
_WEYL_0 = 0x9E37_79B9
_WEYL_1 = 0xBB67_AE85


def blocks(
    counter: tuple[NDArray[np.uint64], NDArray[np.uint64], int, int], key: tuple[int, int]
) -> NDArray[np.uint32]:
    """Philox blocks for arrays of c0 and c1 (uint64 arrays holding 32-bit words) and common c2, c3.

    Returns uint32 of shape (4, n): row j holds word j of every block.
    """
    c0, c1 = (c.astype(np.uint64) for c in counter[:2])
    c2, c3 = (np.full_like(c0, c) for c in counter[2:])
    k0, k1 = key
    p0, p1 = np.empty_like(c0), np.empty_like(c0)
    for round_number in range(_ROUNDS):
        np.multiply(c0, _MULTIPLIER_0, out=p0)
        np.multiply(c2, _MULTIPLIER_1, out=p1)
        np.right_shift(p1, _SHIFT, out=c0)
        c0 ^= c1
        c0 ^= np.uint64((k0 + round_number * _WEYL_0) & 0xFFFF_FFFF)
        np.right_shift(p0, _SHIFT, out=c2)
        c2 ^= c3
        c2 ^= np.uint64((k1 + round_number * _WEYL_1) & 0xFFFF_FFFF)
        np.bitwise_and(p1, _LOW, out=c1)
        np.bitwise_and(p0, _LOW, out=c3)
    result = np.empty((4, c0.size), np.uint32)
    for row, word in zip(result, (c0, c1, c2, c3), strict=True):
        row[:] = word
    return result


def words(seed: int, tensor: int, stream: int, start: int, count: int) -> Words:
    """Words ``start .. start + count - 1`` of one stream of one tensor, as uint32.

    ``seed`` is a 64-bit integer; a larger or negative one is a ValueError.
    """
    key = _key(seed)
    first, last = start // 4, (start + count + 3) // 4
    index = np.arange(first, last, dtype=np.uint64)
    block = blocks((index & _LOW, index >> _SHIFT, tensor, stream), key)
    return block.T.reshape(-1)[start - 4 * first :][:count]


def words_at(seed: int, tensor: int, stream: int, index: NDArray[np.uint64]) -> Words:
    """The words at arbitrary positions, one block each."""
    group = index >> np.uint64(2)
    block = blocks((group & _LOW, group >> _SHIFT, tensor, stream), _key(seed))
    lane = (index & np.uint64(3)).astype(np.int64)
    return block[lane, np.arange(index.size)]


def _key(seed: int) -> tuple[int, int]:
    if not 0 <= seed < 2**64:
        raise ValueError(f"a seed is an integer in 0 .. 2**64 - 1, not {seed}")
    return seed & 0xFFFF_FFFF, seed >> 32
