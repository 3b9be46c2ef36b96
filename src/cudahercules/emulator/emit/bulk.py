"""``cp.async.bulk`` and ``cp.reduce.async.bulk``: copies by the copy engine, linear or by tensor map."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cudahercules.emulator.emit.access import Unsupported
from cudahercules.emulator.emit.cluster import REDUCTIONS
from cudahercules.emulator.emit.context import FunctionContext
from cudahercules.emulator.emit.memory import byte_address, window_address
from cudahercules.emulator.ptx.ir import Instruction, Memory, Operand

_SIGNAL = "mbarrier::complete_tx::bytes"
_HINT, _MULTICAST = "L2::cache_hint", "multicast::cluster"
_GLOBAL_REDUCTIONS = {
    "add": ("u32", "s32", "u64", "s64", "f16", "bf16", "f32", "f64"),
    "min": ("u32", "s32", "u64", "s64", "f16", "bf16"),
    "max": ("u32", "s32", "u64", "s64", "f16", "bf16"),
    "inc": ("u32",),
    "dec": ("u32",),
    "and": ("b32", "b64"),
    "or": ("b32", "b64"),
    "xor": ("b32", "b64"),
}
_SHARED_REDUCTIONS = {
    "add": ("u32", "s32", "u64"),
    "min": ("u32", "s32"),
    "max": ("u32", "s32"),
    "inc": ("u32",),
    "dec": ("u32",),
    "and": ("b32",),
    "or": ("b32",),
    "xor": ("b32",),
}


@dataclass
class _Form:
    """What is left of an instruction when its hints are taken away."""

    rest: tuple[str, ...]
    operands: list[Operand]
    multicast: str  # C++ of an rt::Multicast


def bulk(context: FunctionContext, instruction: Instruction) -> str | None:
    """``cp.async.bulk...``; the modifiers begin with ``async``, ``bulk``."""
    modifiers = instruction.modifiers[2:]
    if modifiers == ("commit_group",) and not instruction.operands:
        return "rt::bulk_commit(t);"
    if modifiers in (("wait_group",), ("wait_group", "read")) and len(instruction.operands) == 1:
        only_reads = "true" if modifiers[1:] else "false"
        return f"rt::bulk_wait(t, {context.access.read(instruction.operands[0], 'u32')}, {only_reads});"
    form = _form(context, instruction, modifiers)
    if form is None or instruction.types:
        return None
    if "tensor" in form.rest:
        return _tensor(context, form, "none")
    return _linear(context, form)


def reduce_bulk(context: FunctionContext, instruction: Instruction) -> str | None:
    """``cp.reduce.async.bulk...``; the modifiers begin with ``reduce``, ``async``, ``bulk``."""
    form = _form(context, instruction, instruction.modifiers[3:])
    if form is None or form.multicast != _EVERYONE:
        return None
    operation = [m for m in form.rest if m in REDUCTIONS]
    if len(operation) != 1:
        return None
    form.rest = tuple(m for m in form.rest if m not in REDUCTIONS)
    if "tensor" in form.rest:
        return None if instruction.types else _tensor(context, form, REDUCTIONS[operation[0]])
    return _linear_reduction(context, instruction, form, operation[0])


_EVERYONE = "rt::Multicast{false, 0}"


def _form(context: FunctionContext, instruction: Instruction, modifiers: tuple[str, ...]) -> _Form | None:
    """Takes the cache policy and the multicast mask off the end of the operands."""
    operands = list(instruction.operands)
    if _HINT in modifiers and (not operands or isinstance(operands.pop(), Memory)):
        return None
    multicast = _EVERYONE
    if _MULTICAST in modifiers:
        mask = operands.pop() if operands else None
        if mask is None or isinstance(mask, Memory):
            return None
        multicast = f"rt::Multicast{{true, {context.access.read(mask, 'u16')}}}"
    rest = tuple(m for m in modifiers if m not in (_HINT, _MULTICAST))
    return _Form(rest, operands, multicast)


def _memory(operand: Operand, coordinates: bool = False) -> Memory:
    if not isinstance(operand, Memory) or bool(operand.coordinates) != coordinates:
        raise Unsupported("address")
    return operand


def _linear(context: FunctionContext, form: _Form) -> str | None:
    operands = form.operands
    size = context.access.read(operands[-2 if _SIGNAL in form.rest else -1], "u32") if operands else ""
    match form.rest:
        case ("shared::cluster" | "shared::cta", "global", signal) if (
            signal == _SIGNAL and len(operands) == 4
        ):
            to, source, barrier = (_memory(operands[i]) for i in (0, 1, 3))
            return (
                f"rt::bulk_load(t, {window_address(context, to)}, {byte_address(context, source)}, {size}, "
                f"{window_address(context, barrier)}, {form.multicast}, {context.site});"
            )
        case ("shared::cluster", "shared::cta", signal) if signal == _SIGNAL and len(operands) == 4:
            return None if form.multicast != _EVERYONE else _send(context, operands, size, "none", "u32")
        case ("global", "shared::cta", "bulk_group") if len(operands) == 3:
            return None if form.multicast != _EVERYONE else _store(context, operands, size, "none", "u32")
        case ("prefetch", "L2", "global") if len(operands) == 2 and form.multicast == _EVERYONE:
            address = byte_address(context, _memory(operands[0]))
            return f"rt::bulk_prefetch(t, {address}, {size}, {context.site});"
    return None


def _send(context: FunctionContext, operands: list[Operand], size: str, reduction: str, number: str) -> str:
    to, source, barrier = (window_address(context, _memory(operands[i])) for i in (0, 1, 3))
    return (
        f"rt::bulk_send(t, {to}, {source}, {size}, {barrier}, "
        f"rt::Reduction::{reduction}, rt::Number::{number}, {context.site});"
    )


def _store(context: FunctionContext, operands: list[Operand], size: str, reduction: str, number: str) -> str:
    to, source = byte_address(context, _memory(operands[0])), window_address(context, _memory(operands[1]))
    return (
        f"rt::bulk_store(t, {to}, {source}, {size}, "
        f"rt::Reduction::{reduction}, rt::Number::{number}, {context.site});"
    )


def _linear_reduction(
    context: FunctionContext, instruction: Instruction, form: _Form, operation: str
) -> str | None:
    if len(instruction.types) != 1:
        return None
    type_ = instruction.types[0]
    number = type_.replace("b", "u") if type_ in ("b32", "b64") else type_
    rest = tuple(m for m in form.rest if m != "noftz")
    if ("noftz" in form.rest) != (type_ in ("f16", "bf16") and operation == "add"):
        return None
    operands, reduction = form.operands, REDUCTIONS[operation]
    if rest == ("global", "shared::cta", "bulk_group") and len(operands) == 3:
        if type_ not in _GLOBAL_REDUCTIONS[operation]:
            return None
        return _store(context, operands, context.access.read(operands[2], "u32"), reduction, number)
    if rest == ("shared::cluster", "shared::cta", _SIGNAL) and len(operands) == 4:
        if type_ not in _SHARED_REDUCTIONS[operation]:
            return None
        return _send(context, operands, context.access.read(operands[2], "u32"), reduction, number)
    return None


_RANK = re.compile(r"[1-5]d")


def _tensor(context: FunctionContext, form: _Form, reduction: str) -> str | None:
    """Tile mode only: im2col has operands of its own."""
    rest = tuple(m for m in form.rest if m not in ("tile", "cta_group::1"))
    operands = form.operands
    if rest[:1] == ("prefetch",) and _shape(rest[1:]) and rest[3:] == ("L2", "global"):
        if len(operands) != 1 or form.multicast != _EVERYONE or reduction != "none":
            return None
        tensor = _map(context, operands[0], int(rest[2][0]))
        return f"rt::bulk_tensor_prefetch(t, {tensor}, {context.site});"
    if not _shape(rest):
        return None
    rank, way = int(rest[1][0]), rest[2:]
    loads = (("shared::cluster", "global", _SIGNAL), ("shared::cta", "global", _SIGNAL))
    if way in loads and len(operands) == 3 and reduction == "none":
        to, barrier = (window_address(context, _memory(operands[i])) for i in (0, 2))
        return (
            f"rt::bulk_tensor_load(t, {to}, {_map(context, operands[1], rank)}, {barrier}, "
            f"{form.multicast}, {context.site});"
        )
    if way == ("global", "shared::cta", "bulk_group") and len(operands) == 2 and form.multicast == _EVERYONE:
        source = window_address(context, _memory(operands[1]))
        return (
            f"rt::bulk_tensor_store(t, {_map(context, operands[0], rank)}, {source}, "
            f"rt::Reduction::{reduction}, {context.site});"
        )
    return None


def _shape(modifiers: tuple[str, ...]) -> bool:
    return modifiers[:1] == ("tensor",) and len(modifiers) > 1 and _RANK.fullmatch(modifiers[1]) is not None


def _map(context: FunctionContext, operand: Operand, rank: int) -> str:
    """``address, coordinates`` as arguments. Raises Unsupported."""
    memory = _memory(operand, coordinates=True)
    if len(memory.coordinates) != rank:
        raise Unsupported("number of coordinates")
    values = ", ".join(context.access.read(c, "s32") for c in memory.coordinates)
    return f"{byte_address(context, memory)}, rt::Coordinates{{{rank}, {{{values}}}}}"
