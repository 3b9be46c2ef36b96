"""CUTLASS's sparse GEMMs for Ampere, host code included: what ``mma.sp`` takes where, said by CUTLASS."""

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
    """``chunk`` columns of A hold ``chunk`` / 2 kept elements, which four bits of metadata place."""

    element: str
    out: str
    dtypes: tuple[str, str, str]
    block: str
    warp: str
    instruction: str
    chunk: int

    def source(self) -> str:
        chosen = {"ELEMENT": self.element, "OUT": self.out, "SUM": self.out, "BLOCK": self.block}
        chosen |= {"WARP": self.warp, "INSTRUCTION": self.instruction}
        defines = "".join(f"#define {name} {value}\n" for name, value in chosen.items())
        return defines + (KERNELS / "cutlass_sparse_gemm.cu").read_text()


FORMS = {
    "fp16": Form(
        "cutlass::half_t", "float", ("fp16", "fp32", "uint16"), "128, 64, 64", "64, 32, 64", "16, 8, 32", 4
    ),
    "tf32": Form("float", "float", ("tf32", "fp32", "uint16"), "128, 64, 32", "64, 32, 32", "16, 8, 16", 2),
    "int8": Form(
        "int8_t", "int32_t", ("int8", "int32", "uint32"), "128, 64, 128", "64, 32, 128", "16, 8, 64", 4
    ),
}
NUMPY = {"fp16": np.float16, "tf32": np.float32, "int8": np.int8, "fp32": np.float32, "int32": np.int32}


@functools.cache
def _built(form: str) -> Recorded:
    cutlass()
    element, out, metadata = FORMS[form].dtypes
    tensors = [
        tensor("a", "in", element, "m", "kept"),
        tensor("b", "in", element, "n", "kept", 2),
        tensor("e", "in", metadata, "m", "words"),
        tensor("c", "out", out, "m", "n"),
    ]
    return Recorded(FORMS[form].source(), tensors, ("m", "n", "kept", "words"), LibraryPolicy.CUTLASS, "80")


def _pruned(generator: np.random.Generator, form: Form, m: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Four bits for each chunk of each row, and the columns of the kept elements."""
    chunks = k // form.chunk
    if form.chunk == 2:
        place = generator.integers(0, 2, (m, chunks))
        return np.where(place, 0b1110, 0b0100), 2 * np.arange(chunks) + place
    pair = np.sort(np.argsort(generator.random((m, chunks, 4)), axis=2)[:, :, :2], axis=2)
    columns = pair + 4 * np.arange(chunks)[:, None]
    return pair[:, :, 0] | pair[:, :, 1] << 2, columns.reshape(m, -1)


def _in_cutlass_order(nibbles: np.ndarray, type_: np.dtype) -> np.ndarray:
    """Words of metadata as SparseGemm wants them: rows of a group take turns, 2 x 2 blocks are transposed,
    and two columns are interleaved down the rows."""
    each = type_.itemsize * 2
    shifts = np.arange(each, dtype=np.uint64) * np.uint64(4)
    m = len(nibbles)
    words = (nibbles.reshape(m, -1, each).astype(np.uint64) << shifts).sum(2).astype(type_)
    group, turns = (32, 4) if type_.itemsize == 2 else (16, 2)
    out = np.zeros_like(words)
    for row, column in np.ndindex(*words.shape):
        to_row = row // group * group + row % 8 * turns + row % group // 8
        to_column = column
        if to_row % 2 != column % 2:
            to_row, to_column = to_row ^ 1, column ^ 1
        out[to_row, to_column] = words[row, column]
    return np.ascontiguousarray(out.reshape(m, -1, 2).transpose(1, 0, 2)).reshape(m, -1)


@pytest.mark.parametrize("size", [(256, 128, 256), (160, 80, 512)])
@pytest.mark.parametrize("form", FORMS)
def test_gemm(form, size):
    m, n, k = size
    generator = np.random.default_rng(k)
    element, out, metadata = FORMS[form].dtypes
    if form == "int8":
        a, b = (generator.integers(-128, 128, s).astype(np.int8) for s in ((m, k // 2), (n, k)))
    else:
        a, b = (generator.standard_normal(s).astype(NUMPY[element]) for s in ((m, k // 2), (n, k)))
    if form == "tf32":  # hardware cuts operands to tf32: leave nothing to cut
        a, b = ((x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) for x in (a, b))
    nibbles, columns = _pruned(generator, FORMS[form], m, k)
    e = _in_cutlass_order(nibbles, np.dtype(metadata))
    c = np.full((m, n), 99, NUMPY[out])
    gemm = _built(form)
    plan = gemm.plan(m=m, n=n, kept=k // 2, words=e.shape[1])
    assert len(plan.launches) == 1  # CUTLASS takes the sizes
    gemm.run(plan, {"a": a, "b": b, "e": e, "c": c})
    dense = np.zeros((m, k))
    np.put_along_axis(dense, columns, a.astype(np.float64), 1)
    error = np.abs(c.astype(np.float64) - dense @ b.astype(np.float64).T)
    assert error.max() <= (0 if form == "int8" else 2e-4)
