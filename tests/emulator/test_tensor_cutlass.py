"""CUTLASS's sm_80 GEMMs without their host code: bf16, fp16, TF32, int8, fp64."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from emulated import KERNELS, Program
from recorded import cutlass
from tensor_values import NP, decode, random_bits

from cudahercules.cache import digest, entry
from cudahercules.process import Limits, run_limited

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def ptx() -> str:
    include = cutlass()
    source = KERNELS / "cutlass_gemm.cu"

    def make(directory) -> None:  # type: ignore[no-untyped-def]
        shutil.copy(source, directory / source.name)
        done = run_limited(
            [shutil.which("nvcc") or "nvcc", "-ptx", "-std=c++17", "-arch=sm_80", "-lineinfo", "-w",
             "--expt-relaxed-constexpr", f"-I{include}", source.name, "-o", "out.ptx"],
            Limits(wall_s=600),
            cwd=directory,
            env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(directory)},
        )  # fmt: skip
        assert done.status == 0, done.stderr.decode()[:4000]

    directory, _ = entry("test-ptx", digest("cutlass", str(include), source.read_text()), make)
    return (directory / "out.ptx").read_text()


@pytest.mark.parametrize(
    ("kernel", "type_", "c_type", "tile"),
    [
        ("brain", "bf16", "f32", (128, 64)),
        ("halves", "f16", "f16", (128, 64)),
        ("tf32", "tf32", "f32", (128, 64)),
        ("bytes", "s8", "s32", (128, 64)),
        ("doubles", "f64", "f64", (64, 64)),
    ],
)
@pytest.mark.parametrize("size", [(256, 128, 160), (136, 72, 208)])
def test_gemm(ptx, tmp_path, kernel, type_, c_type, tile, size):
    m, n, k = size
    generator = np.random.default_rng(m)
    a, b = random_bits(generator, type_, (m, k)), random_bits(generator, type_, (n, k))
    if type_ == "tf32":  # CUTLASS rounds its operands, hardware would cut them: leave nothing to round
        a, b = a & np.uint32(0xFFFFE000), b & np.uint32(0xFFFFE000)
    program = Program(ptx, tmp_path)
    program.array("a", a, "input")
    program.array("b", b, "input")
    c = program.array("c", np.zeros((m, n), NP[c_type]))
    grid = (-(-m // tile[0]), -(-n // tile[1]))
    sizes = [np.int32(x) for x in size]
    program.launch(kernel, grid, 128, "a", "b", "c", *sizes, shared=112 << 10)
    program.complete(wall_s=120)
    exact = decode(a, type_) @ decode(b, type_).T
    limit = {"f32": 1e-4, "f16": 0.03, "s32": 0, "f64": 1e-11}[c_type]
    assert np.abs(decode(c, c_type) - exact).max() <= limit
