"""Loads, stores, address conversions and hints."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cudahercules.emulator.emit.access import Unsupported, c_type
from cudahercules.emulator.emit.context import FunctionContext
from cudahercules.emulator.ptx.ir import (
    Immediate,
    Instruction,
    Memory,
    Operand,
    Register,
    Sink,
    Symbol,
    Vector,
    bits,
)

READ, WRITE, ATOMIC = 0, 1, 2
STRONG, QUIET = 4, 8
"""Kinds of access, and what may be added to one (as in device.hpp)."""

_SCOPES = frozenset(("cta", "cluster", "gpu", "sys"))
_STRONG = frozenset(("relaxed", "acquire", "release", "acq_rel", "volatile", "mmio", "sc"))
_SPACES = {
    "global": "global",
    "shared": "shared",
    "shared::cta": "shared",
    "shared::cluster": "cluster",
    "local": "local",
    "const": "const",
    "param": "param",
    "param::entry": "param",
    "param::func": "param",
}
_CACHE = re.compile(
    r"c[agsv]|lu|wb|wt|nc|L1::(evict_(normal|unchanged|first|last)|no_allocate)"
    r"|L2::(evict_(normal|first|last)|cache_hint|64B|128B|256B)"
)


@dataclass(frozen=True, slots=True)
class Where:
    """How a load, store or atomic goes to memory."""

    space: str  # "" is generic
    strong: bool
    vector: int
    hint: bool  # a cache-policy operand follows
    rest: tuple[str, ...]


def where(instruction: Instruction) -> Where:
    """Sorts the modifiers; those that say nothing about memory stay in ``rest``."""
    space, strong, vector, hint = "", False, 1, False
    rest = []
    for modifier in instruction.modifiers:
        if modifier in _SPACES:
            space = _SPACES[modifier]
        elif modifier in _STRONG:
            strong = True
        elif modifier in ("v2", "v4", "v8"):
            vector = int(modifier[1:])
        elif modifier == "L2::cache_hint":
            hint = True
        elif modifier in _SCOPES or modifier == "weak" or _CACHE.fullmatch(modifier):
            continue
        else:
            rest.append(modifier)
    return Where(space, strong, vector, hint, tuple(rest))


def pointer(context: FunctionContext, memory: Operand, size: int, space: str, access: int) -> str:
    """A checked ``uint8_t*`` for ``size`` bytes at ``memory``. Raises Unsupported."""
    if not isinstance(memory, Memory) or memory.coordinates:
        raise Unsupported("address")
    if space == "param":
        return _parameter(context, memory, size, access)
    if space == "shared":
        offset = shared_offset(context, memory)
        return f"rt::shared_at<{size}>(t, SH, SN, {offset}, {context.site}, {access})"
    if space == "cluster":
        address = window_address(context, memory)
        return f"rt::cluster_at(t, {address}, {size}, {context.site}, {access})"
    address = byte_address(context, memory)
    if space == "local":
        return f"rt::local_at<{size}>(t, {address}, {context.site}, {access})"
    generic = "true" if space == "" else "false"
    return f"rt::global_at<{size}>(t, S, {address}, {context.site}, {access}, {generic})"


def byte_address(context: FunctionContext, memory: Memory) -> str:
    """A global, local or generic address as a ``uint64_t`` expression."""
    base = memory.base
    if isinstance(base, Register):
        raw = context.access.raw(base)
        if bits(base.type) not in (32, 64):
            raise Unsupported("address register")
        return f"((uint64_t){raw} + {memory.offset}ll)" if memory.offset else f"(uint64_t){raw}"
    if isinstance(base, Immediate):
        return f"{(base.value + memory.offset) & (2**64 - 1)}ull"
    return f"(uint64_t){context.address_of(Symbol(base.name, base.offset + memory.offset))}"


def shared_offset(context: FunctionContext, memory: Memory) -> str:
    """The offset from the start of user shared memory."""
    base = memory.base
    if isinstance(base, Register):
        if bits(base.type) == 32:
            return f"(uint32_t)({context.access.raw(base)} + {memory.offset & 0xFFFFFFFF}u - SO)"
        return f"rt::narrow({context.access.raw(base)} + {memory.offset}ll - SO)"
    if isinstance(base, Immediate):
        return f"(uint32_t)({(base.value + memory.offset) & 0xFFFFFFFF}u - SO)"
    symbol = Symbol(base.name, base.offset + memory.offset)
    return f"(uint32_t)({context.address_of(symbol)} - SO)"


def window_address(context: FunctionContext, memory: Memory) -> str:
    """A shared::cta or shared::cluster address as a ``uint64_t`` expression: rank << 24 | offset."""
    base = memory.base
    if isinstance(base, Register):
        raw = context.access.raw(base)
        if bits(base.type) not in (32, 64):
            raise Unsupported("address register")
        return f"(uint64_t)({raw} + {memory.offset & 0xFFFFFFFF}u)" if memory.offset else f"(uint64_t){raw}"
    if isinstance(base, Immediate):
        return f"(uint64_t){(base.value + memory.offset) & 0xFFFFFFFF}u"
    return f"(uint64_t){context.address_of(Symbol(base.name, base.offset + memory.offset))}"


def _parameter(context: FunctionContext, memory: Memory, size: int, access: int) -> str:
    """Parameters are reached by name and constant offset, or (kernels, structs) by an address."""
    base = memory.base
    if not isinstance(base, Symbol):
        if access % STRONG != READ:
            raise Unsupported("store to a parameter through a register")
        return pointer(context, memory, size, "", access)
    offset = base.offset + memory.offset
    if base.name in context.local:
        variable = context.function.variables[base.name]
        at = f"F + {context.local[base.name] + offset}"
    elif base.name in context.parameters:
        position, variable = context.parameters[base.name]
        is_return = not context.function.is_kernel and position < len(context.function.returns)
        if access % STRONG != READ and not is_return:
            raise Unsupported("store to a parameter")
        at = f"{context.parameter(base.name)} + {offset}"
    else:
        raise Unsupported(f"parameter {base.name}")
    if offset < 0 or offset + size > variable.size:
        raise Unsupported("access outside a parameter")
    return at


def _elements(operand: Operand, count: int) -> tuple[Operand, ...]:
    if count == 1 and not isinstance(operand, Vector):
        return (operand,)
    if isinstance(operand, Vector) and len(operand.elements) == count:
        return operand.elements
    raise Unsupported("vector length")


def _access_size(instruction: Instruction, vector: int) -> tuple[str, int]:
    if len(instruction.types) != 1 or instruction.types[0] == "pred":
        raise Unsupported("type")
    type_ = instruction.types[0]
    size = bits(type_) // 8
    if size * vector > 32 or bits(type_) % 8:
        raise Unsupported("vector size")
    return type_, size


def load(context: FunctionContext, instruction: Instruction) -> str | None:
    if instruction.opcode == "ldu" and "global" not in instruction.modifiers:
        return None
    place = where(instruction)
    if place.rest or len(instruction.operands) != 2 + place.hint:
        return None
    type_, size = _access_size(instruction, place.vector)
    ctype = c_type(type_)
    at = pointer(
        context, instruction.operands[1], size * place.vector, place.space, READ + STRONG * place.strong
    )
    elements = _elements(instruction.operands[0], place.vector)
    integer = "unsigned __int128" if size == 16 else f"uint{size * 8}_t"
    strong = place.strong and size <= 8 and place.space in ("", "global", "shared", "cluster")
    lines = [f"const uint8_t* const _p = {at};"]
    for i in range(place.vector):
        if isinstance(elements[i], Sink):
            continue
        if strong:
            value = f"__builtin_bit_cast({ctype}, rt::load_strong<{integer}>(_p + {i * size}))"
        else:
            value = f"rt::load<{ctype}>(_p + {i * size})"
        lines.append(f"const {ctype} _v{i} = {value};")
    lines += [context.access.write(e, type_, f"_v{i}") for i, e in enumerate(elements)]
    if strong:
        lines.append(f"rt::burn(t, rt::strong_load_fuel, {context.site});")
    return " ".join(lines)


def store(context: FunctionContext, instruction: Instruction) -> str | None:
    place = where(instruction)
    if place.rest or place.space == "const" or len(instruction.operands) != 2 + place.hint:
        return None
    type_, size = _access_size(instruction, place.vector)
    ctype = c_type(type_)
    at = pointer(
        context, instruction.operands[0], size * place.vector, place.space, WRITE + STRONG * place.strong
    )
    elements = _elements(instruction.operands[1], place.vector)
    integer = "unsigned __int128" if size == 16 else f"uint{size * 8}_t"
    strong = place.strong and size <= 8 and place.space in ("", "global", "shared", "cluster")
    lines = [f"uint8_t* const _p = {at};"]
    for i, element in enumerate(elements):
        value = context.access.read(element, type_)
        if strong:
            value = f"__builtin_bit_cast({integer}, ({ctype})({value}))"
            lines.append(f"rt::store_strong<{integer}>(_p + {i * size}, {value});")
        else:
            lines.append(f"rt::store<{ctype}>(_p + {i * size}, {value});")
    return " ".join(lines)


def convert_address(context: FunctionContext, instruction: Instruction) -> str | None:
    """``cvta``: global, const, local and param addresses are generic addresses already."""
    modifiers = list(instruction.modifiers)
    back = modifiers[:1] == ["to"]
    if len(modifiers) != 1 + back or modifiers[-1] not in _SPACES or instruction.types != ("u64",):
        return None
    destination, source = instruction.operands
    value = context.access.read(source, "u64")
    if _SPACES[modifiers[-1]] in ("shared", "cluster"):
        value = f"rt::{'to_shared' if back else 'to_generic'}(t, {value})"
    return context.access.write(destination, "u64", value)


def is_space(context: FunctionContext, instruction: Instruction) -> str | None:
    if len(instruction.modifiers) != 1 or instruction.types:
        return None
    destination, source = instruction.operands
    address = context.access.read(source, "u64")
    shared, local = f"rt::in_shared(t, {address})", f"rt::in_local(t, {address})"
    constant, parameter = f"rt::in_constant_memory({address})", f"rt::in_parameters(t, {address})"
    tests = {
        "shared": shared,
        "cluster": f"rt::in_cluster_shared(t, {address})",
        "local": local,
        "const": constant,
        "param": parameter,
        "global": f"!({shared} || {local} || {constant} || {parameter})",
    }
    name = instruction.modifiers[0]
    space = _SPACES.get(name, "")
    return context.access.write(destination, "pred", tests[space]) if space else None


_PREFETCH = re.compile(
    r"(global\.|local\.)?(L1|L2|L2::evict_last|L2::evict_normal)|((param|const)\.)?tensormap"
)
_POLICY = re.compile(
    r"fractional\.L2::evict_(last|normal|first|unchanged)(\.L2::evict_(first|unchanged))?"
    r"|range(\.global)?\.L2::evict_(last|normal|first|unchanged)(\.L2::evict_(first|unchanged))?|cvt\.L2"
)


def prefetch(context: FunctionContext, instruction: Instruction) -> str | None:
    return ";" if _PREFETCH.fullmatch(".".join(instruction.modifiers)) and not instruction.types else None


def priority(context: FunctionContext, instruction: Instruction) -> str | None:
    """``applypriority`` and ``discard``: hints to the cache, without effect on values that may be read."""
    allowed = ("L2::evict_normal",) if instruction.opcode == "applypriority" else ("L2",)
    rest = tuple(m for m in instruction.modifiers if m != "global")
    return ";" if rest == allowed and not instruction.types else None


def policy(context: FunctionContext, instruction: Instruction) -> str | None:
    """A cache policy has no effect here: any value will do."""
    if instruction.types != ("b64",) or not _POLICY.fullmatch(".".join(instruction.modifiers)):
        return None
    return context.access.write(instruction.operands[0], "b64", "0")
