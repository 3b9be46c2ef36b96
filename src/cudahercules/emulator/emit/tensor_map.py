"""``tensormap``: fields of a tensor map replaced by a kernel, and its way back to global memory."""

from __future__ import annotations

from cudahercules.emulator.emit.context import FunctionContext
from cudahercules.emulator.emit.memory import byte_address, window_address
from cudahercules.emulator.ptx.ir import Immediate, Instruction, Memory

_WHOLE = {
    "global_address": "b64",
    "rank": "b32",
    "elemtype": "b32",
    "interleave_layout": "b32",
    "swizzle_mode": "b32",
    "fill_mode": "b32",
    "swizzle_atomicity": "b32",
}
"""Fields that a map has once, with the type of the new value."""
_LISTS = {"box_dim": "b32", "global_dim": "b32", "global_stride": "b64", "element_stride": "b32"}
"""Fields that it has for each dimension; the operand before the new value says for which."""
_SPACES = {"global": "global", "shared::cta": "shared"}
_COPY = ("cp_fenceproxy", "global", "shared::cta", "tensormap::generic", "release")
_SCOPES = ("cta", "cluster", "gpu", "sys")


def tensor_map(context: FunctionContext, instruction: Instruction) -> str | None:
    match instruction.modifiers[:1]:
        case ("replace",):
            return _replace(context, instruction)
        case ("cp_fenceproxy",):
            return _copy(context, instruction)
    return None


def _replace(context: FunctionContext, instruction: Instruction) -> str | None:
    _, mode, *rest = instruction.modifiers
    if mode != "tile" or not rest or rest[-1] != "b1024" or len(instruction.types) != 1:
        return None
    field, spaces = rest[0], rest[1:-1]
    space = _SPACES.get(spaces[0], "?") if len(spaces) == 1 else "?" if spaces else ""
    type_ = instruction.types[0]
    count = 3 if field in _LISTS else 2
    if space == "?" or {**_WHOLE, **_LISTS}.get(field) != type_ or len(instruction.operands) != count:
        return None
    address, *ordinal, value = instruction.operands
    if not isinstance(address, Memory) or not all(isinstance(o, Immediate) for o in ordinal):
        return None
    number = f"{ordinal[0].value}u" if ordinal and isinstance(ordinal[0], Immediate) else "0u"
    place = window_address if space == "shared" else byte_address
    return (
        f"rt::replace_in_map(t, {place(context, address)}, {'true' if space == 'shared' else 'false'}, "
        f"rt::MapField::{field}, {number}, {context.access.read(value, type_)}, {context.site});"
    )


def _copy(context: FunctionContext, instruction: Instruction) -> str | None:
    modifiers = instruction.modifiers
    if modifiers[:5] != _COPY or len(modifiers) != 8 or modifiers[5] not in _SCOPES:
        return None
    if modifiers[6:] != ("sync", "aligned") or instruction.types or len(instruction.operands) != 3:
        return None
    to, source, size = instruction.operands
    if not isinstance(to, Memory) or not isinstance(source, Memory):
        return None
    if not isinstance(size, Immediate) or size.value != 128:
        return None
    addresses = f"{byte_address(context, to)}, {window_address(context, source)}"
    return f"rt::MapLane _l; rt::copy_map(t, &_l, {addresses}, {context.site});"


def forms() -> list[str]:
    """What this module takes, for the page that lists it."""
    whole = "|".join(name for name in _WHOLE if _WHOLE[name] == "b32")
    lists = "|".join(name for name in _LISTS if _LISTS[name] == "b32")
    start, place = "tensormap.replace.tile", "{.global|.shared::cta}.b1024"
    return [
        f"{start}.global_address|global_stride{place}.b64",
        f"{start}.{whole}|{lists}{place}.b32",
        "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.SCOPE.sync.aligned",
    ]
