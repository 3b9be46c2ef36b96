"""Kernels of DeepGEMM and FlashInfer, instantiated from their packages, compared with NumPy."""

from __future__ import annotations

import functools
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from emulated import Program
from hopper import HopperProgram

from cudahercules.emulator.corpus.compiled import compiled
from cudahercules.emulator.corpus.manifest import ExpertFile
from cudahercules.errors import MachineError

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

DEEPGEMM = """#include <deep_gemm/impls/{file}>
using namespace deep_gemm;
auto use = reinterpret_cast<void*>(&{kernel});
"""
MAJOR = "cute::UMMA::Major::K"
ALL_SHARED = 227 << 10
BLOCK_M, BLOCK_N, SMS = 128, 128, 4


@functools.cache
def ptx(origin: str, code: str, *uses: str) -> str:
    row = {"name": "test", "origin": origin, "path": "", "targets": ["hopper"], "seconds": 10}
    row |= {"code": code, "uses": uses, "flags": ["-std=c++20"] if origin == "deepgemm" else []}
    try:
        made = compiled(ExpertFile.model_validate(row), "hopper")
    except MachineError as error:
        pytest.skip(str(error))
    assert made.ptx is not None, made.message
    return made.ptx.read_text()


class FromText(HopperProgram):
    """A HopperProgram whose PTX is at hand."""

    def __init__(self, text: str, tmp_path: Path):
        Program.__init__(self, text, tmp_path)
        self.maps = []
        self.asynchrony = "late"


def only_kernel(program: Program) -> str:
    (kernel,) = [f.name for f in program.module.functions.values() if f.is_kernel]
    return kernel


@pytest.mark.parametrize("mode", ["late", "random:4"])
@pytest.mark.parametrize("multicast", [1, 2])
def test_deepgemm_bf16(tmp_path, multicast, mode):
    """C = A * B^T with persistent blocks, TMA multicast and swizzled stores."""
    kernel = (
        f"sm90_bf16_gemm_impl<{MAJOR}, {MAJOR}, 0, 0, 0, 1, {BLOCK_M}, {BLOCK_N}, 64, 128, 128, 128, 4, "
        f"128, 256, {multicast}, true, {SMS}, GemmType::Normal, false, cutlass::bfloat16_t>"
    )
    text = ptx("deepgemm", DEEPGEMM.format(file="sm90_bf16_gemm.cuh", kernel=kernel), "cutlass")
    m, n, k = 300, 384, 456
    generator = np.random.default_rng(multicast)
    a, b = (generator.standard_normal((x, k)).astype(ml_dtypes.bfloat16) for x in (m, n))
    program = FromText(text, tmp_path)
    bits = [x.view(np.uint16) for x in (a, b)]
    program.array("a", bits[0], "input")
    program.array("b", bits[1], "input")
    c = program.array("c", np.zeros((m, n), np.uint16))
    bf16 = 9
    maps = [
        program.tensor_map("a", (64, BLOCK_M), swizzle=3, data_type=bf16),
        program.tensor_map("b", (64, BLOCK_N), swizzle=3, data_type=bf16),
        program.tensor_map("c", (64, BLOCK_M), swizzle=3, data_type=bf16),
    ]
    numbers = [np.uint32(x) for x in (m, n, k)]
    program.launch(
        only_kernel(program), SMS, 384, np.uint64(0), *numbers, *maps,
        shared=ALL_SHARED, cluster=(multicast, 1, 1),
    )  # fmt: skip
    program.complete(asynchrony=mode, wall_s=60)
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    got = c.view(ml_dtypes.bfloat16).astype(np.float64)
    assert (np.abs(got - exact) <= 2.0**-8 * np.abs(exact) + 1e-3).all()


@pytest.mark.parametrize("mode", ["late", "random:4"])
def test_deepgemm_fp8_with_scales(tmp_path, mode):
    """Each row of A and each 128 x 128 block of B has a scale for every 128 columns of k."""
    kernel = (
        f"sm90_fp8_gemm_1d2d_impl<{MAJOR}, 0, 0, 0, 1, {BLOCK_M}, {BLOCK_N}, 128, 128, 128, 128, 4, 128, "
        f"256, 1, true, {SMS}, GemmType::Normal, cutlass::bfloat16_t, epilogue::transform::EpilogueIdentity>"
    )
    text = ptx("deepgemm", DEEPGEMM.format(file="sm90_fp8_gemm_1d2d.cuh", kernel=kernel), "cutlass")
    m, n, k = 200, 256, 384
    generator = np.random.default_rng(8)
    a, b = (generator.standard_normal((x, k)).astype(ml_dtypes.float8_e4m3fn) for x in (m, n))
    scale_a = generator.uniform(0.5, 2, (k // 128, m)).astype(np.float32)
    scale_b = generator.uniform(0.5, 2, (n // 128, k // 128)).astype(np.float32)
    program = FromText(text, tmp_path)
    program.array("a", a.view(np.uint8), "input")
    program.array("b", b.view(np.uint8), "input")
    program.array("scale_a", scale_a, "input")
    program.array("scale_b", scale_b, "input")
    c = program.array("c", np.zeros((m, n), np.uint16))
    maps = [
        program.tensor_map("a", (128, BLOCK_M), swizzle=3),
        program.tensor_map("b", (128, BLOCK_N), swizzle=3),
        program.tensor_map("c", (64, BLOCK_M), swizzle=3, data_type=9),
        program.tensor_map("scale_a", (BLOCK_M, 1)),
    ]
    numbers = [np.uint32(x) for x in (m, n, k)]
    program.launch(
        only_kernel(program), SMS, 384, "scale_b", np.uint64(0), *numbers, *maps,
        shared=ALL_SHARED, cluster=(1, 1, 1),
    )  # fmt: skip
    program.complete(asynchrony=mode, wall_s=60)
    wide_a = a.astype(np.float64) * np.repeat(scale_a.T, 128, 1)
    wide_b = b.astype(np.float64) * np.repeat(np.repeat(scale_b, 128, 0), 128, 1)
    exact = wide_a @ wide_b.T
    got = c.view(ml_dtypes.bfloat16).astype(np.float64)
    terms = np.abs(wide_a) @ np.abs(wide_b).T  # whose sums keep about 13 bits (runtime/mma.hpp)
    assert (np.abs(got - exact) <= 2.0**-8 * np.abs(exact) + 2.0**-10 * terms).all()


def test_flashinfer_silu_and_mul(tmp_path):
    code = """#include <flashinfer/activation.cuh>
__device__ __forceinline__ float silu(const float& x) { return x / (1.f + __expf(-x)); }
template __global__ void flashinfer::activation::act_and_mul_kernel<half, silu>(half*, const half*, int);
"""
    program = FromText(ptx("flashinfer", code), tmp_path)
    width = 520
    x = np.random.default_rng(0).standard_normal((7, 2, width)).astype(np.float16)
    program.array("x", x.view(np.uint16), "input")
    out = program.array("out", np.zeros((7, width), np.uint16))
    program.launch(only_kernel(program), 7, 64, "out", "x", np.int32(width))
    program.complete()
    gate, up = x[:, 0].astype(np.float64), x[:, 1].astype(np.float64)
    np.testing.assert_allclose(
        out.view(np.float16).astype(np.float64), gate / (1 + np.exp(-gate)) * up, rtol=2e-3, atol=1e-4
    )


def test_flashinfer_states_of_attention_are_merged(tmp_path):
    code = """#include <flashinfer/attention/cascade.cuh>
template __global__ void flashinfer::MergeStateKernel<8, half, half>(half*, float*, half*, float*, half*,
                                                                     float*, uint32_t, uint32_t);
"""
    program = FromText(ptx("flashinfer", code), tmp_path)
    rows, heads, width = 9, 3, 64
    generator = np.random.default_rng(1)
    v = [generator.standard_normal((rows, heads, width)).astype(np.float16) for _ in range(2)]
    s = [generator.uniform(-3, 3, (rows, heads)).astype(np.float32) for _ in range(2)]
    for name, array in zip(("va", "vb", "sa", "sb"), (*(x.view(np.uint16) for x in v), *s), strict=True):
        program.array(name, array, "input")
    merged = program.array("v", np.zeros((rows, heads, width), np.uint16))
    scale = program.array("s", np.zeros((rows, heads), np.float32))
    numbers = np.uint32(heads), np.uint32(width)
    program.launch(
        only_kernel(program), rows, (width // 8, heads), "va", "sa", "vb", "sb", "v", "s", *numbers
    )
    program.complete()
    weights = np.exp2(np.stack(s).astype(np.float64))
    expected = (weights[..., None] * np.stack(v).astype(np.float64)).sum(0) / weights.sum(0)[..., None]
    np.testing.assert_allclose(merged.view(np.float16).astype(np.float64), expected, atol=2e-3)
    np.testing.assert_allclose(scale, np.log2(weights.sum(0)), atol=1e-5)
