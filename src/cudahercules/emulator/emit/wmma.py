"""``wmma``: tiles that a warp loads, multiplies and stores as opaque fragments."""

from __future__ import annotations

from cudahercules.emulator.emit.access import Unsupported
from cudahercules.emulator.emit.context import FunctionContext
from cudahercules.emulator.emit.memory import READ, WRITE, byte_address, shared_offset
from cudahercules.emulator.emit.tensor import (
    dimensions,
    multiply,
    read_all,
    register_type,
    registers,
    vector,
)
from cudahercules.emulator.ptx.ir import Instruction, Memory, Operand

_WIDE = ("m16n16k16", "m32n8k16", "m8n32k16")
_PRODUCTS = {
    **{
        (shape, types): None
        for shape in _WIDE
        for types in (
            ("f32", "f16", "f16", "f32"),
            ("f16", "f16", "f16", "f16"),
            ("f32", "bf16", "bf16", "f32"),
            ("s32", "s8", "s8", "s32"),
            ("s32", "u8", "u8", "s32"),
        )
    },
    ("m16n16k8", ("f32", "tf32", "tf32", "f32")): None,
    ("m8n8k4", ("f64",) * 4): None,
}
_SPACES = {"global": "global", "shared": "shared", "shared::cta": "shared"}
_TILES = {
    "a": (0, 2),
    "b": (2, 1),
    "c": (0, 1),
    "d": (0, 1),
}  # rows and columns among m, n, k; A and B along k


def wmma(context: FunctionContext, instruction: Instruction) -> str | None:
    match instruction.modifiers[:2]:
        case ("load", "a" | "b" | "c") | ("store", "d"):
            return _move(context, instruction)
        case ("mma", "sync"):
            return _multiply(context, instruction)
    return None


def _fragment(part: str, type_: str, shape: str) -> tuple[int, int, int]:
    """Rows and columns as the runtime sees the tile (B by rows of n), and the registers PTX has for it."""
    types = {t[{"a": 1, "b": 2, "c": 3, "d": 0}[part]] for s, t in _PRODUCTS if s == shape}
    if type_ not in types:
        raise Unsupported(f"{type_} fragment of {shape}")
    m, n, k = dimensions(shape)
    rows, columns = {"a": (m, k), "b": (n, k)}.get(part, (m, n))
    count = registers(type_, rows, columns)
    # Fragments of fp16 have 8 registers whatever the shape: values are there twice or more.
    return rows, columns, 8 if type_ == "f16" and part in "ab" else count


def _move(context: FunctionContext, instruction: Instruction) -> str | None:
    direction, part, *rest = instruction.modifiers
    if rest[:2] != ["sync", "aligned"] or len(rest) not in (4, 5) or len(instruction.types) != 1:
        return None
    layout, shape = rest[2:4]
    space = _SPACES.get(rest[4], "?") if len(rest) == 5 else ""
    operands = list(instruction.operands)
    if layout not in ("row", "col") or space == "?" or len(operands) not in (2, 3):
        return None
    fragment, address = operands[:2] if direction == "load" else operands[1::-1]
    if not isinstance(address, Memory):
        return None
    type_ = instruction.types[0]
    rows, columns, count = _fragment(part, type_, shape)
    # The runtime's rows of B are columns of the matrix in memory.
    by_columns = (layout == "col") != (part == "b")
    stride = (
        context.access.read(operands[2], "u32")
        if len(operands) == 3
        else f"{rows if by_columns else columns}u"
    )
    elements = vector(fragment, count)
    access = READ if direction == "load" else WRITE
    pairs = "true" if part in "cd" else "false"
    size = {"f16": 2, "bf16": 2, "s8": 1, "u8": 1, "f64": 8}.get(type_, 4)
    words, register = registers(type_, rows, columns), f"u{register_type(type_)[1:]}"
    arguments = f"(t.lane, {'true' if by_columns else 'false'}, {stride}, _at, _r);"
    lines = [
        f"char _l; rt::whole_warp(t, rt::wmma_sync, &_l, {context.site});",
        _at(context, address, size, space, access),
    ]
    if direction == "load":
        lines.append(f"{'uint64_t' if register == 'u64' else 'uint32_t'} _r[{words}];")
        lines.append(f"rt::wmma_load<rt::Format::{type_}, {rows}, {columns}, {pairs}>{arguments}")
        lines += [
            context.access.write(e, register_type(type_), f"_r[{i % words}]") for i, e in enumerate(elements)
        ]
    else:
        values = read_all(context, elements, type_)
        lines.append(f"const {'uint64_t' if register == 'u64' else 'uint32_t'} _r[] = {{{values}}};")
        lines.append(f"rt::wmma_store<rt::Format::{type_}, {rows}, {columns}>{arguments}")
    return " ".join(lines)


def _at(context: FunctionContext, address: Memory, size: int, space: str, access: int) -> str:
    """A C++ function from a byte offset to a checked pointer."""
    if space == "shared":
        place = f"const uint64_t _b = {shared_offset(context, address)};"
        body = f"rt::shared_at<{size}>(t, SH, SN, rt::narrow(_b + _o), {context.site}, {access})"
    else:
        place = f"const uint64_t _b = {byte_address(context, address)};"
        generic = "false" if space else "true"
        body = f"rt::global_at<{size}>(t, S, _b + _o, {context.site}, {access}, {generic})"
    return f"{place} const auto _at = [&](uint64_t _o) {{ return {body}; }};"


def _multiply(context: FunctionContext, instruction: Instruction) -> str | None:
    modifiers = list(instruction.modifiers[1:])
    saturate = modifiers[-1] == "satfinite"
    rounding = instruction.types[-1:] == ("f64",) and modifiers[-1] == "rn"
    modifiers = modifiers[: len(modifiers) - (saturate or rounding)]
    if len(modifiers) != 5 or modifiers[:2] != ["sync", "aligned"] or len(instruction.operands) != 4:
        return None
    *layouts, shape = modifiers[2:]
    types = instruction.types
    if len(types) == 2:  # fp16: only the types of D and C are written
        types = (types[0], "f16", "f16", types[1])
    if any(layout not in ("row", "col") for layout in layouts) or (shape, types) not in _PRODUCTS:
        return None
    if saturate and types[0] != "s32":
        return None
    fragments: list[tuple[Operand, ...]] = []
    for part, type_, operand in zip("dabc", types, instruction.operands, strict=True):
        rows, columns, count = _fragment(part, type_, shape)
        fragments.append(vector(operand, count)[: registers(type_, rows, columns)])
    return multiply(context, dimensions(shape), types, saturate, tuple(fragments))


def forms() -> list[str]:
    """What this module takes, for the page that lists it."""
    lines = []
    for shape, (d, a, b, c) in _PRODUCTS:
        types = f"{d}.{c}" if a == "f16" else f"{d}.{a}.{b}.{c}"
        suffix = {"s32": "{.satfinite}", "f64": "{.rn}"}.get(d, "")
        lines.append(f"wmma.mma.sync.aligned.row|col.row|col.{shape}.{types}{suffix}")
    lines.append("wmma.load.a|b|c and wmma.store.d.sync.aligned.row|col{.global|.shared} of their fragments")
    return lines
