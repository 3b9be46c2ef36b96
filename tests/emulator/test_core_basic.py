"""Ordinary kernels against NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from emulated import KERNELS, Program, compile_ptx


@pytest.fixture
def program(tmp_path):
    return Program(compile_ptx(KERNELS / "basic.cu"), tmp_path)


def test_vector_add(program):
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((2, 4000), np.float32)
    program.array("a", a, "input")
    program.array("b", b, "input")
    c = program.array("c", np.full(4000, np.nan, np.float32), "output")
    program.launch("vadd4", 8, 128, "a", "b", "c", np.int32(1000))
    done = program.complete()
    assert np.array_equal(c, a + b)
    assert (done.counters.blocks, done.counters.threads) == (8, 1024)
    assert done.counters.instructions is None


@pytest.mark.parametrize("threads", [1, 2])
def test_reduction(program, threads):
    x = np.arange(10000, dtype=np.float32) % 17
    program.array("x", x, "input")
    out = program.array("out", np.zeros(1, np.float32))
    program.launch("block_sums", 5, 256, "x", "out", np.int32(x.size))
    program.complete(threads=threads)
    assert out[0] == x.sum()


def test_softmax(program):
    x = np.random.default_rng(2).standard_normal((8, 300)).astype(ml_dtypes.bfloat16)
    program.array("x", x, "input")
    y = program.array("y", np.zeros_like(x))
    program.launch("softmax", 8, 128, "x", "y", np.int32(300), shared=1200)
    program.complete()
    e = np.exp(x.astype(np.float64) - x.astype(np.float64).max(1, keepdims=True))
    assert np.allclose(y.astype(np.float64), e / e.sum(1, keepdims=True), rtol=8e-3)


def test_gemm(program):
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((128, 64), np.float32), rng.standard_normal((64, 192), np.float32)
    program.array("a", a, "input")
    program.array("b", b, "input")
    c = program.array("c", np.zeros((128, 192), np.float32))
    program.launch("gemm", (3, 2), (16, 16), "a", "b", "c", np.int32(128), np.int32(192), np.int32(64))
    program.complete()
    assert np.allclose(c, a @ b, rtol=1e-4, atol=1e-4)


def test_histogram(program):
    x = np.random.default_rng(4).integers(0, 256, 20000).astype(np.uint8)
    program.array("x", x, "input")
    out = program.array("out", np.zeros(256, np.uint32))
    program.launch("histogram", 4, 256, "x", "out", np.int32(x.size))
    program.complete()
    assert np.array_equal(out, np.bincount(x, minlength=256))


def test_fft(program):
    x = np.random.default_rng(5).standard_normal((4, 256, 2)).astype(np.float32).view(np.complex64)[..., 0]
    program.array("x", x, "input")
    y = program.array("y", np.zeros_like(x))
    program.launch("fft256", 4, 128, "x", "y")
    program.complete()
    assert np.allclose(y, np.fft.fft(x), atol=1e-3)


def test_half2(program):
    rng = np.random.default_rng(6)
    x, y = rng.standard_normal((2, 256)).astype(np.float16)
    expected = (np.float64(np.float16(1.5)) * x + y).astype(np.float16)
    program.array("x", x, "input")
    got = program.array("y", y.copy())
    program.launch("half2_axpy", 1, 128, "x", "y", np.array([1.5, 1.5], np.float16), np.int32(128))
    program.complete()
    assert np.array_equal(got, expected)


def test_counting_build_counts_and_gives_the_same(program):
    x = np.ones(1024, np.float32)
    program.array("x", x, "input")
    out = program.array("out", np.zeros(1, np.float32))
    program.launch("block_sums", 1, 256, "x", "out", np.int32(1024))
    first = program.complete(counting=True).counters.instructions
    assert out[0] == 1024
    assert first is not None and first > 256 * 40
    assert program.complete(counting=True).counters.instructions == first
