"""The wmma API as nvcc compiles it: every type, shape and layout, and a GEMM."""

from __future__ import annotations

import numpy as np
import pytest
import tensor_sums as sums
from emulated import KERNELS, Program, compile_ptx
from tensor_values import NP, decode, random_bits

CASES = [  # kernel, types of A/B and of the accumulators, m, n, k
    *((f"half_16_16_{x}", "f16", "f32", 16, 16, 16) for x in ("rr", "rc", "cr")),
    ("half_16_16_cc", "f16", "f16", 16, 16, 16),
    ("half_32_8_rc", "f16", "f32", 32, 8, 16),
    ("half_8_32_cr", "f16", "f16", 8, 32, 16),
    ("bfloat_16_16_rc", "bf16", "f32", 16, 16, 16),
    ("bfloat_32_8_cc", "bf16", "f32", 32, 8, 16),
    ("bfloat_8_32_rr", "bf16", "f32", 8, 32, 16),
    *((f"tf32_16_16_{x}", "tf32", "f32", 16, 16, 8) for x in ("rc", "cr")),
    ("signed_16_16_rc", "s8", "s32", 16, 16, 16),
    ("unsigned_16_16_cr", "u8", "s32", 16, 16, 16),
    ("signed_32_8_rr", "s8", "s32", 32, 8, 16),
    ("signed_8_32_cc", "s8", "s32", 8, 32, 16),
    *((f"double_8_8_{x}", "f64", "f64", 8, 8, 4) for x in ("rc", "cr")),
    ("half_32_8_cr", "f16", "f16", 32, 8, 16),
    ("half_8_32_rr", "f16", "f32", 8, 32, 16),
    ("unsigned_32_8_cc", "u8", "s32", 32, 8, 16),
    ("unsigned_8_32_rc", "u8", "s32", 8, 32, 16),
]


@pytest.fixture(scope="module")
def ptx():
    return compile_ptx(KERNELS / "wmma.cu", "80")


def in_memory(matrix: np.ndarray, letter: str, pitch: int) -> np.ndarray:
    """2048 elements that hold ``matrix`` by rows or columns, ``pitch`` elements apart."""
    lines = matrix if letter == "r" else matrix.T
    out = np.zeros(2048, matrix.dtype)
    for i, line in enumerate(lines):
        out[i * pitch : i * pitch + len(line)] = line
    return out


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("case", CASES, ids=lambda c: c[0])
def test_products(ptx, tmp_path, case, columns):
    name, type_, d_type, m, n, k = case
    layout_a, layout_b = name.rsplit("_", 1)[1]
    generator = np.random.default_rng(CASES.index(case))
    a, b = random_bits(generator, type_, (m, k)), random_bits(generator, type_, (k, n))
    if type_ in ("s8", "u8"):
        a = a % np.array(64, a.dtype)  # doubled in the kernel
    c = random_bits(generator, d_type, (m, n))
    pitch = {"s8": 32, "u8": 48}.get(type_, 40 if max(m, n) > 16 else 24)
    c_pitch = 40 if max(m, n) > 16 else 24
    program = Program(ptx, tmp_path)
    program.array("a", in_memory(a, layout_a, pitch), "input")
    program.array("b", in_memory(b, layout_b, pitch), "input")
    order = "c" if columns else "r"
    program.array("c", in_memory(c, order, c_pitch), "input")
    d = program.array("d", np.zeros(2048, NP[d_type]))
    numbers = [np.int32(x) for x in (pitch, pitch, c_pitch, columns)]
    program.launch(name, 1, 32, "a", "b", "c", "d", *numbers, shared=32768)
    program.complete()
    lines = d.reshape(-1)[: c_pitch * (n if columns else m)].reshape(-1, c_pitch)
    got = decode(lines[:, : m if columns else n], d_type)
    got = got.T if columns else got
    if d_type in ("s32", "f64"):
        terms = 2 * np.abs(decode(a, type_)) @ np.abs(decode(b, type_)) + np.abs(decode(c, d_type))
        exact = 2 * decode(a, type_) @ decode(b, type_) + decode(c, d_type)
        assert (np.abs(got - exact) <= (2.0**-45 * terms if d_type == "f64" else 0)).all()
    else:
        doubled = a + a.dtype.type(1 << {"f16": 10, "bf16": 7, "tf32": 23}[type_])  # one more in the exponent
        types = d_type, type_, type_
        if type_ == "tf32":  # ptxas makes two instructions of k = 4
            c = sums.together(types, doubled[:, :4], b[:4].T, c).astype(np.float32).view(np.uint32)
            doubled, b = doubled[:, 4:], b[4:]
        assert sums.same(got, sums.together(types, doubled, b.T, c))
    assert not lines[:, m if columns else n :].any()


def test_gemm(ptx, tmp_path):
    generator = np.random.default_rng(0)
    a = generator.standard_normal((64, 128)).astype(np.float16)
    b = generator.standard_normal((128, 96)).astype(np.float16)
    program = Program(ptx, tmp_path)
    program.array("a", a, "input")
    program.array("b", b, "input")
    c = program.array("c", np.zeros((64, 96), np.float32))
    program.launch("gemm", (3, 2), 128, "a", "b", "c", np.int32(96), np.int32(128))
    program.complete()
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64), atol=5e-5)


def test_tile_outside_a_buffer(ptx, tmp_path):
    program = Program(ptx, tmp_path)
    for name in "abc":
        program.array(name, np.zeros(256, np.uint16 if name != "c" else np.float32), "input")
    program.array("d", np.zeros(256, np.float32))
    program.launch("half_16_16_rr", 1, 32, "a", "b", "c", "d", *(np.int32(x) for x in (24, 16, 16, 0)))
    fault = program.fault()
    assert fault.what == "out_of_bounds" and "buffer 'a'" in fault.message


def _packed(matrix: np.ndarray, width: int, pitch: int) -> np.ndarray:
    """Rows of elements of ``width`` bits as words, ``pitch`` elements apart; the first is lowest."""
    rows = np.zeros((len(matrix), pitch), np.uint64)
    rows[:, : matrix.shape[1]] = matrix & ((1 << width) - 1)
    each = 32 // width
    shifts = np.arange(each, dtype=np.uint64) * np.uint64(width)
    return (rows.reshape(len(matrix), -1, each) << shifts).sum(2).astype(np.uint32)


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize(
    ("kernel", "width", "low", "high", "k"),
    [("packed_s4", 4, -8, 8, 32), ("packed_u4", 4, 0, 16, 32), ("packed_b1", 1, 0, 2, 128)],
)
def test_elements_below_a_byte(ptx, tmp_path, kernel, width, low, high, k, exclusive):
    generator, pitch = np.random.default_rng(width + exclusive), 2 * k
    a, b = (generator.integers(low, high, (8, k)) for _ in range(2))
    c = generator.integers(-1000, 1000, (8, 8)).astype(np.int32)
    program = Program(ptx, tmp_path)
    program.array("a", _packed(a, width, pitch), "input")
    program.array("b", _packed(b, width, pitch), "input")
    program.array("c", c, "input")
    d = program.array("d", np.zeros((8, 8), np.int32))
    program.launch(kernel, 1, 32, "a", "b", "c", "d", np.int32(pitch), np.int32(exclusive))
    program.complete()
    joined = (a[:, None] ^ b[None]).sum(2) if exclusive and width == 1 else a @ b.T
    assert np.array_equal(d, c + joined)
