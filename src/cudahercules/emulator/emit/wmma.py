"""``wmma``: tiles that a warp loads, multiplies and stores as opaque fragments."""

from __future__ import annotations

from cudahercules.emulator.emit.access import Unsupported
from cudahercules.emulator.emit.context import FunctionContext
from cudahercules.emulator.emit.memory import READ, WRITE, byte_address, shared_offset
from cudahercules.emulator.emit.tensor import (
    dimensions,
    integer_products,
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
_PACKED = {("m8n8k32", "s4"): 8, ("m8n8k32", "u4"): 8, ("m8n8k128", "b1"): 32}
"""Elements a register of shapes whose A goes by rows and whose B by columns, always; C and D are s32."""
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
            return _packed_product(context, instruction) or _multiply(context, instruction)
        case ("mma", "and" | "xor"):
            return _packed_product(context, instruction)
    return None


def _fragment(part: str, type_: str, shape: str) -> tuple[int, int, int]:
    """Rows and columns as the runtime sees the tile (B by rows of n), and the registers PTX has for it."""
    types = {t[{"a": 1, "b": 2, "c": 3, "d": 0}[part]] for s, t in _PRODUCTS if s == shape}
    if part in "cd" and any(s == shape for s, _ in _PACKED):
        types = {"s32"}
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
    if part in "ab" and (shape, type_) in _PACKED:
        return _load_packed(context, instruction, fragment, address, space)
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


def _load_packed(
    context: FunctionContext, instruction: Instruction, fragment: Operand, address: Memory, space: str
) -> str | None:
    """A or B of elements below a byte: one register of a row (a column of B) a lane, moved as a word."""
    direction, part, _, _, layout, shape, *_ = instruction.modifiers
    if direction != "load" or layout != ("row" if part == "a" else "col"):
        return None
    per = _PACKED[shape, instruction.types[0]]
    stride = f"{dimensions(shape)[2]}u"
    if len(instruction.operands) == 3:
        stride = context.access.read(instruction.operands[2], "u32")
    (element,) = vector(fragment, 1)
    return " ".join(
        (
            f"char _l; rt::whole_warp(t, rt::wmma_sync, &_l, {context.site});",
            _at(context, address, 4, space, READ),
            f"uint32_t _r[1]; const uint32_t _s = {stride} / {per};",
            "rt::wmma_load<rt::Format::s32, 8, 4, false>(t.lane, false, _s, _at, _r);",
            context.access.write(element, "b32", "_r[0]"),
        )
    )


def _packed_product(context: FunctionContext, instruction: Instruction) -> str | None:
    """``wmma.mma{.and|xor.popc}.sync.aligned.row.col`` of elements below a byte; None for other forms."""
    modifiers = instruction.modifiers[1:]
    join = modifiers[:2] if modifiers[0] in ("and", "xor") else ()
    rest = modifiers[len(join) :]
    if rest[:4] != ("sync", "aligned", "row", "col") or len(rest) < 5 or len(instruction.types) != 4:
        return None
    if (rest[4], instruction.types[1]) not in _PACKED or instruction.types[1] != instruction.types[2]:
        return None
    return integer_products(context, instruction, rest[4], (*join, *rest[5:]))


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
    for shape, type_ in _PACKED:
        join, end = (".and|xor.popc", "") if type_ == "b1" else ("", "{.satfinite}")
        lines.append(f"wmma.mma{join}.sync.aligned.row.col.{shape}.s32.{type_}.{type_}.s32{end}")
    lines.append("wmma.load.a|b|c and wmma.store.d.sync.aligned.row|col{.global|.shared} of their fragments")
    return lines
