"""``mma.sp``: products of one warp with a matrix A of which half is zero."""

from __future__ import annotations

from cudahercules.emulator.emit.context import FunctionContext
from cudahercules.emulator.emit.tensor import read_all, vector, write_all
from cudahercules.emulator.ptx.ir import Immediate, Instruction

_FLOATS = {
    "m16n8k32": {
        ("f32", "f16", "f16", "f32"),
        ("f16", "f16", "f16", "f16"),
        ("f32", "bf16", "bf16", "f32"),
    },
    "m16n8k16": {("f32", "tf32", "tf32", "f32")},
    "m16n8k64": {("f32", a, b, "f32") for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")},
}
_INTEGERS = {
    "m16n8k64": {("s32", a, b, "s32") for a in ("s8", "u8") for b in ("s8", "u8")},
    "m16n8k128": {("s32", a, b, "s32") for a in ("s4", "u4") for b in ("s4", "u4")},
}
_PAIRS = ("m16n8k32", "m16n8k16")
"""Shapes whose metadata lies with two of every four lanes (selector 0 or 1); else all four have some."""


def mma_sparse(context: FunctionContext, instruction: Instruction) -> str | None:
    """The shapes with four registers of A and of B; PTX has smaller ones, which nobody seems to use."""
    modifiers, types = instruction.modifiers[1:], instruction.types
    if modifiers[:2] != ("sync", "aligned") or modifiers[3:5] != ("row", "col"):
        return None
    shape, options = modifiers[2], modifiers[5:]
    integers = types in _INTEGERS.get(shape, ())
    if not integers and types not in _FLOATS.get(shape, ()):
        return None
    if options not in ((), ("satfinite",)) or (options and not integers):
        return None
    if len(instruction.operands) != 6:
        return None
    d, a, b, c, metadata, selector = instruction.operands
    if not isinstance(selector, Immediate) or selector.value not in ((0, 1) if shape in _PAIRS else (0,)):
        return None
    count = 2 if types[0] == "f16" else 4
    formats = ", ".join(f"rt::Format::{t}" for t in types[:3])
    saturate = "true" if options else "false"
    form = f"{shape.partition('k')[2]}, {formats}, {selector.value}, {saturate}"
    parts = [(a, 4), (b, 4), (c, count)]
    values = ", ".join(f"{{{read_all(context, vector(part, n), 'b32')}}}" for part, n in parts)
    return " ".join(
        (
            f"rt::SparseLane _l = {{{{{form}}}, {values}, {context.access.read(metadata, 'b32')}}};",
            f"rt::whole_warp(t, rt::mma_sparse, &_l, {context.site});",
            write_all(context, vector(d, count), "b32", "_l.c"),
        )
    )


def forms() -> list[str]:
    """What this module takes, for the page that lists it."""
    lines = []
    for table, option in ((_FLOATS, ""), (_INTEGERS, "{.satfinite}")):
        for shape, all_types in table.items():
            start = f"mma.sp{{::ordered_metadata}}.sync.aligned.{shape}.row.col{option}"
            lines += [f"{start}.{'.'.join(types)}" for types in sorted(all_types)]
    return lines
