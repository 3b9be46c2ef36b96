"""Whole GEMMs: cp.async + ldmatrix + mma, and wgmma with hand-made layouts for every swizzle."""

from __future__ import annotations

import numpy as np
import pytest
from emulated import KERNELS, Program, compile_ptx


def bfloat(generator: np.random.Generator, *shape: int) -> tuple[np.ndarray, np.ndarray]:
    """Bit patterns and their values."""
    bits = (generator.standard_normal(shape).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return bits, (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


@pytest.fixture(scope="module")
def mma_ptx():
    return compile_ptx(KERNELS / "mma_gemm.cu", "80")


@pytest.fixture(scope="module")
def wgmma_ptx():
    return compile_ptx(KERNELS / "wgmma_gemm.cu", "90a")


def multiply(ptx, tmp_path, kernel: str, m: int, n: int, k: int, turned: bool, **options: object):  # type: ignore[no-untyped-def]
    """C and what it should be; B is (k, n) if ``turned``, else (n, k)."""
    generator = np.random.default_rng(m + n + k)
    a, a_value = bfloat(generator, m, k)
    b, b_value = bfloat(generator, *((k, n) if turned else (n, k)))
    program = Program(ptx, tmp_path)
    program.array("a", a, "input")
    program.array("b", b, "input")
    c = program.array("c", np.zeros((m, n), np.float32))
    block, rows = (256, 128) if kernel in ("multiply", "no_wait") else (128, 64)
    shared = 0 if block == 256 else 32768
    program.launch(
        kernel, (n // 128, m // rows), block, "a", "b", "c", np.int32(n), np.int32(k), shared=shared
    )
    outcome = program.complete(**options)
    return c, a_value @ (b_value if turned else b_value.T), outcome


def test_mma_gemm(mma_ptx, tmp_path):
    c, expected, _ = multiply(mma_ptx, tmp_path, "multiply", 128, 256, 160, True)
    np.testing.assert_allclose(c, expected, atol=5e-5)


def test_mma_gemm_without_the_wait_for_copies(mma_ptx, tmp_path):
    c, _, _ = multiply(mma_ptx, tmp_path, "no_wait", 128, 128, 64, True)
    assert not np.isfinite(c).any()


@pytest.mark.parametrize("mode", ["eager", "late", "random:5"])
@pytest.mark.parametrize(
    "kernel", [f"{way}_{span}" for way in ("along", "across") for span in (16, 32, 64, 128)]
)
def test_wgmma_gemm(wgmma_ptx, tmp_path, kernel, mode):
    turned = kernel.startswith("across")
    c, expected, _ = multiply(wgmma_ptx, tmp_path, kernel, 64, 256, 128, turned, asynchrony=mode)
    np.testing.assert_allclose(c, expected, atol=5e-5)
