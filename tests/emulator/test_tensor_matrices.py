"""``ldmatrix``, ``stmatrix`` and ``movmatrix``: which half of which row each lane gets or gives."""

from __future__ import annotations

import numpy as np
import pytest
from emulated import KERNELS, Program, compile_ptx


@pytest.fixture(scope="module")
def ptx():
    return compile_ptx(KERNELS / "matrices.cu", "90")


@pytest.fixture
def rows():
    """A different row of the 64 for each lane, in no order."""
    return np.random.default_rng(1).permutation(64)[:32].astype(np.uint32)


HALVES = np.arange(1000, 1512, dtype=np.uint16).reshape(64, 8)


def place(lane: int, part: int, transposed: bool) -> tuple[int, int]:
    """Row and column of half ``part`` of a lane's register, as the manual's figure has them."""
    row, column = lane // 4, 2 * (lane % 4) + part
    return (column, row) if transposed else (row, column)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_load(ptx, tmp_path, rows, count, transposed):
    program = Program(ptx, tmp_path)
    program.array("image", np.vstack([HALVES, HALVES])[:128], "input")
    program.array("rows", rows, "input")
    out = program.array("out", np.zeros((32, 4), np.uint32))
    program.launch(f"load{count}{'t' * transposed}", 1, 32, "image", "rows", "out")
    program.complete()
    for lane in range(32):
        for matrix in range(4):
            if matrix >= count:
                assert out[lane, matrix] == 7
                continue
            expected = 0
            for part in range(2):
                row, column = place(lane, part, transposed)
                expected |= int(HALVES[rows[matrix * 8 + row], column]) << 16 * part
            assert out[lane, matrix] == expected, (lane, matrix)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_store(ptx, tmp_path, rows, count, transposed):
    values = np.random.default_rng(2).integers(0, 1 << 32, (32, 4), dtype=np.uint64).astype(np.uint32)
    program = Program(ptx, tmp_path)
    program.array("values", values, "input")
    program.array("rows", rows, "input")
    image = program.array("image", np.zeros((128, 8), np.uint16))
    program.launch(f"store{count}{'t' * transposed}", 1, 32, "values", "rows", "image")
    program.complete()
    expected = np.full((128, 8), 0xABAB, np.uint16)
    for matrix in range(count):
        for lane in range(32):
            for part in range(2):
                row, column = place(lane, part, transposed)
                expected[rows[matrix * 8 + row], column] = values[lane, matrix] >> 16 * part & 0xFFFF
    assert np.array_equal(image, expected)


def test_move(ptx, tmp_path):
    program = Program(ptx, tmp_path)
    program.array("in", HALVES[:8], "input")
    out = program.array("out", np.zeros((8, 8), np.uint16))
    program.launch("move", 1, 32, "in", "out")
    program.complete()
    assert np.array_equal(out, HALVES[:8].T)


def test_generic_address(ptx, tmp_path):
    program = Program(ptx, tmp_path)
    program.array("image", np.vstack([HALVES, HALVES]), "input")
    out = program.array("out", np.zeros((8, 8), np.uint16))
    program.launch("generic_load", 1, 32, "image", np.int32(0), "out")
    program.complete()
    assert np.array_equal(out, HALVES[:8])


def test_misaligned_row(ptx, tmp_path):
    program = Program(ptx, tmp_path)
    program.array("image", np.vstack([HALVES, HALVES]), "input")
    program.array("out", np.zeros((8, 8), np.uint16))
    program.launch("generic_load", 1, 32, "image", np.int32(8), "out")
    fault = program.fault()
    assert fault.what == "misaligned" and "16-byte read" in fault.message


def test_row_outside_shared_memory(ptx, tmp_path):
    program = Program(ptx, tmp_path)
    program.array("values", np.zeros((32, 4), np.uint32), "input")
    program.array("rows", np.arange(97, 129, dtype=np.uint32), "input")
    program.array("image", np.zeros((128, 8), np.uint16))
    program.launch("store4", 1, 32, "values", "rows", "image")
    fault = program.fault()
    assert fault.what == "out_of_bounds" and fault.thread == (31, 0, 0)
    # The other lanes give no addresses to stmatrix.x2: theirs may be anything.
    program.operations.clear()
    program.launch("store2", 1, 32, "values", "rows", "image")
    program.complete()
