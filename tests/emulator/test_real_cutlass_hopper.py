"""CUTLASS's GEMMs for Hopper, host code included, from build to answer: pingpong, cooperative, fp8."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest
from emulated import KERNELS
from recorded import Recorded, cutlass, tensor

from cudahercules.task.model import LibraryPolicy

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


@dataclass(frozen=True)
class Form:
    element: str
    out: str
    tile: tuple[int, int, int]
    cluster: int
    schedule: str
    epilogue: str

    def source(self) -> str:
        names = ("TILE_M", "TILE_N", "TILE_K")
        chosen = dict(zip(names, self.tile, strict=True), CLUSTER_M=self.cluster)
        chosen |= {"ELEMENT": self.element, "OUT": self.out}
        chosen |= {"MAINLOOP": f"KernelTmaWarpSpecialized{self.schedule}", "EPILOGUE": self.epilogue}
        defines = "".join(f"#define {name} {value}\n" for name, value in chosen.items())
        return defines + (KERNELS / "cutlass_hopper_gemm.cu").read_text()


BF16, FP8 = "cutlass::bfloat16_t", "cutlass::float_e4m3_t"
FORMS = {
    "bf16 pingpong": Form(BF16, BF16, (64, 128, 64), 2, "Pingpong", "TmaWarpSpecialized"),
    "bf16 cooperative": Form(
        BF16, "float", (128, 128, 64), 2, "Cooperative", "TmaWarpSpecializedCooperative"
    ),
    "fp8 cooperative": Form(FP8, BF16, (128, 128, 128), 1, "Cooperative", "TmaWarpSpecializedCooperative"),
}
DTYPES = {"cutlass::bfloat16_t": "bf16", "cutlass::float_e4m3_t": "fp8_e4m3", "float": "fp32"}
NUMPY = {"bf16": ml_dtypes.bfloat16, "fp8_e4m3": ml_dtypes.float8_e4m3fn, "fp32": np.float32}


@functools.cache
def _built(form: str) -> Recorded:
    cutlass()
    chosen = FORMS[form]
    element, out = DTYPES[chosen.element], DTYPES[chosen.out]
    tensors = [
        tensor("a", "in", element, "m", "k"),
        tensor("b", "in", element, "n", "k"),
        tensor("c", "out", out, "m", "n"),
    ]
    return Recorded(chosen.source(), tensors, ("m", "n", "k"), LibraryPolicy.CUTLASS)


@pytest.mark.parametrize("mode", ["late", "eager", "random:5"])
@pytest.mark.parametrize("size", [(256, 256, 192), (200, 136, 96)])
@pytest.mark.parametrize("form", FORMS)
def test_gemm(form, size, mode):
    m, n, k = size
    gemm = _built(form)
    a_type, c_type = (NUMPY[t.dtype.value] for t in (gemm.task.tensors[0], gemm.task.tensors[2]))
    generator = np.random.default_rng(m)
    a = generator.standard_normal((m, k)).astype(a_type)
    b = generator.standard_normal((n, k)).astype(a_type)
    c = np.full((m, n), np.nan, c_type)
    plan = gemm.plan(m=m, n=n, k=k)
    assert len(plan.launches) == 1 and len(plan.tensor_maps) >= 2
    gemm.run(plan, {"a": a, "b": b, "c": c}, mode)
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    limit = 1e-4 if c_type is np.float32 else 2**-8 * np.abs(exact) + 1e-3
    if form.startswith("fp8"):  # sums of fp8 products keep about 13 bits (runtime/mma.hpp)
        limit += 2**-10 * np.abs(a.astype(np.float64)) @ np.abs(b.astype(np.float64)).T
    assert (np.abs(c.astype(np.float64) - exact) <= limit).all()


@pytest.mark.parametrize("form", FORMS)
def test_the_checking_build_finds_nothing(form):
    """Code that is right has no races and misses no wait: pipelines, clusters and warp specialisation."""
    gemm = _built(form)
    a_type, c_type = (NUMPY[t.dtype.value] for t in (gemm.task.tensors[0], gemm.task.tensors[2]))
    a, b = (np.ones((256, 192), a_type) for _ in range(2))
    c = np.zeros((256, 256), c_type)
    assert gemm.findings(gemm.plan(m=256, n=256, k=192), {"a": a, "b": b, "c": c}) == []
    assert (c.astype(np.float64) == 192).all()
