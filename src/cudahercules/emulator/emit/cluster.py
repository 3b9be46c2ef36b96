"""Clusters: addresses in each other's blocks, ``barrier.cluster``, ``st.async`` and ``red.async``."""

from __future__ import annotations

import re

from cudahercules.emulator.emit.access import Unsupported, c_type
from cudahercules.emulator.emit.context import FunctionContext
from cudahercules.emulator.emit.memory import window_address
from cudahercules.emulator.ptx.ir import Instruction, Memory, Operand, Symbol, Vector, bits


def _address(context: FunctionContext, operand: Operand, type_: str) -> str:
    """An address operand, which may be a variable or a register plus an offset."""
    if isinstance(operand, Symbol):
        return f"(uint64_t)({context.address_of(operand)})"
    return f"(uint64_t)({context.access.read(operand, type_)})"


def map_address(context: FunctionContext, instruction: Instruction) -> str | None:
    """``mapa``: the same place in another block of the cluster."""
    modifiers, types = instruction.modifiers, instruction.types
    if modifiers not in ((), ("shared::cluster",)) or types not in (("u32",), ("u64",)):
        return None
    if len(instruction.operands) != 3 or (not modifiers and types != ("u64",)):
        return None
    target, source, rank = instruction.operands
    function = "map_shared" if modifiers else "map_generic"
    address = _address(context, source, types[0])
    call = f"rt::{function}(t, {address}, {context.access.read(rank, 'u32')}, {context.site})"
    return context.access.write(target, types[0], f"({c_type(types[0])}){call}")


def rank(context: FunctionContext, instruction: Instruction) -> str | None:
    """``getctarank``: the block in whose shared memory an address lies."""
    modifiers, types = instruction.modifiers, instruction.types
    if modifiers not in ((), ("shared::cluster",)) or types not in (("u32",), ("u64",)):
        return None
    if len(instruction.operands) != 2 or (not modifiers and types != ("u64",)):
        return None
    target, source = instruction.operands
    function = "rank_of_shared" if modifiers else "rank_of_generic"
    return context.access.write(
        target, "u32", f"rt::{function}(t, {_address(context, source, types[0])}, {context.site})"
    )


_ARRIVE = re.compile(r"cluster\.arrive(\.release|\.relaxed)?(\.aligned)?")
_WAIT = re.compile(r"cluster\.wait(\.acquire)?(\.aligned)?")


def barrier(context: FunctionContext, instruction: Instruction) -> str | None:
    if instruction.types or instruction.operands:
        return None
    modifiers = ".".join(instruction.modifiers)
    if _ARRIVE.fullmatch(modifiers):
        return f"rt::cluster_arrive(t, {context.site});"
    if _WAIT.fullmatch(modifiers):
        return f"rt::cluster_wait(t, {context.site});"
    return None


_SIGNAL = "mbarrier::complete_tx::bytes"
_STORED = frozenset(("b32", "b64", "u32", "u64", "s32", "s64", "f32", "f64"))
_REDUCED = {
    "add": ("u32", "s32", "u64"),
    "min": ("u32", "s32"),
    "max": ("u32", "s32"),
    "inc": ("u32",),
    "dec": ("u32",),
    "and": ("b32",),
    "or": ("b32",),
    "xor": ("b32",),
}
REDUCTIONS = {
    **{name: name for name in ("add", "min", "max", "inc", "dec")},
    "and": "band",
    "or": "bor",
    "xor": "bxor",
}


def store_async(context: FunctionContext, instruction: Instruction) -> str | None:
    """``st.async``: registers to another block's shared memory, announced at its mbarrier."""
    modifiers = [m for m in instruction.modifiers if m not in ("async", "weak", "shared::cluster", _SIGNAL)]
    vector = int(modifiers.pop()[1:]) if modifiers in (["v2"], ["v4"]) else 1
    if modifiers or _SIGNAL not in instruction.modifiers or len(instruction.types) != 1:
        return None
    type_ = instruction.types[0]
    if type_ not in _STORED or bits(type_) * vector > 128:
        return None
    return _send(context, instruction, type_, vector, "none", "u32")


def reduce_async(context: FunctionContext, instruction: Instruction) -> str | None:
    """``red.async``: an atomic operation on another block's shared memory, announced at its mbarrier."""
    known = ("async", "relaxed", "cluster", "shared::cluster", _SIGNAL)
    modifiers = [m for m in instruction.modifiers if m not in known]
    if len(modifiers) != 1 or _SIGNAL not in instruction.modifiers or len(instruction.types) != 1:
        return None
    (operation,), (type_,) = modifiers, instruction.types
    if type_ not in _REDUCED.get(operation, ()):
        return None
    number = type_ if type_[0] in "us" else type_.replace("b", "u")
    return _send(context, instruction, type_, 1, REDUCTIONS[operation], number)


def _send(
    context: FunctionContext, instruction: Instruction, type_: str, vector: int, reduction: str, number: str
) -> str | None:
    if len(instruction.operands) != 3:
        return None
    target, source, signal = instruction.operands
    if not isinstance(target, Memory) or not isinstance(signal, Memory):
        return None
    elements = source.elements if isinstance(source, Vector) else (source,)
    if len(elements) != vector:
        raise Unsupported("vector length")
    values = ", ".join(context.access.read(e, type_) for e in elements)
    return (
        f"const {c_type(type_)} _v[] = {{{values}}}; "
        f"rt::send_async(t, {window_address(context, target)}, _v, sizeof _v, "
        f"{window_address(context, signal)}, rt::Reduction::{reduction}, rt::Number::{number}, "
        f"{context.site});"
    )
