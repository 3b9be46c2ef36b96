"""Numbers in tensor-core formats: bits to float64 and back, written apart from the runtime's own code."""

from __future__ import annotations

import numpy as np

NP = {
    "f16": np.uint16,
    "bf16": np.uint16,
    "tf32": np.uint32,
    "f64": np.uint64,
    "f32": np.uint32,
    "s32": np.uint32,
}
NP |= {"s8": np.uint8, "u8": np.uint8, "e4m3": np.uint8, "e5m2": np.uint8}


def _small(bits: np.ndarray, exponent: int, mantissa: int, has_infinity: bool) -> np.ndarray:
    bits = bits.astype(np.int64)
    sign = np.where(bits >> (exponent + mantissa) & 1, -1.0, 1.0)
    field = bits >> mantissa & ((1 << exponent) - 1)
    fraction = bits & ((1 << mantissa) - 1)
    bias = (1 << (exponent - 1)) - 1
    normal = np.ldexp(1.0 + fraction / (1 << mantissa), field - bias)
    tiny = np.ldexp(fraction / (1 << mantissa), 1 - bias)
    value = sign * np.where(field == 0, tiny, normal)
    top = (1 << exponent) - 1
    if has_infinity:
        value = np.where(field == top, np.where(fraction == 0, sign * np.inf, np.nan), value)
    else:
        value = np.where((field == top) & (fraction == (1 << mantissa) - 1), np.nan, value)
    return value


def decode(bits: np.ndarray, type_: str) -> np.ndarray:
    """Bit patterns as float64. tf32 loses its low 13 bits."""
    match type_:
        case "f16":
            return _small(bits, 5, 10, True)
        case "bf16":
            return _small(bits, 8, 7, True)
        case "tf32":
            return _small(bits.astype(np.uint32) >> np.uint32(13), 8, 10, True)
        case "e4m3":
            return _small(bits, 4, 3, False)
        case "e5m2":
            return _small(bits, 5, 2, True)
        case "f32":
            with np.errstate(invalid="ignore"):  # NaNs that signal
                return np.ascontiguousarray(bits.astype(np.uint32)).view(np.float32).astype(np.float64)
        case "f64":
            return np.ascontiguousarray(bits.astype(np.uint64)).view(np.float64)
        case "s8":
            return bits.astype(np.uint8).view(np.int8).astype(np.float64)
        case "s32":
            return bits.astype(np.uint32).view(np.int32).astype(np.float64)
    return bits.astype(np.float64)


def pack(values: np.ndarray, type_: str) -> np.ndarray:
    """(lanes, values) of bit patterns as (lanes, registers): the first value in the low bits."""
    return np.ascontiguousarray(values.astype(NP[type_])).view(np.uint64 if type_ == "f64" else np.uint32)


def unpack(registers: np.ndarray, type_: str) -> np.ndarray:
    return np.ascontiguousarray(registers).view(NP[type_])


def random_bits(generator: np.random.Generator, type_: str, shape: tuple[int, ...]) -> np.ndarray:
    """Finite values of moderate size, all bit patterns of integers."""
    match type_:
        case "s8" | "u8":
            return generator.integers(0, 256, shape, dtype=np.uint8)
        case "s32":
            return generator.integers(-(1 << 20), 1 << 20, shape).astype(np.int32).view(np.uint32)
        case "f64":
            return generator.standard_normal(shape).view(np.uint64)
        case "f16":
            return generator.standard_normal(shape).astype(np.float16).view(np.uint16)
        case "bf16":
            return (generator.standard_normal(shape).astype(np.float32).view(np.uint32) >> 16).astype(
                np.uint16
            )
        case "e4m3" | "e5m2":
            low, high = (0x10, 0x50) if type_ == "e4m3" else (0x28, 0x48)
            sign = generator.integers(0, 2, shape) << 7
            return (generator.integers(low, high, shape) | sign).astype(np.uint8)
    return generator.standard_normal(shape).astype(np.float32).view(np.uint32)


def scatter(matrix: np.ndarray, place, lanes: int, values: int) -> np.ndarray:  # type: ignore[no-untyped-def]
    """Fragments (lanes, values) of ``matrix``."""
    out = np.empty((lanes, values), matrix.dtype)
    for lane in range(lanes):
        for i in range(values):
            out[lane, i] = matrix[place(lane, i)]
    return out


def gather(fragments: np.ndarray, place, shape: tuple[int, int]) -> np.ndarray:  # type: ignore[no-untyped-def]
    """The matrix of which ``fragments`` (lanes, values) are parts; every element exactly once."""
    out = np.empty(shape, fragments.dtype)
    seen = np.zeros(shape, int)
    for lane in range(fragments.shape[0]):
        for i in range(fragments.shape[1]):
            out[place(lane, i)] = fragments[lane, i]
            seen[place(lane, i)] += 1
    assert (seen == 1).all()
    return out
