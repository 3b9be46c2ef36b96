"""CUB's block collectives: much inlined code, inline PTX, predicated shuffles."""

from __future__ import annotations

import numpy as np
import pytest
from emulated import KERNELS, Program, compile_ptx


@pytest.fixture
def program(tmp_path):
    return Program(compile_ptx(KERNELS / "cub.cu"), tmp_path)


def test_block_scan_with_transposed_loads(program):
    x = np.random.default_rng(1).integers(-50, 50, (3, 512)).astype(np.int32)
    program.array("x", x, "input")
    y = program.array("y", np.zeros_like(x))
    program.launch("scan", 3, 128, "x", "y")
    program.complete()
    assert np.array_equal(y, np.cumsum(x, 1) - x)


def test_block_radix_sort(program):
    x = np.random.default_rng(2).standard_normal((2, 2048)).astype(np.float32)
    program.array("x", x, "input")
    y = program.array("y", np.zeros_like(x))
    where = program.array("where", np.zeros(x.shape, np.int32))
    program.launch("sort", 2, 256, "x", "y", "where")
    program.complete()
    assert np.array_equal(y, -np.sort(-x, 1))
    assert np.array_equal(np.take_along_axis(x, where, 1), y)


def test_block_reduce_of_an_odd_block(program):
    x = np.random.default_rng(3).standard_normal(96)
    program.array("x", x, "input")
    y = program.array("y", np.zeros(1))
    program.launch("reduce", 1, 96, "x", "y")
    program.complete()
    assert y[0] == x.max()
