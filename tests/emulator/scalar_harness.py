"""What the tests of the scalar table share: which variants to try, with which inputs, and running their C++.

Values travel as raw bits in 64-bit words. Everything is deterministic.
"""

from __future__ import annotations

import ctypes
import itertools
import random
import subprocess
import zlib
from pathlib import Path

import numpy as np

from cudahercules.emulator import scalar
from cudahercules.emulator.ptx import ir
from cudahercules.emulator.scalar.pattern import C_TYPES, Variant
from cudahercules.emulator.scalar.table import ROWS

INCLUDE = Path(scalar.__file__).parent
FLAGS = ("-std=c++17", "-O1", "-fPIC", "-shared", "-mfma", "-mf16c", "-msse4.1", "-ffp-contract=off", "-w")

FORMATS = {  # exponent bits, mantissa bits
    "f64": (11, 52),
    "f32": (8, 23),
    "f16": (5, 10),
    "bf16": (8, 7),
}


def covering_variants() -> list[Variant]:
    """For each row, few variants in which every modifier and type of the row appears, present and absent."""
    chosen = []
    for row in ROWS:
        missing: set[tuple[int, str]] | None = None
        variants = list(row.variants())
        features = [
            {(part.variable, variant.values[part.variable]) for part in row.parts}
            | {("type", index, type_) for index, type_ in enumerate(variant.types)}
            for variant in variants
        ]
        missing = set().union(*features)
        order = sorted(range(len(variants)), key=lambda i: zlib.crc32(variants[i].name.encode()))
        while missing:
            best = max(order, key=lambda i: len(features[i] & missing))
            chosen.append(variants[best])
            missing -= features[best]
    return chosen


def destinations(variant: Variant) -> list[str]:
    """The types of what a variant writes, carry flag last (as a predicate)."""
    types = [variant.types[0]]
    if variant.row.second:
        types.append("pred")
    if uses_carry(variant):
        types.append("pred")
    return types


def uses_carry(variant: Variant) -> bool:
    return "$cc" in variant.row.expression


def sources(variant: Variant) -> list[str]:
    return list(variant.types[1:]) + (["pred"] if uses_carry(variant) else [])


# ---- inputs --------------------------------------------------------------------------------------------


def adversarial(type_: str) -> list[int]:
    """Bit patterns at which implementations of a type go wrong."""
    if type_ == "pred":
        return [0, 1]
    width = ir.bits(type_)
    if type_ in FORMATS:
        return _adversarial_float(*FORMATS[type_])
    if type_ in ("f16x2", "bf16x2"):
        halves = _adversarial_float(*FORMATS[type_[:-2]])
        return [low | high << 16 for low, high in zip(halves, halves[::-1], strict=True)]
    if type_ == "f32x2":
        halves = _adversarial_float(*FORMATS["f32"])
        return [low | high << 32 for low, high in zip(halves, halves[::-1], strict=True)]
    top = 1 << (width - 1)
    small = [*range(4), 5, 7, 15, 16, 17, 24, 31, 32, 33, 63, 64, 65, 127, 128, 255, 256]
    large = [
        top - 1,
        top,
        top + 1,
        (1 << width) - 1,
        (1 << width) - 2,
        0x5555555555555555,
        0x8080808080808080,
    ]
    halves = [
        (1 << 53) + 1,
        (1 << 24) + 1,
        (1 << 25) + 3,
        (1 << 11) + 1,
        0x8000_0000_0000_0401,
        0xFFFFFF,
        0x800000,
    ]
    return [value & ((1 << width) - 1) for value in small + large + halves]


def _adversarial_float(exponent: int, mantissa: int) -> list[int]:
    width = exponent + mantissa
    infinity = ((1 << exponent) - 1) << mantissa
    one = ((1 << (exponent - 1)) - 1) << mantissa
    unit = 1 << mantissa
    positive = [
        0,
        1,  # smallest subnormal
        unit - 1,  # largest subnormal
        unit,  # smallest normal
        unit + 1,
        one,
        one - 1,
        one + 1,
        one - unit,  # one half
        one + unit // 2,  # 3/2
        one + unit + unit // 4,  # 5/2: a tie
        infinity - 1,  # largest finite
        infinity,
        infinity | unit >> 1,  # quiet NaN
        infinity | 1,  # signalling NaN
        infinity | (unit - 1),  # the canonical NaN
    ]
    if exponent == 8:  # overflow and ties of the formats that fp32 is converted to, and integer limits
        positive += [bits_of(x) >> (23 - mantissa) for x in _EDGES]
    if exponent == 11:
        positive += [int(np.float64(x).view(np.uint64)) for x in _EDGES]
    return positive + [value | 1 << width for value in positive]


def bits_of(value: float) -> int:
    return int(np.float32(value).view(np.uint32))


_EDGES = (  # limits and ties of f16, e4m3, e5m2, bf16; integer limits; near overflow and underflow of fp32
    *(65504.0, 65519.0, 65520.0, 448.0, 464.0, 480.0, 57344.0, 61440.0, 6.0, 7.5, 28.0, 30.0, 5.0, 3.5),
    *(2.0**-24, 2.0**-25, 2.0**-9, 2.0**-10, 3 * 2.0**-10, 0.5 - 2.0**-25, 0.1),
    *(1 + 2.0**-11, 1 + 3 * 2.0**-11, 1 + 2.0**-8, 1 + 3 * 2.0**-8, 1 + 2.0**-4, 1 + 2.0**-3),
    *(255.5, 127.5, 128.5, 32767.5, 2.0**31, 2.0**32, 2.0**63, 2.0**64),
    *(2.0**126, 1.5 * 2.0**126, 2.0**-127, 2.0**127, 3.3895313892515355e38),
)


def inputs(variant: Variant, count: int) -> np.ndarray:
    """`count` tuples of operands: adversarial with adversarial, adversarial with random, random with random,
    floats whose product or quotient lies around the smallest normal number, and equal magnitudes."""
    generator = random.Random(variant.name)
    types = sources(variant)
    pools = [adversarial(type_) for type_ in types]
    tuples: list[tuple[int, ...]] = []
    if len(types) == 1:
        tuples += [(value,) for value in pools[0]]
    while len(tuples) < count:
        kind = len(tuples) % 5
        if kind == 3 and len(types) > 1 and types[0] in SCALARS_OF:
            tuples.append(tuple(_near_smallest_normal(types, generator)))
            continue
        row = []
        for type_, pool in zip(types, pools, strict=True):
            structured = kind == 0 or (kind == 1 and generator.random() < 0.5)
            row.append(generator.choice(pool) if structured else _random_value(type_, generator))
        if kind == 4 and len(types) > 1 and types[0] == types[1] != "pred":  # equal, or apart in the sign
            row[0] = generator.choice([0, row[0], pools[0][generator.randrange(len(pools[0]))]])
            row[1] = row[0] ^ generator.getrandbits(1) << (ir.bits(types[0]) - 1)
        tuples.append(tuple(row))
    return np.array(tuples, dtype=np.uint64)


SCALARS_OF = {**{name: name for name in FORMATS}, "f16x2": "f16", "bf16x2": "bf16", "f32x2": "f32"}


def _near_smallest_normal(types: list[str], generator: random.Random) -> list[int]:
    """One factor near a power of two, one that brings the result there, and small addends."""
    exponent, mantissa = FORMATS[SCALARS_OF[types[0]]]
    width = 1 + exponent + mantissa
    bias = (1 << (exponent - 1)) - 1
    shift = generator.randint(-1, min(3, bias - 2))
    first = ((bias + shift) << mantissa) + generator.randint(-3, 3)
    second = max(0, ((1 - shift) << mantissa) + generator.randint(-3, 3))
    values = [first, second]
    generator.shuffle(values)
    values.append(generator.choice([0, 0, 1, 2, 3, 1 << mantissa, (1 << mantissa) - 1]))
    words = [value | generator.getrandbits(1) << (width - 1) for value in values]
    pool = []
    for index, type_ in enumerate(types):
        word = words[index % 3] if type_ in SCALARS_OF else _random_value(type_, generator)
        if type_ in ("f16x2", "bf16x2", "f32x2"):
            word |= words[index % 3] << width
        pool.append(word & ((1 << ir.bits(type_)) - 1))
    return pool


def _random_value(type_: str, generator: random.Random) -> int:
    width = ir.bits(type_)
    value = generator.getrandbits(width)
    if type_ in FORMATS and generator.random() < 0.6:  # moderate exponents, so that operands interact
        exponent, mantissa = FORMATS[type_]
        bias = (1 << (exponent - 1)) - 1
        field = bias + generator.randint(-min(20, bias - 1), min(20, bias - 1))
        value = (value & ~(((1 << exponent) - 1) << mantissa)) | field << mantissa
    elif (
        type_ not in FORMATS and width in (16, 32, 64) and generator.random() < 0.4
    ):  # small shifts and counts
        value = generator.randint(-4 if type_[0] == "s" else 0, 70) & ((1 << width) - 1)
    return value


# ---- running the C++ -----------------------------------------------------------------------------------


def _function(index: int, variant: Variant) -> str:
    types = sources(variant)
    names = [operand.name for operand in variant.row.operands[1:]]
    lines = [f'extern "C" void f{index}(const uint64_t* in, uint64_t* out, int n) {{', "  while (n--) {"]
    for position, (name, type_) in enumerate(zip(names, variant.types[1:], strict=True)):
        lines.append(f"    const {C_TYPES[type_]} _{name} = load<{C_TYPES[type_]}>(in[{position}]);")
    values = dict(variant.values, cc="_cc", **{name: f"_{name}" for name in names})
    if uses_carry(variant):
        lines.append(f"    bool _cc = in[{len(types) - 1}] & 1;")
    results = [(variant.types[0], variant.row.expression)]
    if variant.row.second:
        results.append(("pred", variant.row.second))
    for position, (type_, template) in enumerate(results):
        text = C_TYPES[type_]
        lines.append(f"    out[{position}] = store({text}({variant.row.fill(template, values)}));")
    outputs = len(destinations(variant))
    if uses_carry(variant):
        lines.append(f"    out[{outputs - 1}] = _cc;")
    lines.append(f"    in += {len(types)}; out += {outputs};")
    return "\n".join([*lines, "  }", "}"])


_PRELUDE = """
#include "scalar.hpp"
#include <string.h>
template <class T> static inline T load(uint64_t word) {
    T value; memcpy(&value, &word, sizeof value); return value;
}
template <class T> static inline uint64_t store(T value) {
    uint64_t word = 0; memcpy(&word, &value, sizeof value); return word;
}
"""


class Compiled:
    """The C++ of a list of variants as a shared object; ``run`` gives the raw bits of every destination."""

    def __init__(self, variants: list[Variant], folder: Path, *defines: str) -> None:
        self.variants = variants
        halves = [list(enumerate(variants))[i::2] for i in range(2)]
        processes = []
        for number, half in enumerate(halves):
            source = folder / f"variants{number}.cpp"
            source.write_text(_PRELUDE + "\n".join(itertools.starmap(_function, half)))
            command = [
                "g++",
                *FLAGS,
                *defines,
                f"-I{INCLUDE}",
                str(source),
                "-o",
                str(folder / f"variants{number}.so"),
            ]
            processes.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
        for process in processes:
            _, errors = process.communicate()
            assert process.returncode == 0, errors[:3000]
        self._libraries = [ctypes.CDLL(str(folder / f"variants{number}.so")) for number in range(2)]

    def run(self, index: int, words: np.ndarray) -> np.ndarray:
        out = np.zeros((len(words), len(destinations(self.variants[index]))), dtype=np.uint64)
        function = getattr(self._libraries[index % 2], f"f{index}")
        words = np.ascontiguousarray(words)
        function(words.ctypes.data_as(ctypes.c_void_p), out.ctypes.data_as(ctypes.c_void_p), len(words))
        return out
