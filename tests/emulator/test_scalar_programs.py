"""Per-thread arithmetic as nvcc compiles it, for four architectures, against NumPy and Python."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import scalar_reference_float as fp
from emulated import KERNELS, Program, compile_ptx

from cudahercules.emulator.check import unsupported

SOURCE = KERNELS / "scalar_math.cu"
COUNT = 256
BF16 = ml_dtypes.bfloat16


_SLOW = [pytest.param(architecture, marks=pytest.mark.slow) for architecture in ("90a", "120a")]


@pytest.fixture(scope="module", params=["80", "100a", *_SLOW])
def ptx(request: pytest.FixtureRequest) -> str:
    return compile_ptx(SOURCE, request.param)


@pytest.fixture
def program(ptx: str, tmp_path: Path) -> Program:
    return Program(ptx, tmp_path)


def run(program: Program, kernel: str, *arrays: np.ndarray) -> None:
    """Launches ``kernel`` over the arrays in place."""
    for position, array in enumerate(arrays):
        program.array(f"a{position}", array)
    names = [f"a{position}" for position in range(len(arrays))]
    program.launch(kernel, 2, 128, *names, np.int32(COUNT))
    program.complete()


def floats(seed: int, dtype: type = np.float32, scale: float = 8.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(COUNT) * scale).astype(dtype)


def words(seed: int, dtype: type, shape: tuple[int, ...] = (COUNT,)) -> np.ndarray:
    values = np.random.default_rng(seed).integers(0, np.iinfo(dtype).max, shape, dtype=dtype, endpoint=True)
    values.reshape(-1)[:6] = [
        0,
        1,
        np.iinfo(dtype).max,
        np.iinfo(dtype).max // 2,
        np.iinfo(dtype).max // 2 + 1,
        31,
    ]
    return values


def test_all_of_it_is_supported(ptx: str) -> None:
    assert unsupported(ptx) == ()


def elementwise(function: object, *arguments: np.ndarray) -> np.ndarray:
    return np.array([function(*row) for row in zip(*(a.tolist() for a in arguments), strict=True)])  # type: ignore[operator]


def functions_of(a: np.ndarray, b: np.ndarray) -> dict[str, np.ndarray]:
    """In double precision, by name; a and b are the exact inputs."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    return {
        "exp": np.exp(a),
        "log": np.log(abs(a)),
        "pow": abs(a) ** b,
        "sin": np.sin(a),
        "cos": np.cos(a),
        "erf": elementwise(math.erf, a),
        "tanh": np.tanh(a),
        "atan2": np.arctan2(a, b),
        "cbrt": np.cbrt(a),
        "lgamma": elementwise(math.lgamma, abs(a) + 1),
        "sqrt": np.sqrt(abs(a)),
        "div": a / b,
        "fmod": np.fmod(a, b),
        "rsqrt": 1 / np.sqrt(abs(a)),
        "expm1": np.expm1(a),
        "log1p": np.log1p(abs(a)),
        "rint": np.rint(a),
    }


def test_double_functions(program: Program) -> None:
    x, y, out = floats(1, np.float64), floats(2, np.float64, 3), np.zeros((COUNT, 20))
    run(program, "double_functions", x, y, out)
    wanted = functions_of(x, y)
    wanted |= {
        "asin": np.arcsin(x / 40),
        "hypot": np.hypot(x, y),
        "erfc": elementwise(math.erfc, abs(x)),
    }
    for column, (name, values) in enumerate(wanted.items()):
        np.testing.assert_allclose(out[:, column], values, rtol=2e-14, atol=1e-15, err_msg=name)
    np.testing.assert_array_equal(out[:, 10:13], np.stack([np.sqrt(abs(x)), x / y, np.fmod(x, y)], 1))


def test_float_functions(program: Program) -> None:
    x, y, out = floats(3), floats(4, scale=3), np.zeros((COUNT, 24), np.float32)
    run(program, "float_functions", x, y, out)
    exact = functions_of(x, y)
    a, b = x.astype(np.float64), y.astype(np.float64)
    exact |= {
        "round": np.sign(a) * np.floor(abs(a) + 0.5),
        "__expf": np.exp(a),
        "__logf": np.log(abs(a)),
        "__sinf": np.sin(a),
        "__fdividef": a / b,
        "exp2": np.exp2(a),
        "log2": np.log2(abs(a)),
    }
    loose = {"__expf": 1e-5, "__logf": 1e-5, "__sinf": 1e-4, "pow": 2e-6}
    for column, (name, values) in enumerate(exact.items()):
        np.testing.assert_allclose(
            out[:, column], values, rtol=loose.get(name, 1e-6), atol=loose.get(name, 2e-7), err_msg=name
        )
    np.testing.assert_array_equal(out[:, 10], np.sqrt(abs(x)))
    np.testing.assert_array_equal(out[:, 11], x / y)


def rounded(format_: str, value: fp.Value, mode: str) -> int:
    return fp.encode(format_, value, mode)


def test_directed_rounding(program: Program) -> None:
    x, y, u, v = floats(5), floats(6), floats(7, np.float64), floats(8, np.float64)
    x[:4], u[:4] = [3e38, 1e-44, -2.0, 1.0], [1.7e308, 5e-324, -2.0, 1.0]
    y[:4], v[:4] = [3e38, 0.3, 1e-30, -1.0], [1.7e308, 0.3, 1e-200, -1.0]
    f, d = np.zeros((COUNT, 20), np.float32), np.zeros((COUNT, 12))
    run(program, "directed_rounding", x, y, u, v, f, d)
    one = (0, Fraction(1))

    def answers(format_: str, a: fp.Value, b: fp.Value) -> dict[str, fp.Value]:
        magnitude = a and (0, a[1])
        return {
            "mul": fp.multiply(a, b),
            "div": fp.divide(a, b),
            "sqrt": fp.square_root(magnitude),
            "rcp": fp.divide(one, a),
        }

    def check(format_: str, got: int, operation: str, mode: str, a: fp.Value, b: fp.Value) -> None:
        if operation == "add":
            exact = fp.add(a, b, mode)
        elif operation == "fma":
            exact = fp.add(fp.multiply(a, b), a, mode)
        else:
            exact = answers(format_, a, b)[operation]
        assert got == rounded(format_, exact, mode), (operation, mode, a, b)

    singles = [
        (op, mode) for op in ("add", "mul", "fma", "div", "sqrt", "rcp") for mode in ("rz", "rp", "rm")
    ]
    doubles = [(op, mode) for op in ("add", "mul", "fma") for mode in ("rz", "rp", "rm")]
    doubles += [("div", "rp"), ("sqrt", "rm"), ("rcp", "rz")]
    for i in range(COUNT):
        a, b = (fp.decode("f32", int(array.view(np.uint32)[i])) for array in (x, y))
        for column, case in enumerate(singles):
            check("f32", int(f.view(np.uint32)[i, column]), *case, a, b)
        a, b = (fp.decode("f64", int(array.view(np.uint64)[i])) for array in (u, v))
        for column, case in enumerate(doubles):
            check("f64", int(d.view(np.uint64)[i, column]), *case, a, b)
    np.testing.assert_array_equal(f[:, 18], np.clip(x, 0, 1))
    np.testing.assert_array_equal(f[:, 19], np.copysign(x, y))


def test_wide_integers(program: Program) -> None:
    x, y, out = words(9, np.uint64), words(10, np.uint64), np.zeros((COUNT, 12), np.uint64)
    run(program, "wide_integers", x, y, out)
    full = (1 << 128) - 1
    for xi, yi, row in zip(x.tolist(), y.tolist(), out.tolist(), strict=True):
        a, b = xi << 64 | yi, (yi >> 3) << 64 | xi
        wanted = [a + b, a - b, a * b, a // (b | 1), a % (b | 1), a >> (xi & 127)]
        assert [row[2 * k] | row[2 * k + 1] << 64 for k in range(6)] == [value & full for value in wanted]


def test_carry_chain(program: Program) -> None:
    x, y = words(11, np.uint32, (COUNT, 4)), words(12, np.uint32, (COUNT, 4))
    x[8:40], y[8:40] = 0xFFFFFFFF, [1, 0, 0, 0]
    out = np.zeros((COUNT, 12), np.uint32)
    run(program, "carry_chain", x, y, out)

    def joined(row: list[int]) -> int:
        return sum(word << 32 * k for k, word in enumerate(row))

    for a, b, row in zip(x.tolist(), y.tolist(), out.tolist(), strict=True):
        full = (1 << 128) - 1
        assert joined(row[:4]) == joined(a) + joined(b) & full
        assert joined(row[4:8]) == joined(a) - joined(b) & full
        assert joined(row[8:]) == joined(a[:2]) * joined(b[:2])


def test_bit_tricks(program: Program) -> None:
    x, y, out = words(13, np.uint32), words(14, np.uint32), np.zeros((COUNT, 20), np.uint32)
    run(program, "bit_tricks", x, y, out)
    full = 0xFFFFFFFF

    def signed(word: int, width: int = 32) -> int:
        return word - (1 << width) if word >> (width - 1) else word

    def lanes(word: int, width: int = 8) -> list[int]:
        return [word >> shift & ((1 << width) - 1) for shift in range(0, 32, width)]

    def packed(values: list[int], width: int = 8) -> int:
        return sum((value & ((1 << width) - 1)) << width * k for k, value in enumerate(values))

    for a, b, row in zip(x.tolist(), y.tolist(), out.tolist(), strict=True):
        pairs = list(zip(lanes(a), lanes(b), strict=True))
        both = b << 32 | a
        halves = [max(signed(p, 16), signed(q, 16)) for p, q in zip(lanes(a, 16), lanes(b, 16), strict=True)]
        source = lanes(a) + lanes(b)
        wanted = [
            int(f"{a:032b}"[::-1], 2),
            32 - a.bit_length(),
            a.bit_count(),
            (a & -a).bit_length(),
            packed([source[3], source[4], source[1], source[5]]),
            (both << (b & 31)) >> 32 & full,
            (both >> min(b & 63, 32)) & full,
            sum(signed(p, 8) * signed(q, 8) for p, q in pairs) + 7 & full,
            sum(p * q for p, q in pairs) + 7 & full,
            abs(a - b) + 3 & full,
            a * b >> 32,
            signed(a) * signed(b) >> 32 & full,
            packed([p + q for p, q in pairs]),
            packed([abs(p - q) for p, q in pairs]),
            packed(halves, 16),
            sum(abs(p - q) for p, q in pairs),
            packed([255 * (p > q) for p, q in pairs]),
            signed(a) + signed(b) >> 1 & full,
            packed([(p + q + 1) >> 1 for p, q in pairs]),
            (a * 2654435761 & full) ^ (a >> 15) ^ (b << 7 & full),
        ]
        assert row == wanted, (hex(a), hex(b), [k for k in range(20) if row[k] != wanted[k]])


def test_random_normal(program: Program) -> None:
    seeds, out = words(15, np.uint32, (COUNT, 6)), np.zeros((COUNT, 4), np.float32)
    run(program, "random_normal", seeds, out)
    full = 0xFFFFFFFF
    for state, row in zip(seeds.tolist(), out.tolist(), strict=True):

        def draw(s: list[int] = state) -> int:
            t = s[0] ^ (s[0] >> 2)
            s[:4] = s[1:5]
            s[4] = ((s[4] ^ (s[4] << 4)) ^ (t ^ (t << 1))) & full
            s[5] = s[5] + 362437 & full
            return s[4] + s[5] & full

        for value in row:
            u = np.float32(
                np.float32(draw()) * np.float64(np.float32(2.3283064e-10)) + np.float32(1.1641532e-10)
            )
            v = np.float32(draw()) * np.float32(1.46291807e-9)
            assert value == pytest.approx(
                math.sqrt(-2 * math.log(min(u, 1))) * math.sin(v), rel=2e-5, abs=2e-6
            )


def half_operands(dtype: type, seed: int) -> np.ndarray:
    values = np.random.default_rng(seed).standard_normal((COUNT, 2)).astype(np.float32) * 4
    values[:5] = [[0.0, -0.0], [np.inf, -np.inf], [np.nan, 1.0], [6e-5, -6e-8], [65504.0, 3e38]]
    with np.errstate(over="ignore"):
        return values.astype(dtype)


@pytest.mark.parametrize(("kernel", "dtype"), [("half_pairs", np.float16), ("bfloat_pairs", BF16)])
def test_half_pairs(program: Program, kernel: str, dtype: type) -> None:
    a, b = half_operands(dtype, 16), half_operands(dtype, 17)[::-1].copy()
    columns = 14 if dtype is np.float16 else 12
    out = np.zeros((COUNT, columns), np.uint32)
    run(program, kernel, a.view(np.uint32).reshape(-1), b.view(np.uint32).reshape(-1), out)
    got = out.view(dtype).reshape(COUNT, columns, 2).astype(np.float64)
    p, q = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(all="ignore"):

        def narrow(values: np.ndarray) -> np.ndarray:
            return values.astype(dtype).astype(np.float64)

        either = np.isnan(p) | np.isnan(q)
        wanted = [
            narrow(p + q),
            narrow(p - q),
            narrow(p * q),
            narrow(p * q + p),
            None,
            np.fmax(p, q),
            np.where(either, np.nan, np.fmin(p, q)),
            -p,
            abs(p),
        ]
        relu = narrow(p * q + q)
        relu = np.where(relu < 0, 0, relu)
        wanted += [np.nan_to_num(np.clip(narrow(p + q), 0, 1), nan=0.0)] if dtype is np.float16 else []
        wanted += [relu, (p > q).astype(float), np.rint(p)]
        wanted += [(p == p).astype(float)] if dtype is np.float16 else []
        for column, values in enumerate(wanted):
            if values is not None:
                np.testing.assert_array_equal(got[:, column], values, err_msg=str(column))
        quotient = p / q
        fine = np.isfinite(quotient) & (abs(quotient) > 1e-4) & (abs(quotient) < 6e4)
        tolerance = 1e-3 if dtype is np.float16 else 8e-3
        np.testing.assert_allclose(got[:, 4][fine], quotient[fine], rtol=tolerance)


def test_half_functions(program: Program) -> None:
    x = np.random.default_rng(18).standard_normal(COUNT).astype(np.float16)
    out = np.zeros((COUNT, 12), np.uint16)
    run(program, "half_functions", x.view(np.uint16), out)
    a = x.astype(np.float64)
    m = abs(a)
    wanted = [np.exp(a), np.log(m), np.sqrt(m), np.sin(a), 1 / a, np.tanh(a), np.exp2(a), 1 / np.sqrt(m)]
    for column, values in enumerate(wanted):
        got = out[:, column].copy().view(np.float16).astype(np.float64)
        np.testing.assert_allclose(got, values, rtol=2e-3, atol=2e-3, err_msg=str(column))
    b = x.view(BF16).astype(np.float64)
    with np.errstate(all="ignore"):
        wanted = [np.exp(b), np.sqrt(abs(b)), 1 / b, np.tanh(b)]
    for column, values in enumerate(wanted):
        got = out[:, 8 + column].copy().view(BF16).astype(np.float64)
        fine = np.isfinite(values) & (abs(values) < 3e38)
        np.testing.assert_allclose(got[fine], values[fine], rtol=1e-2, atol=1e-30, err_msg=str(column))


def integral(value: float, mode: str) -> int:
    return {"rn": round, "rz": math.trunc, "ru": math.ceil, "rd": math.floor}[mode](value)


def saturated(value: float, mode: str, low: int, high: int, nan: int) -> int:
    if math.isnan(value):
        return nan
    if math.isinf(value):
        return low if value < 0 else high
    return max(low, min(high, integral(value, mode)))


INT, UINT = (-(1 << 31), (1 << 31) - 1), (0, (1 << 32) - 1)
LONG, ULONG = (-(1 << 63), (1 << 63) - 1), (0, (1 << 64) - 1)


def test_float_to_int(program: Program) -> None:
    x, y = floats(19, scale=1e5), floats(20, np.float64, 1e9)
    special = [
        np.nan,
        np.inf,
        -np.inf,
        2.0**31,
        -(2.0**31),
        2.0**32,
        2.0**63,
        -(2.0**63),
        2.0**64,
        0.5,
        1.5,
        2.5,
        -0.5,
        -1.5,
    ]
    x[: len(special)] = y[: len(special)] = special
    out = np.zeros((COUNT, 20), np.int64)
    run(program, "float_to_int", x, y, out)
    minimum = 1 << 63
    for a, b, row in zip(x.tolist(), y.tolist(), out.tolist(), strict=True):
        wanted = [saturated(a, mode, *INT, 0) for mode in ("rn", "rz", "ru", "rd")]
        wanted += [saturated(a, mode, *UINT, 0) for mode in ("rn", "rz")]
        wanted += [saturated(a, mode, *LONG, minimum) for mode in ("rn", "rz")]
        wanted += [saturated(a, mode, *ULONG, minimum) for mode in ("ru", "rd")]
        wanted += [saturated(b, mode, *INT, 1 << 31) for mode in ("rn", "rd")]
        wanted += [saturated(b, "rz", *UINT, 1 << 31)]
        wanted += [saturated(b, "rn", *LONG, minimum), saturated(b, "ru", *ULONG, minimum)]
        got = [value & (1 << 64) - 1 for value in row[:15]]
        sign_extended = [
            ((v & 0xFFFFFFFF) ^ 1 << 31) - (1 << 31) if k in (10, 11) else v for k, v in enumerate(wanted)
        ]
        assert got == [value & (1 << 64) - 1 for value in sign_extended], (a, b)
        if math.isfinite(b) and abs(b) < 2**62:
            assert row[19] == round(b)
            if abs(b) < 2**31:
                assert row[16] == math.trunc(b) & 0xFFFF
        if math.isfinite(a) and abs(a) < 127:
            assert row[15] == math.trunc(a)
        if not math.isnan(a):
            half = float(np.float32(a).astype(np.float16)) if abs(a) < 65519 else math.copysign(math.inf, a)
            assert row[17] == saturated(half, "rn", *INT, 0)
            assert row[18] == saturated(half, "rz", -32768, 32767, 0)


def test_int_to_float(program: Program) -> None:
    x = words(21, np.int64)
    x[6:12] = [(1 << 53) + 1, -(1 << 53) - 1, (1 << 24) + 1, (1 << 31) - 1, -(1 << 63), 65520]
    f, d = np.zeros((COUNT, 10), np.float32), np.zeros((COUNT, 4))
    h = np.zeros((COUNT, 6), np.uint16)
    run(program, "int_to_float", x, f, d, h)

    def exact(value: int) -> fp.Value:
        return int(value < 0), Fraction(abs(value))

    for a, i in zip(x.tolist(), range(COUNT), strict=True):
        low = ((a & 0xFFFFFFFF) ^ 1 << 31) - (1 << 31)
        u32, u64 = a & 0xFFFFFFFF, a & (1 << 64) - 1
        singles = [(low, "rn"), (low, "rz"), (low, "rp"), (u32, "rm"), (a, "rn"), (a, "rz"), (u64, "rp")]
        wanted = [fp.encode("f32", exact(value), mode) for value, mode in singles]
        assert f.view(np.uint32)[i, :7].tolist() == wanted
        third = fp.decode("f64", int(np.float64(float(a) / 3).view(np.uint64)))
        assert f.view(np.uint32)[i, 8] == fp.encode("f32", third, "rn")
        doubles = [(a, "rn"), (a, "rp"), (u64, "rz"), (low, "rn")]
        assert d.view(np.uint64)[i].tolist() == [fp.encode("f64", exact(v), mode) for v, mode in doubles]
        halves = [fp.encode("f16", exact(low)), fp.encode("f16", exact(a))]
        single = fp.decode("f32", fp.encode("f32", exact(a)))
        halves += [fp.encode("f16", single, "rz"), fp.encode("bf16", exact(low))]
        assert h[i, :4].tolist() == halves
        assert h[i, 4] in (fp.encode("bf16", exact(a)), fp.encode("bf16", single))  # emulated before sm_90
        assert h[i, 5] == fp.encode("bf16", single, "rp")


def test_fp8_conversions(program: Program) -> None:
    x, y = floats(22, scale=100), floats(23, scale=0.02)
    x[:6], y[:6] = (
        [0.0, np.nan, 448.0, 464.1, 1e9, -np.inf],
        [-0.0, 2.0**-9, 2.0**-10, 57344.0, 61440.0, 480.0],
    )
    codes, back = np.zeros((COUNT, 4), np.uint16), np.zeros((COUNT, 2), np.uint32)
    run(program, "fp8_conversions", x, y, codes, back)
    for i in range(COUNT):
        pair = [fp.decode("f32", int(array.view(np.uint32)[i])) for array in (x, y)]
        halves = [fp.decode("f16", fp.encode("f16", value)) for value in pair]
        for column, (values, format_) in enumerate(
            [(pair, "e4m3"), (pair, "e5m2"), (halves, "e4m3"), (halves, "e5m2")]
        ):
            low, high = (fp.encode(format_, value, satfinite=True) for value in values)
            assert codes[i, column] == low | high << 8, (column, values)
        for column, format_ in enumerate(("e4m3", "e5m2")):
            code = int(codes[i, column])
            low, high = (fp.encode("f16", fp.decode(format_, part)) for part in (code & 255, code >> 8))
            assert back[i, column] == low | high << 16


def test_minima(program: Program) -> None:
    x, y, out = floats(24), floats(25), np.zeros((COUNT, 6), np.float32)
    x[:3], y[:3] = [np.nan, 1.0, np.nan], [2.0, np.nan, np.nan]
    run(program, "minima", x, y, out)
    c = x * y
    wanted = [np.fmax(x, y), np.fmin(x, y), np.fmax(np.fmax(x, y), c), np.fmin(np.fmin(x, y), c)]
    with np.errstate(invalid="ignore"):
        wanted += [
            np.where(np.isnan(x - y), np.nan, np.maximum(x - y, 0)),
            np.fmax(abs(x), np.fmax(abs(y), abs(c))),
        ]
    for column, values in enumerate(wanted):
        np.testing.assert_array_equal(out[:, column], values, err_msg=str(column))
