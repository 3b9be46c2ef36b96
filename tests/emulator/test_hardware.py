"""The emulator against the bits that an H200 gave: every row of the instruction table, raw.

How the bits were made: benchmarks/hardware/README.md. What may differ, and by how much: hardware_rules.py.
"""

from __future__ import annotations

import json
from collections import defaultdict
from functools import cache
from pathlib import Path

import hardware_coverage as coverage
import hardware_pack as pack
import numpy as np
import pytest
import scalar_harness as harness
from hardware_cases import key, scalar_inputs, scalar_results
from hardware_rules import DISTANCES, EXCLUDED, OPAQUE, TOLERANCES, WITHOUT
from hardware_store import FOLDER, PROGRAMS, SCALAR, Stored, stored
from scalar_reference import expected
from tensor_values import decode
from test_scalar_table import agrees

from cudahercules.emulator.scalar.pattern import Variant
from cudahercules.emulator.scalar.table import APPROXIMATE, ROWS

NOT_COMPARED = {"fns.b32", "cvt.rna.satfinite.tf32.f32"}  # see docs/emulator-coverage.md

needs_bits = pytest.mark.skipif(
    not PROGRAMS.exists(), reason="no bits of a GPU are stored yet: see benchmarks/hardware/README.md"
)


@cache
def programs() -> dict[str, list[Stored]]:
    """All stored programs by the test (without parameters) or case that they come from."""
    groups: dict[str, list[Stored]] = defaultdict(list)
    for program in stored(pack.read(PROGRAMS)) if PROGRAMS.exists() else ():
        groups[program.name.split("[")[0].split(" ")[0]].append(program)
    return groups


@needs_bits
@pytest.mark.parametrize("group", sorted(programs()) or ["none"])
def test_program(group: str, tmp_path: Path) -> None:
    complaints = {p.name: p.complaint(p.emulated(tmp_path)) for p in programs()[group]}
    assert not any(complaints.values()), "\n".join(f"{n}: {text}" for n, text in complaints.items() if text)


# ---- scalar --------------------------------------------------------------------------------------------


@cache
def scalar_bits() -> dict[str, tuple[Variant, np.ndarray]]:
    """(tuples, destinations) of every stored variant by its key."""
    by_key = {key(variant): variant for row in ROWS for variant in row.variants()}
    files = pack.read(SCALAR)
    found: dict[str, tuple[Variant, np.ndarray]] = {}
    for id_, description in pack.programs(files).items():
        variants = [by_key[text] for text in description["variants"]]
        words = b"".join(scalar_inputs(variant).tobytes() for variant in variants)
        assert pack.digest(words) == description["inputs"], "the operands are made otherwise: record again"
        out = np.frombuffer(files[f"measured/{id_}/out"], np.uint64)
        found |= {key(variant): (variant, bits) for variant, bits in scalar_results(variants, out)}
    return found


def scalar_complaints(variants: list[Variant], tmp_path: Path) -> list[str]:
    """Variants whose C++ gives other bits than the GPU, or (approximate ones) that are too far from the exact
    value or from the GPU's."""
    bits = scalar_bits()
    variants = [v for v in variants if key(v) in bits]
    assert variants
    compiled = harness.Compiled(variants, tmp_path, "-DPTX_CANONICAL_NAN=1")
    found = []
    for index, variant in enumerate(variants):
        theirs, words = bits[key(variant)][1], scalar_inputs(variant)
        ours = compiled.run(index, words)
        if variant.row in APPROXIMATE:
            found += _far(variant, words, ours)[:2]
            found += [
                f"{variant.name} {_hex(words[i])}: {_hex(ours[i])}, GPU {_hex(theirs[i])}: too far apart"
                for i in _apart(variant, ours, theirs)[:2]
            ]
        elif variant.name not in NOT_COMPARED:
            found += [
                f"{variant.name} {_hex(words[i])}: {_hex(ours[i])}, GPU {_hex(theirs[i])}"
                for i in _differing(variant, ours, theirs)[:2]
            ]
    return found


def _differing(variant: Variant, ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """The tuples whose bits differ; any NaN of fp64 equals any other."""
    different = ours != theirs
    if variant.types[0] == "f64":
        nan = [(x[:, 0] & np.uint64(2**63 - 1)) > np.uint64(0x7FF << 52) for x in (ours, theirs)]
        different[:, 0] &= ~(nan[0] & nan[1])
    return np.nonzero(different.any(axis=1))[0]


def _apart(variant: Variant, ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """The tuples of which an approximate function's results lie farther apart than DISTANCES allows."""
    type_ = variant.types[0].removesuffix("x2")
    distance = DISTANCES[type_][variant.name.split(".")[0]]
    width = {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}[type_]
    wrong = np.zeros(len(ours), bool)
    for shift in range(0, 2 * width if variant.types[0].endswith("x2") else width, width):
        x, y = ((bits[:, 0] >> np.uint64(shift)) & np.uint64((1 << width) - 1) for bits in (ours, theirs))
        steps = np.array(
            [abs(_place(a, width) - _place(b, width)) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
        )
        values = [decode(bits, type_) for bits in (x, y)]
        nan = np.isnan(values)
        with np.errstate(invalid="ignore"):
            near = (steps <= distance.steps) | (np.abs(values[0] - values[1]) <= distance.absolute)
        wrong |= np.where(nan.any(axis=0), ~nan.all(axis=0), ~near)
    return np.nonzero(wrong)[0]


def _place(bits: int, width: int) -> int:
    """Where a float of ``width`` bits stands among all others; both zeros at 0."""
    magnitude = bits & ((1 << (width - 1)) - 1)
    return -magnitude if bits >> (width - 1) else magnitude


def _hex(words: np.ndarray) -> str:
    return " ".join(map(hex, words.tolist()))


def _far(variant: Variant, words: np.ndarray, results: np.ndarray) -> list[str]:
    """Results beyond the error that the PTX manual allows."""
    types = harness.destinations(variant)
    found = []
    for operands, got in zip(words.tolist(), results.tolist(), strict=True):
        wanted = expected(variant.name, tuple(operands))
        if not all(agrees(*case) for case in zip(types, wanted, got, strict=True)):
            found.append(f"{variant.name} {operands}: {got}, not {wanted}")
    return found


@needs_bits
def test_scalar_variants(tmp_path: Path) -> None:
    """Of each row few variants, in which every modifier and type appears, and all approximate ones."""
    variants = harness.covering_variants()
    variants += [v for row in APPROXIMATE for v in row.variants() if v not in variants]
    complaints = scalar_complaints(variants, tmp_path)
    assert not complaints, "\n".join(complaints[:20])


@needs_bits
@pytest.mark.slow
def test_all_scalar_variants(tmp_path: Path) -> None:
    assert len(scalar_bits()) > 4500
    complaints = scalar_complaints([variant for variant, _ in scalar_bits().values()], tmp_path)
    assert not complaints, "\n".join(complaints[:20])


# ---- what is covered -----------------------------------------------------------------------------------


@needs_bits
def test_every_row_has_bits_or_a_reason() -> None:
    """``results.json`` says which programs gave none."""
    covered = {variant.row.pattern for variant, _ in scalar_bits().values()}
    kernels: dict[str, set[str]] = defaultdict(set)
    for group in programs().values():
        for program in group:
            kernels[program.ptx] |= program.kernels
    for ptx, names in kernels.items():
        covered |= coverage.rows_of(coverage.instructions(ptx, names))
    rows = set(coverage.table())
    assert rows - covered - set(WITHOUT) == set(), "neither bits nor a reason"
    assert set(WITHOUT) & covered == set(), "a reason for nothing: bits are there"
    assert set(WITHOUT) <= rows


def test_rules_name_tests_that_exist() -> None:
    for rule in (*EXCLUDED, *OPAQUE, *TOLERANCES):
        file, _, function = rule.split("[")[0].partition("::")
        text = (Path(__file__).parent / file).read_text()
        assert not function or f"def {function}(" in text, rule


@needs_bits
def test_the_stored_files_are_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 5 << 20
    assert json.loads((FOLDER / "results.json").read_text())["machine"]["capability"] == "9.0"


# ---- a difference is noticed ---------------------------------------------------------------------------


def example(after: bytes, name: str = "case") -> Stored:
    return Stored("0", name, "", None, {"out": bytes(len(after))}, {"out": after})  # type: ignore[arg-type]


def test_one_bit_is_noticed() -> None:
    right = np.arange(64, dtype=np.uint32).tobytes()
    wrong = bytearray(right)
    wrong[100] ^= 1
    assert example(right).complaint({"out": right}) == ""
    assert (
        example(right).complaint({"out": bytes(wrong)}).startswith("out: 1 of 256 bytes differ, first at 100")
    )
