"""Every row of the scalar table against exact arithmetic in Python, on adversarial and random operands."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from fractions import Fraction

import numpy as np
import pytest
import scalar_harness as harness
from scalar_reference import AnyNan, Near, Pair, expected
from scalar_reference_float import FORMATS, decode, encode, to_float

from cudahercules.emulator.ptx import ir
from cudahercules.emulator.scalar.table import ROWS

INPUTS = 120


def agrees(type_: str, wanted: object, got: int) -> bool:
    if isinstance(wanted, int):
        return wanted == got
    if isinstance(wanted, Pair):
        width = ir.bits(wanted.half)
        return all(
            agrees(wanted.half, part, got >> shift & ((1 << width) - 1))
            for part, shift in zip(wanted.parts, (0, width), strict=True)
        )
    value = decode(type_ if type_ in FORMATS else "f32", got)
    if wanted is AnyNan:
        return value is None
    assert isinstance(wanted, Near)
    if value is None:
        return False
    number = to_float(value)
    if math.isinf(number) or math.isinf(wanted.value):
        limit = {"f16": 65504.0, "f32": 3.4e38, "bf16": 3.38e38, "f64": 1.7e308}[type_]
        return (
            math.copysign(1, number) == math.copysign(1, wanted.value)
            and min(abs(number), abs(wanted.value)) >= limit
        )
    return abs(number - wanted.value) <= wanted.relative * abs(wanted.value) + wanted.absolute


def complaints(
    variants: list[harness.Variant], compiled: harness.Compiled, count: int
) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for index, variant in enumerate(variants):
        words = harness.inputs(variant, count)
        results = compiled.run(index, words)
        types = harness.destinations(variant)
        for operands, got in zip(words.tolist(), results.tolist(), strict=True):
            wanted = expected(variant.name, tuple(operands))
            assert len(wanted) == len(types), variant.name
            if not all(agrees(*case) for case in zip(types, wanted, got, strict=True)):
                sources = " ".join(f"{word:#x}" for word in operands)
                answer = ", ".join(f"{word:#x}" for word in got)
                found[variant.row.pattern].append(f"{variant.name} {sources}: {answer}, expected {wanted}")
    return found


@pytest.fixture(scope="module")
def covering(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    variants = harness.covering_variants()
    compiled = harness.Compiled(variants, tmp_path_factory.mktemp("scalar"), "-DPTX_CANONICAL_NAN=1")
    return complaints(variants, compiled, INPUTS)


@pytest.mark.parametrize("pattern", sorted({f"{row.pattern} {row.operands_text}" for row in ROWS}))
def test_row(pattern: str, covering: dict[str, list[str]]) -> None:
    wrong = covering.get(pattern.split(" ")[0], [])
    assert not wrong, "\n".join(wrong[:5])


@pytest.mark.slow
def test_every_variant(tmp_path: object) -> None:
    variants = [variant for row in ROWS for variant in row.variants()]
    compiled = harness.Compiled(variants, tmp_path, "-DPTX_CANONICAL_NAN=1")  # type: ignore[arg-type]
    found = complaints(variants, compiled, 40)
    assert not found, "\n".join(line for lines in found.values() for line in lines[:2])


@pytest.mark.parametrize(("format_", "exponents"), [("f16", range(3)), ("bf16", range(-30, 30, 7))])
def test_fma_rounds_once(format_: str, exponents: range, tmp_path: object) -> None:
    """A product in the middle between two numbers, and an addend far below that decides the direction."""
    (variant,) = [v for row in ROWS for v in row.variants() if v.name == f"fma.rn.{format_}"]
    _, mantissa_bits, _ = FORMATS[format_]
    tiny = [0, 1, 2, 1 << mantissa_bits]
    cases = []
    for k, exponent in itertools.product(range(1, mantissa_bits + 1), exponents):
        factors = [
            1 + Fraction(1, 2**k),
            (1 + Fraction(1, 2 ** (mantissa_bits + 1 - k))) * Fraction(2) ** exponent,
        ]
        for signs in itertools.product((0, 1), repeat=3):
            a, b = (encode(format_, (sign, x)) for sign, x in zip(signs, factors, strict=False))
            cases += [(a, b, addend | signs[2] << (ir.bits(format_) - 1)) for addend in tiny]
    got = harness.Compiled([variant], tmp_path).run(0, np.array(cases, dtype=np.uint64))  # type: ignore[arg-type]
    for operands, word in zip(cases, got[:, 0].tolist(), strict=True):
        assert [word] == expected(variant.name, operands), [hex(operand) for operand in operands]


def test_fns_in_both_directions(tmp_path: object) -> None:
    (variant,) = [v for row in ROWS for v in row.variants() if v.name == "fns.b32"]
    offsets = [offset & 0xFFFFFFFF for offset in range(-4, 5)]
    cases = list(itertools.product((0, 1, 0x80000001, 0xA5A5A5A5, 0xFFFFFFFF), range(0, 34, 3), offsets))
    got = harness.Compiled([variant], tmp_path).run(0, np.array(cases, dtype=np.uint64))  # type: ignore[arg-type]
    assert got[:, 0].tolist() == [expected(variant.name, operands)[0] for operands in cases]


def test_fast_mode_differs_only_in_nans(tmp_path: object) -> None:
    """Without PTX_CANONICAL_NAN the same instructions give the same numbers."""
    variants = [
        v
        for v in harness.covering_variants()
        if v.types[0] == "f32" and v.row.opcode in ("add", "mul", "fma")
    ]
    assert len(variants) > 10
    compiled = harness.Compiled(variants, tmp_path)  # type: ignore[arg-type]
    for index, variant in enumerate(variants):
        words = harness.inputs(variant, INPUTS)
        for operands, got in zip(words.tolist(), compiled.run(index, words)[:, 0].tolist(), strict=True):
            (wanted,) = expected(variant.name, tuple(operands))
            assert agrees("f32", wanted, got), (variant.name, operands, hex(got), wanted)
            if wanted is AnyNan:
                assert np.isnan(np.uint32(got).view(np.float32))
