"""Cooperative groups, host code included, from build to answer."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pytest
from emulated import KERNELS
from recorded import Recorded, tensor

BLOCKS, THREADS = 6, 256


def _tiles(a: np.ndarray) -> np.ndarray:
    warps, quads = a.reshape(-1, 32), a.reshape(-1, 4)
    lanes = np.arange(32)
    shuffled = warps[:, lanes ^ 5].reshape(-1)
    within = np.tile(np.repeat(np.arange(8), 4), len(warps))
    votes = (quads > 40).any(1).astype(int) + 2 * (quads > 0).all(1)
    return np.repeat(warps.sum(1), 32) * 3 + np.repeat(quads.min(1) + votes, 4) + within + shuffled


def _scans(a: np.ndarray) -> np.ndarray:
    tiles = a.reshape(-1, 16)
    before = np.maximum.accumulate(tiles, 1)
    first = np.full(
        (len(tiles), 1), np.iinfo(np.int32).min
    )  # what exclusive_scan starts from is checked apart
    return (tiles.cumsum(1) + 1000 * np.c_[first, before[:, :-1]]).reshape(-1)


def _formed(a: np.ndarray) -> np.ndarray:
    out = []
    for warp in a.reshape(-1, 32):
        threes = warp % 3 == 0
        for lane, x in enumerate(warp):
            same = (warp & 7) == (x & 7)
            value = warp[threes].sum() + threes.sum() if threes[lane] else 0
            value += 10000 * same.sum() + 100 * same[:lane].sum() + ((warp & 1) == (x & 1)).sum()
            out.append(value)
    return np.array(out)


def _copied(a: np.ndarray) -> np.ndarray:
    halves = a.reshape(BLOCKS, 2, 128).sum(2)[:, ::-1]
    return np.repeat(halves.reshape(-1), 128)


def _grid_wide(a: np.ndarray) -> np.ndarray:
    sums = np.zeros(BLOCKS, np.int64)
    for i, x in enumerate(a):
        sums[(i // THREADS + i % THREADS) % BLOCKS] += x
    return np.repeat(sums.sum() + sums, THREADS)


def _clusters(a: np.ndarray) -> np.ndarray:
    pairs = a.reshape(-1, 2, THREADS)[:, ::-1, ::-1]
    return (pairs + np.array([[0], [1000]])).reshape(-1)


CASES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "tiles": _tiles,
    "scans": _scans,
    "groups formed on the way": _formed,
    "copies and tiles larger than a warp": _copied,
    "grid": _grid_wide,
    "clusters": _clusters,
}


@functools.cache
def _built() -> Recorded:
    tensors = [
        tensor("a", "in", "int32", "blocks", THREADS),
        tensor("c", "out", "int32", "blocks", THREADS),
        tensor("sums", "out", "int32", "blocks"),
    ]
    return Recorded((KERNELS / "cooperative_groups.cu").read_text(), tensors, ("blocks", "which"))


@pytest.mark.parametrize("mode", ["late", "random:2"])
@pytest.mark.parametrize("name", CASES)
def test_answers(name, mode):
    groups = _built()
    a = np.random.default_rng(4).integers(-50, 100, BLOCKS * THREADS).astype(np.int32)
    c, sums = np.full_like(a, -1), np.zeros(BLOCKS, np.int32)
    plan = groups.plan(blocks=BLOCKS, which=1 + list(CASES).index(name))
    (launch,) = plan.launches
    assert launch.cooperative == (name == "grid")
    groups.run(plan, {"a": a, "c": c, "sums": sums}, mode)
    expected = CASES[name](a.astype(np.int64))
    if name == "scans":
        first = np.arange(len(a)) % 16 == 0
        assert np.array_equal(c[~first], expected[~first])
        assert len(set((c[first] - a[first]).tolist())) == 1
    else:
        assert np.array_equal(c, expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_checking_build_finds_nothing(name):
    groups = _built()
    a = np.random.default_rng(5).integers(-50, 100, BLOCKS * THREADS).astype(np.int32)
    arrays = {"a": a, "c": np.zeros_like(a), "sums": np.zeros(BLOCKS, np.int32)}
    assert groups.findings(groups.plan(blocks=BLOCKS, which=1 + list(CASES).index(name)), arrays) == []
