"""``mma.sync`` on raw registers, against the manual's layouts and sums as an H200 makes them."""

from __future__ import annotations

import numpy as np
import pytest
import tensor_sums as sums
from emulated import Program
from hardware_sums import KINDS
from hardware_sums import operands as limits
from tensor_layouts import layouts
from tensor_programs import MMAS, Mma, module
from tensor_values import decode, gather, pack, random_bits, scatter, unpack


@pytest.fixture(scope="module")
def ptx() -> str:
    return module([m.ptx() for m in MMAS])


def pieces(mma: Mma, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Each lane's registers of A, B and C, from bit patterns of A (m, k), B (k, n) and C (m, n)."""
    m, n, k = mma.shape
    d, type_a, type_b = mma.types
    place_a, place_b, place_c = layouts(mma.shape, type_a)
    return np.concatenate(
        [
            pack(scatter(a, place_a, 32, m * k // 32), type_a),
            pack(scatter(b, place_b, 32, n * k // 32), type_b),
            pack(scatter(c, place_c, 32, m * n // 32), d),
        ],
        axis=1,
    )


def run(ptx: str, tmp_path, mma: Mma, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:  # type: ignore[no-untyped-def]
    """D as bit patterns of (m, n)."""
    words = pieces(mma, a, b, c)
    program = Program(ptx, tmp_path)
    program.array("in", words, "input")
    out = program.array("out", np.zeros((32, mma.sizes()[2]), words.dtype))
    program.launch(mma.kernel, 1, 32, "in", "out")
    program.complete()
    return gather(unpack(out, mma.types[0]), layouts(mma.shape, mma.types[1])[2], mma.shape[:2])


def operands(mma: Mma, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    m, n, k = mma.shape
    generator = np.random.default_rng(seed)
    d, a, b = mma.types
    shapes = ((a, (m, k)), (b, (k, n)), (d, (m, n)))
    return tuple(random_bits(generator, t, s) for t, s in shapes)  # type: ignore[return-value]


@pytest.mark.parametrize("mma", MMAS, ids=lambda m: m.name)
def test_random_values(ptx, tmp_path, mma):
    a, b, c = operands(mma, MMAS.index(mma))
    d = run(ptx, tmp_path, mma, a, b, c)
    type_d, type_a, type_b = mma.types
    exact = decode(a, type_a) @ decode(b, type_b) + decode(c, type_d)
    if type_d == "s32":
        assert np.array_equal(decode(d, "s32"), exact)
    elif type_d == "f64":
        terms = np.abs(decode(a, type_a)) @ np.abs(decode(b, type_b)) + np.abs(decode(c, type_d))
        assert (np.abs(decode(d, type_d) - exact) <= 2.0**-45 * terms).all()
    else:
        assert sums.same(decode(d, type_d), sums.of_mma(mma.types, a, b.T, c))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mma", [m for m in MMAS if m.types[0] in ("f32", "f16")], ids=lambda m: m.name)
def test_sums_at_their_limits(ptx, tmp_path, mma, kind):
    m, n, k = mma.shape
    a, b, c = limits(kind, mma.types, ((m, k), (n, k), (m, n)), 4)
    got = decode(run(ptx, tmp_path, mma, a, b.T, c), mma.types[0])
    assert sums.same(got, sums.of_mma(mma.types, a, b, c))


def form(*types: str, k: int = 16, m: int = 16, saturate: bool = False) -> Mma:
    return next(x for x in MMAS if x.types == types and x.shape == (m, 8, k) and x.saturate == saturate)


def zeros(mma: Mma) -> list[np.ndarray]:
    return [np.zeros_like(x) for x in operands(mma, 0)]


F32 = {"one": 0x3F800000, "tiny": 0x00000001, "inf": 0x7F800000, "nan": 0x7FC12345, "minus": 0xBF800000}


def test_not_a_number_and_infinity(ptx, tmp_path):
    mma = form("f32", "f16", "f16")
    a, b, c = zeros(mma)
    a[0, 3], b[3, :] = 0x7C00, 0x3C00  # infinity times one
    a[1, 3] = 0x7C00
    a[1, 4], b[4, 0] = 0x7C00, 0xBC00  # infinity minus infinity in column 0; infinity times zero elsewhere
    a[2, 5], b[5, :] = 0x7E01, 0  # a NaN times zero
    c[3, 0] = F32["nan"]
    c[4, 1] = F32["inf"]
    d = run(ptx, tmp_path, mma, a, b, c)
    assert (d[0] == F32["inf"]).all()
    assert (d[1] == 0x7FFFFFFF).all()
    assert (d[2] == 0x7FFFFFFF).all()
    assert d[3, 0] == 0x7FFFFFFF and (d[3, 1:] == 0).all()
    assert d[4, 1] == F32["inf"] and d[4, 0] == 0


def test_what_falls_below_the_largest_is_cut(ptx, tmp_path):
    """1 + sixteen times 2^-25 is 1 + 2^-21, sixteen times 2^-26 are nothing, and large products that cancel
    take what is small with them."""
    mma = form("f32", "bf16", "bf16")
    a, b, c = zeros(mma)
    b[:, 0] = 0x3F80
    a[0, :] = (127 - 25) << 7
    c[0, 0] = F32["one"]
    a[1, 0], a[1, 15], c[1, 0] = 0x4F80, 0xCF80, F32["one"]  # 2^32 - 2^32 + 1
    a[2, :], c[2, 0] = (127 - 26) << 7, F32["one"]
    a[3, 0], a[3, 15], c[3, 0] = 0x4C00, 0xCC00, F32["one"]  # 2^25 - 2^25 + 1
    d = run(ptx, tmp_path, mma, a, b, c)
    assert decode(d, "f32")[0, 0] == 1 + 2.0**-21
    assert decode(d, "f32")[1:4, 0].tolist() == [0, 1, 1]


def test_subnormals_count(ptx, tmp_path):
    mma = form("f32", "f16", "f16", k=8)
    a, b, c = zeros(mma)
    a[0, 0], b[0, 0], c[1, 1] = 0x0001, 0x3C00, F32["tiny"]
    d = run(ptx, tmp_path, mma, a, b, c)
    assert decode(d, "f32")[0, 0] == 2.0**-24
    assert d[1, 1] == F32["tiny"]


def test_half_accumulators_are_rounded_once_and_overflow(ptx, tmp_path):
    mma = form("f16", "f16", "f16")
    a, b, c = zeros(mma)
    b[:, 0] = 0x3C00
    c[0, 0], a[0, 0], a[0, 1] = 0x6800, 0x3C00, 0x0400  # 2048 + 1 + 2^-14: above the tie
    c[1, 0], a[1, 0] = 0x6800, 0x3C00  # 2048 + 1: the tie goes to even
    c[2, 0], a[2, 0] = 0x7BFF, 0x4C00  # 65504 + 16: the tie goes to infinity
    c[3, 0] = 0x7E55
    c[4, 0], a[4, 0], a[4, 1] = 0x6800, 0x3C00, 0x0200  # 2048 + 1 + 2^-15: the last is cut off
    d = run(ptx, tmp_path, mma, a, b, c)
    assert [int(x) for x in d[:5, 0]] == [0x6801, 0x6800, 0x7C00, 0x7FFF, 0x6800]


def test_low_bits_of_tf32_do_not_count(ptx, tmp_path):
    mma = form("f32", "tf32", "tf32", k=8)
    a, b, c = operands(mma, 1)
    noise = np.random.default_rng(2).integers(0, 1 << 13, a.shape).astype(np.uint32)
    first = run(ptx, tmp_path, mma, a, b, c)
    second = run(ptx, tmp_path, mma, (a & ~np.uint32(0x1FFF)) | noise, b ^ np.uint32(0x1000), c)
    assert np.array_equal(first, second)


@pytest.mark.parametrize("saturate", [False, True])
def test_integer_overflow(ptx, tmp_path, saturate):
    mma = form("s32", "s8", "s8", k=32, saturate=saturate)
    a, b, c = zeros(mma)
    a[:2, :], b[:, 0], b[:, 1] = 0x80, 0x80, 0x7F  # -128 times -128, and times 127
    c[0, 0], c[1, 1] = 0x7FFFFFFF, 0x80000000
    d = run(ptx, tmp_path, mma, a, b, c)
    if saturate:
        assert d[0, 0] == 0x7FFFFFFF and d[1, 1] == 0x80000000
    else:
        assert d[0, 0] == 0x7FFFFFFF + 32 * 128 * 128 and d[1, 1] == 0x80000000 - 32 * 128 * 127
    assert d[0, 2] == 0 and d[1, 0] == 32 * 128 * 128


def test_signed_and_unsigned_bytes(ptx, tmp_path):
    for types in (("s32", "s8", "u8"), ("s32", "u8", "s8"), ("s32", "u8", "u8")):
        mma = form(*types)
        a, b, c = zeros(mma)
        a[0, 0], b[0, 0] = 0xFF, 0xFE
        d = run(ptx, tmp_path, mma, a, b, c)
        value = (-1 if types[1] == "s8" else 255) * (-2 if types[2] == "s8" else 254)
        assert decode(d, "s32")[0, 0] == value, types


@pytest.mark.parametrize("types", [("f32", "e4m3", "e4m3"), ("f32", "e5m2", "e5m2")])
def test_special_values_of_fp8(ptx, tmp_path, types):
    mma = form(*types, k=32)
    a, b, c = zeros(mma)
    one = 0x38 if types[1] == "e4m3" else 0x3C
    b[0, :] = one
    a[:16, 0] = [
        0x7F,
        0xFF,
        0x7E,
        0x01,
        0x81,
        0x78,
        0x7C,
        0x7D,
        0x08,
        0x04,
        0x03,
        0x80,
        0x00,
        0x30,
        0xF8,
        one,
    ]
    d = run(ptx, tmp_path, mma, a, b, c)
    expected = decode(a[:, 0], types[1]).astype(np.float32)
    got = decode(d, "f32")[:, 5].astype(np.float32)
    assert np.array_equal(np.isnan(got), np.isnan(expected))
    assert np.array_equal(got[~np.isnan(got)], expected[~np.isnan(expected)])


def test_double_products_are_fused_in_order(ptx, tmp_path):
    """(1 + 2^-30)^2 - 1 keeps its 2^-60 only if the product is not rounded."""
    mma = form("f64", "f64", "f64", k=4, m=8)
    a, b, c = zeros(mma)
    value = np.float64(1 + 2.0**-30).view(np.uint64)
    a[0, 0] = b[0, 0] = value
    c[0, 0] = np.float64(-1.0).view(np.uint64)
    d = run(ptx, tmp_path, mma, a, b, c)
    assert decode(d, "f64")[0, 0] == 2.0**-29 + 2.0**-60


def test_a_warp_that_is_not_whole_is_a_fault(ptx, tmp_path):
    program = Program(ptx, tmp_path)
    program.array("in", np.zeros((32, 16), np.uint32), "input")
    program.array("out", np.zeros((32, 4), np.uint32))
    program.launch(form("f32", "f16", "f16").kernel, 1, 16, "in", "out")
    fault = program.fault()
    assert fault.what == "illegal_instruction"
    assert "only 16 lanes" in fault.message and "mma.sync" in fault.message
