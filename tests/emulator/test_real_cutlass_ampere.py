"""CUTLASS's GEMMs for Ampere, host code included, from build to answer: fp16, TF32, int8, split along k."""

from __future__ import annotations

import functools
from dataclasses import dataclass

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
    sum: str
    dtypes: tuple[str, str]
    block: str
    warp: str
    instruction: str
    operator: str = "OpMultiplyAdd"

    def source(self) -> str:
        chosen = {"ELEMENT": self.element, "OUT": self.out, "SUM": self.sum, "BLOCK": self.block}
        chosen |= {"WARP": self.warp, "INSTRUCTION": self.instruction, "OPERATOR": self.operator}
        chosen |= {"SPLIT_K": "true" if self.element == "cutlass::half_t" else "false"}
        defines = "".join(f"#define {name} {value}\n" for name, value in chosen.items())
        return defines + (KERNELS / "cutlass_ampere_gemm.cu").read_text()


FORMS = {
    "fp16": Form(
        "cutlass::half_t", "float", "float", ("fp16", "fp32"), "128, 64, 32", "64, 32, 32", "16, 8, 16"
    ),
    "tf32": Form("float", "float", "float", ("tf32", "fp32"), "128, 64, 16", "64, 32, 16", "16, 8, 8"),
    "int8": Form(
        "int8_t", "int32_t", "int32_t", ("int8", "int32"), "128, 64, 64", "64, 32, 64", "16, 8, 32",
        "OpMultiplyAddSaturate",
    ),
}  # fmt: skip
NUMPY = {"fp16": np.float16, "tf32": np.float32, "int8": np.int8, "fp32": np.float32, "int32": np.int32}


@functools.cache
def _built(form: str) -> Recorded:
    cutlass()
    element, out = FORMS[form].dtypes
    tensors = [
        tensor("a", "in", element, "m", "k"),
        tensor("b", "in", element, "n", "k"),
        tensor("c", "out", out, "m", "n"),
    ]
    return Recorded(FORMS[form].source(), tensors, ("m", "n", "k", "slices"), LibraryPolicy.CUTLASS, "80")


def _operands(form: str, m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    generator, element = np.random.default_rng(k), NUMPY[FORMS[form].dtypes[0]]
    if element is np.int8:
        return tuple(generator.integers(-128, 128, (x, k)).astype(np.int8) for x in (m, n))  # type: ignore[return-value]
    a, b = (generator.standard_normal((x, k)).astype(element) for x in (m, n))
    if form == "tf32":  # hardware cuts operands to tf32: leave nothing to cut
        a, b = ((x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) for x in (a, b))
    return a, b


def _run(form: str, m: int, n: int, k: int, slices: int, mode: str) -> None:
    gemm = _built(form)
    a, b = _operands(form, m, n, k)
    c = np.full((m, n), 99, NUMPY[FORMS[form].dtypes[1]])
    gemm.run(gemm.plan(m=m, n=n, k=k, slices=slices), {"a": a, "b": b, "c": c}, mode)
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    assert np.abs(c.astype(np.float64) - exact).max() <= (0 if form == "int8" else 1e-4)


@pytest.mark.parametrize("mode", ["late", "eager"])
@pytest.mark.parametrize("size", [(256, 128, 160), (136, 72, 208)])
@pytest.mark.parametrize("form", FORMS)
def test_gemm(form, size, mode):
    _run(form, *size, 1, mode)


@pytest.mark.parametrize("mode", ["late", "random:3"])
def test_blocks_that_share_an_output_tile_take_turns(mode):
    _run("fp16", 128, 64, 512, 4, mode)


@pytest.mark.parametrize("form", FORMS)
def test_the_checking_build_finds_nothing(form):
    gemm = _built(form)
    a, b = _operands(form, 136, 72, 208)
    c = np.zeros((136, 72), NUMPY[FORMS[form].dtypes[1]])
    assert gemm.findings(gemm.plan(m=136, n=72, k=208, slices=1), {"a": a, "b": b, "c": c}) == []
