"""CUB's device-wide algorithms, host code included, from build to answer."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pytest
from emulated import KERNELS
from recorded import Recorded, tensor

from cudahercules.task.model import LibraryPolicy

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

Expected = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
NOTHING = np.zeros(0, np.int32)


def _runs(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    heads = np.flatnonzero(np.r_[True, a[1:] != a[:-1]])
    return a[heads], np.diff(np.r_[heads, len(a)])


def _unique(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    values, _ = _runs(a)
    return values, np.array([len(values)])


def _encoded(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    values, lengths = _runs(a)
    return values, np.r_[len(values), lengths]


def _descending(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.sort(a)[::-1], np.sort(a)[::-1]


def _histogram(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    inside = a[(a >= -1000) & (a < 1000)].astype(np.int64)
    return NOTHING, np.bincount((inside + 1000) * 64 // 2000, minlength=64)


ALGORITHMS: dict[str, Expected] = {  # the beginnings of c and of count, in the order of cub_device.cu
    "reduce sum": lambda a: (np.sum(a, dtype=np.int32, keepdims=True), NOTHING),
    "reduce max": lambda a: (np.max(a, keepdims=True), NOTHING),
    "exclusive scan": lambda a: (np.r_[0, np.cumsum(a, dtype=np.int32)[:-1]], NOTHING),
    "radix sort": lambda a: (np.sort(a), NOTHING),
    "radix sort of pairs, descending": _descending,
    "select if": lambda a: (a[a % 2 == 0], np.array([np.sum(a % 2 == 0)])),
    "select unique": _unique,
    "run lengths": _encoded,
    "histogram": _histogram,
    "merge sort": lambda a: (np.sort(a), NOTHING),
}


@functools.cache
def _built(architecture: str) -> Recorded:
    tensors = [
        tensor("a", "in", "int32", "n"),
        tensor("c", "out", "int32", "n"),
        tensor("count", "out", "int32", "n"),
    ]
    source = (KERNELS / "cub_device.cu").read_text()
    return Recorded(source, tensors, ("n", "which"), LibraryPolicy.CUB, architecture)


@pytest.mark.parametrize("n", [100, 20_011])
@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("architecture", ["80", "90a"])
def test_algorithm(architecture, name, n):
    cub = _built(architecture)
    generator = np.random.default_rng(n)
    a = generator.integers(-1200, 1200, n).astype(np.int32)
    a[n // 3 : n // 2] = 7  # a long run
    c, count = (np.full(n, -12345, np.int32) for _ in range(2))
    plan = cub.plan(n=n, which=1 + list(ALGORITHMS).index(name))
    cub.run(plan, {"a": a, "c": c, "count": count})
    expected_c, expected_count = ALGORITHMS[name](a)
    assert np.array_equal(c[: len(expected_c)], expected_c)
    assert np.array_equal(count[: len(expected_count)], expected_count)
    assert np.all(c[len(expected_c) :] == -12345) or name == "histogram"


def test_blocks_in_a_row_wait_for_each_other():
    """Scan and one-sweep sort of many tiles: each block looks back at what its neighbours published."""
    cub = _built("90a")
    a = np.random.default_rng(0).integers(-(1 << 31), 1 << 31, 200_003).astype(np.int32)
    for name in ("exclusive scan", "radix sort"):
        plan = cub.plan(n=len(a), which=1 + list(ALGORITHMS).index(name))
        assert max(launch.grid[0] for launch in plan.launches) > 8
        c = np.zeros_like(a)
        cub.run(plan, {"a": a, "c": c, "count": np.zeros_like(a)})
        assert np.array_equal(c, ALGORITHMS[name](a)[0])


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_checking_build_finds_nothing(name):
    cub = _built("90a")
    a = np.random.default_rng(1).integers(-1200, 1200, 5000).astype(np.int32)
    outputs = {"c": np.zeros_like(a), "count": np.zeros_like(a)}
    assert cub.findings(cub.plan(n=5000, which=1 + list(ALGORITHMS).index(name)), {"a": a, **outputs}) == []
