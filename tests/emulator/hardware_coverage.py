"""Which rows of the instruction table a set of programs executes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from cudahercules.emulator.emit import module as emit
from cudahercules.emulator.ptx.ir import Instruction
from cudahercules.emulator.ptx.parse import parse
from cudahercules.emulator.scalar.table import ROWS, find


def instructions(ptx: str, kernels: Iterable[str]) -> Iterator[Instruction]:
    """Those of some kernels and of all device functions."""
    wanted = set(kernels)
    for function in parse(ptx).functions.values():
        if not function.is_kernel or function.name in wanted:
            yield from (item for item in function.body or () if isinstance(item, Instruction))


def table() -> dict[str, str]:
    """Every row of the table: a pattern, an opcode or a tensor-core form, with what kind of row it is."""
    rows = {_scalar_name(row): "scalar" for row in ROWS}
    rows |= dict.fromkeys(("bra", "brx", *emit._EMITTERS), "opcode")
    forms = (*emit.tensor.forms(), *emit.sparse.forms(), *emit.wmma.forms(), *emit.wgmma.forms())
    return rows | {form: "form" for form in forms if " and " not in form}


def rows_of(found: Iterable[Instruction]) -> set[str]:
    """The rows of the table that some instructions belong to."""
    rows: set[str] = set()
    names: set[str] = set()
    for instruction in found:
        names.add(instruction.name)
        types = instruction.types
        variant = (
            find(instruction.opcode, instruction.modifiers, types, len(instruction.operands))
            if types
            else None
        )
        if variant is not None:
            rows.add(_scalar_name(variant.row))
        for count in range(4):
            name = ".".join((instruction.opcode, *instruction.modifiers[:count]))
            if name in emit._EMITTERS or name in ("bra", "brx"):
                rows.add(name)
    forms = [row for row, kind in table().items() if kind == "form"]
    return rows | {form for form in forms if any(_regex(form).fullmatch(name) for name in names)}


def _scalar_name(row: object) -> str:
    return row.pattern  # type: ignore[attr-defined]


def _regex(form: str) -> re.Pattern[str]:
    """``{x}`` is optional, ``a|b`` a choice, ``nN`` any width."""
    text = re.escape(form).replace(r"\{", "(").replace(r"\}", ")?").replace("m64nN", r"m64n\d+")
    return re.compile(
        re.sub(r"(?:\w+\\\|)+\w+", lambda found: f"({found.group().replace(chr(92), '')})", text)
    )
