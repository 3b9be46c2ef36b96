"""The coverage page is what the tables say, and the table refuses what it does not know."""

from __future__ import annotations

from pathlib import Path

import pytest
import scalar_harness as harness
from scalar_kernels import assemble

from cudahercules.emulator.coverage import markdown
from cudahercules.emulator.ptx.ir import is_type
from cudahercules.emulator.scalar.table import ROWS, find

PAGE = Path(__file__).parents[2] / "docs" / "emulator-coverage.md"


def test_page_is_up_to_date() -> None:
    assert PAGE.read_text() == markdown(), (
        "run: python -m cudahercules.emulator.coverage > docs/emulator-coverage.md"
    )


def lookup(name: str, operands: int) -> object:
    opcode, *parts = name.split(".")
    modifiers = tuple(part for part in parts if not is_type(part))
    return find(opcode, modifiers, tuple(part for part in parts if is_type(part)), operands)


@pytest.mark.parametrize(
    ("name", "operands"),
    [
        ("add.rn.ftz.sat.f32", 3),
        ("add.sat.ftz.f32", 3),  # the order of modifiers does not matter
        ("setp.ge.and.ftz.f32", 4),
        ("cvt.rn.satfinite.e4m3x2.f32", 3),
        ("shf.l.wrap.b32", 4),
        ("prmt.b32.rc8", 4),
    ],
)
def test_known(name: str, operands: int) -> None:
    assert lookup(name, operands) is not None


@pytest.mark.parametrize(
    ("name", "operands"),
    [
        ("add.f32.zzz", 3),  # an unknown modifier
        ("add.ftz.ftz.f32", 3),  # given twice
        ("add.ftz.f64", 3),  # not for this type
        ("add.f32", 4),  # one operand too many
        ("cvt.s32.f32", 2),  # the rounding mode is missing
        ("cvt.rn.f32.f16x2", 2),
        ("setp.lt.b32", 3),  # bits have no order
        ("fma.f32", 4),
        ("div.f32", 3),
        ("mul.u32", 3),  # neither .lo nor .hi nor .wide
        ("add", 3),
        ("frobnicate.u32", 3),
    ],
)
def test_refused(name: str, operands: int) -> None:
    assert lookup(name, operands) is None


def test_every_variant_is_found_under_its_name() -> None:
    for row in ROWS:
        for variant in row.variants():
            found = lookup(variant.name, len(row.operands))
            assert found is not None, variant.name
            assert found.types == variant.types, variant.name  # type: ignore[attr-defined]


@pytest.mark.slow
def test_ptxas_accepts_what_the_table_accepts(tmp_path: Path) -> None:
    """For some architecture; .sat of a cvt that cannot overflow is the only freedom the table takes."""
    variants = [variant for row in harness.ROWS for variant in row.variants()]
    accepted = set().union(
        *(assemble(variants, architecture, tmp_path)[1] for architecture in ("90a", "100a"))
    )
    refused = {variant.name for index, variant in enumerate(variants) if index not in accepted}
    refused = {name for name in refused if not name.startswith(("lop3.", "cvt.sat."))}
    assert refused == set()
