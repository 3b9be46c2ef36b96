"""Philox against the known answers that its authors publish, and our use of it."""

import numpy as np
import pytest

from cudahercules.task import philox

# kat_vectors of the Random123 distribution: counter, key, result
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_known_answers(counter, key, expected):
    c0, c1 = (np.array([c], np.uint64) for c in counter[:2])
    assert tuple(philox.blocks((c0, c1, counter[2], counter[3]), key)[:, 0]) == expected


def scalar_philox(counter, key):
    """The definition once more, in plain integers."""
    c, (k0, k1) = list(counter), key
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k0, p1 & 0xFFFFFFFF, (p0 >> 32) ^ c[3] ^ k1, p0 & 0xFFFFFFFF]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c


def test_word_positions_follow_the_documented_rule():
    seed, tensor, stream = 0x0123456789ABCDEF, 3, 2
    start = 4 * 2**32 - 3  # crosses from c1 = 0 to c1 = 1
    got = philox.words(seed, tensor, stream, start, 9)
    for offset, word in enumerate(got):
        i = start + offset
        counter = ((i // 4) & 0xFFFFFFFF, (i // 4) >> 32, tensor, stream)
        assert word == scalar_philox(counter, (seed & 0xFFFFFFFF, seed >> 32))[i % 4]


def test_any_piece_equals_the_whole():
    whole = philox.words(7, 1, 0, 0, 1000)
    for start, count in [(0, 1), (1, 3), (5, 90), (997, 3), (500, 0)]:
        assert np.array_equal(philox.words(7, 1, 0, start, count), whole[start : start + count])
    index = np.array([999, 0, 17, 17, 4], np.uint64)
    assert np.array_equal(philox.words_at(7, 1, 0, index), whole[index])


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_has_64_bits(seed):
    with pytest.raises(ValueError, match=r"0 \.\. 2\*\*64 - 1"):
        philox.words(seed, 0, 0, 0, 1)
