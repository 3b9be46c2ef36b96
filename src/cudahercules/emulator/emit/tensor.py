"""Tensor-core instructions of one warp: ``mma``, ``ldmatrix``, ``stmatrix``, ``movmatrix``."""

from __future__ import annotations

import re

from cudahercules.emulator.emit.access import Unsupported
from cudahercules.emulator.emit.context import FunctionContext
from cudahercules.emulator.emit.memory import READ, WRITE, pointer
from cudahercules.emulator.ptx.ir import Instruction, Memory, Operand, Register, Vector

_BYTES = [("s32", a, b, "s32") for a in ("s8", "u8") for b in ("s8", "u8")]
_FP8 = [("f32", a, b, "f32") for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")]
_HALF: list[tuple[str, ...]] = [
    ("f16", "f16", "f16", "f16"),
    ("f32", "f16", "f16", "f32"),
    ("f32", "bf16", "bf16", "f32"),
]
_TF32: list[tuple[str, ...]] = [("f32", "tf32", "tf32", "f32")]
_DOUBLE: list[tuple[str, ...]] = [("f64",) * 4]

SHAPES: dict[str, list[tuple[str, ...]]] = {
    "m16n8k4": [*_TF32, *_DOUBLE],
    "m16n8k8": [*_HALF, *_TF32, *_DOUBLE],
    "m16n8k16": [*_HALF, *_BYTES, *_DOUBLE],
    "m16n8k32": [*_BYTES, *_FP8],
    "m8n8k4": [*_DOUBLE],
}
"""Types of D, A, B and C that ``mma.sync.aligned.SHAPE.row.col`` takes."""

_INTEGER_SHAPES = {
    "m8n8k16": ("s8", "u8"),
    "m8n8k32": ("s4", "u4"),
    "m16n8k32": ("s4", "u4"),
    "m16n8k64": ("s4", "u4"),
    "m8n8k128": ("b1",),
    "m16n8k128": ("b1",),
    "m16n8k256": ("b1",),
}
"""Further shapes with the types of A and of B, each alone or mixed; D and C are s32."""

_BITS = {"f16": 16, "bf16": 16, "tf32": 32, "f64": 64, "s8": 8, "u8": 8, "e4m3": 8, "e5m2": 8}
_BITS |= {"f32": 32, "s32": 32, "s4": 4, "u4": 4, "b1": 1}


def dimensions(shape: str) -> tuple[int, int, int]:
    """(m, n, k) of ``m16n8k16``."""
    found = re.fullmatch(r"m(\d+)n(\d+)k(\d+)", shape)
    if found is None:
        raise Unsupported(f"shape {shape}")
    return int(found[1]), int(found[2]), int(found[3])


def registers(type_: str, rows: int, columns: int) -> int:
    """How many registers a lane holds of a matrix spread over a warp."""
    width = _BITS[type_]
    return rows * columns * width // 32 // max(32, width)


def register_type(type_: str) -> str:
    return "b64" if type_ == "f64" else "b32"


def vector(operand: Operand, count: int) -> tuple[Operand, ...]:
    """The ``count`` registers of a fragment. Raises Unsupported."""
    elements = operand.elements if isinstance(operand, Vector) else (operand,)
    if len(elements) != count:
        raise Unsupported(f"a fragment of {len(elements)} registers instead of {count}")
    return elements


def read_all(context: FunctionContext, elements: tuple[Operand, ...], type_: str) -> str:
    """The registers as a list of C++ integers."""
    return ", ".join(context.access.read(e, register_type(type_)) for e in elements)


def write_all(context: FunctionContext, elements: tuple[Operand, ...], type_: str, values: str) -> str:
    """Statements that store ``values[0]``, ``values[1]``, ... into the registers."""
    return " ".join(
        context.access.write(e, register_type(type_), f"{values}[{i}]") for i, e in enumerate(elements)
    )


def mma(context: FunctionContext, instruction: Instruction) -> str | None:
    modifiers = instruction.modifiers
    types = instruction.types
    if modifiers[:2] == ("sync", "aligned") and modifiers[3:5] == ("row", "col"):
        integers = integer_products(context, instruction, modifiers[2], modifiers[5:])
        if integers is not None:
            return integers
    option = {"s32": ("satfinite",), "f64": ("rn",)}.get(types[0] if types else "")
    if modifiers[:2] != ("sync", "aligned") or modifiers[3:5] != ("row", "col"):
        return None
    if modifiers[5:] not in ((), option):
        return None
    if types not in SHAPES.get(modifiers[2], ()) or len(instruction.operands) != 4:
        return None
    m, n, k = dimensions(modifiers[2])
    d, a, b, c = (
        vector(operand, registers(type_, rows, columns))
        for operand, type_, rows, columns in zip(
            instruction.operands, types, (m, m, n, m), (n, k, k, n), strict=True
        )
    )
    return multiply(context, (m, n, k), types, modifiers[5:] == ("satfinite",), (d, a, b, c))


def integer_products(
    context: FunctionContext, instruction: Instruction, shape: str, options: tuple[str, ...]
) -> str | None:
    """``mma`` and ``wmma.mma`` of ``_INTEGER_SHAPES``; None for any other form. ``options`` are the
    modifiers behind the layouts: satfinite, or what joins single bits."""
    types, known = instruction.types, _INTEGER_SHAPES.get(shape, ())
    if len(types) != 4 or types[0] != "s32" or types[3] != "s32" or len(instruction.operands) != 4:
        return None
    if types[1] not in known or types[2] not in known:
        return None
    allowed = (("and", "popc"), ("xor", "popc")) if types[1] == "b1" else ((), ("satfinite",))
    if options not in allowed:
        return None
    m, n, k = dimensions(shape)
    width = _BITS[types[1]]
    d, a, b, c = (
        vector(operand, rows * columns * bits // 1024)
        for operand, rows, columns, bits in zip(
            instruction.operands, (m, m, n, m), (n, k, k, n), (32, width, width, 32), strict=True
        )
    )
    flags = (types[1][0] == "s", types[2][0] == "s", options == ("satfinite",), "xor" in options)
    form = ", ".join((*map(str, (m, k, width)), *("true" if flag else "false" for flag in flags)))
    values = ", ".join(f"{{{read_all(context, part, 's32')}}}" for part in (a, b, c))
    return " ".join(
        (
            f"rt::IntegerLane _l = {{{{{form}}}, {values}}};",
            f"rt::whole_warp(t, rt::mma_integer, &_l, {context.site});",
            write_all(context, d, "s32", "_l.c"),
        )
    )


def multiply(
    context: FunctionContext,
    shape: tuple[int, int, int],
    types: tuple[str, ...],
    saturate: bool,
    fragments: tuple[tuple[Operand, ...], ...],
) -> str:
    """D = A * B + C of one warp; ``types`` and ``fragments`` in the order D, A, B, C."""
    d, a, b, c = fragments
    form = ", ".join((*map(str, shape), *(f"rt::Format::{t}" for t in types[:3])))
    return " ".join(
        (
            f"rt::MmaLane<{form}> _l = {{{{{read_all(context, a, types[1])}}}, "
            f"{{{read_all(context, b, types[2])}}}, {{{read_all(context, c, types[3])}}}}};",
            f"rt::whole_warp(t, rt::mma<{form}, {'true' if saturate else 'false'}>, &_l, {context.site});",
            write_all(context, d, types[0], "_l.c"),
        )
    )


def _matrices(instruction: Instruction) -> tuple[int, bool, str] | None:
    """Number of matrices, transposed or not, and the state space ("" is generic)."""
    modifiers = list(instruction.modifiers)
    if modifiers[:2] != ["sync", "aligned"] or instruction.types != ("b16",):
        return None
    rest = set(modifiers[2:])  # ptxas takes them in any order, and CUTLASS has another one than the manual
    counts = rest & {"x1", "x2", "x4"}
    spaces = rest & {"shared", "shared::cta"}
    if len(rest) != len(modifiers) - 2 or len(counts) != 1 or len(spaces) > 1 or "m8n8" not in rest:
        return None
    if rest - counts - spaces - {"m8n8", "trans"}:
        return None
    return int(counts.pop()[1:]), "trans" in rest, "shared" if spaces else ""


def matrix(context: FunctionContext, instruction: Instruction) -> str | None:
    """``ldmatrix`` and ``stmatrix``: the first 8, 16 or 32 lanes give the addresses of rows."""
    form = _matrices(instruction)
    if form is None or len(instruction.operands) != 2:
        return None
    count, transposed, space = form
    loads = instruction.opcode == "ldmatrix"
    target, source = instruction.operands
    address, fragment = (source, target) if loads else (target, source)
    if not isinstance(address, Memory):
        return None
    elements = vector(fragment, count)
    at = pointer(context, address, 16, space, READ if loads else WRITE)
    values = "" if loads else read_all(context, elements, "b32")
    function = f"rt::{instruction.opcode}<{count}, {'true' if transposed else 'false'}>"
    return " ".join(
        (
            f"rt::MatrixLane _l = {{nullptr, {{{values}}}}};",
            f"if (t.lane < {count * 8}) _l.row = (uint8_t*)({at});",
            f"rt::whole_warp(t, {function}, &_l, {context.site});",
            write_all(context, elements, "b32", "_l.d") if loads else "",
        )
    )


def movmatrix(context: FunctionContext, instruction: Instruction) -> str | None:
    if instruction.name != "movmatrix.sync.aligned.m8n8.trans.b16" or len(instruction.operands) != 2:
        return None
    target, source = instruction.operands
    if not isinstance(target, Register):
        return None
    return " ".join(
        (
            f"rt::MatrixLane _l = {{nullptr, {{{context.access.read(source, 'b32')}}}}};",
            f"rt::whole_warp(t, rt::movmatrix, &_l, {context.site});",
            context.access.write(target, "b32", "_l.d[0]"),
        )
    )


def forms() -> list[str]:
    """What this module takes, for the page that lists it."""
    lines = []
    for shape, types in SHAPES.items():
        for d, a, b, c in types:
            suffix = {"s32": "{.satfinite}", "f64": "{.rn}"}.get(d, "")
            lines.append(f"mma.sync.aligned.{shape}.row.col{suffix}.{d}.{a}.{b}.{c}")
    for shape, names in _INTEGER_SHAPES.items():
        start = f"mma.sync.aligned.{shape}.row.col"
        if names == ("b1",):
            lines.append(f"{start}.s32.b1.b1.s32.and|xor.popc")
        else:
            choice = "|".join(names)
            lines.append(f"{start}{{.satfinite}}.s32.{choice}.{choice}.s32")
    lines += [f"{op}.sync.aligned.m8n8.x1|x2|x4{{.trans}}{{.shared}}.b16" for op in ("ldmatrix", "stmatrix")]
    lines.append("movmatrix.sync.aligned.m8n8.trans.b16")
    return lines
