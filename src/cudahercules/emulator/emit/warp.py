"""Instructions that involve other threads, and the waiting ones."""

from __future__ import annotations

import re

from cudahercules.emulator.emit.access import Unsupported
from cudahercules.emulator.emit.context import FunctionContext
from cudahercules.emulator.ptx.ir import Instruction, Operand, Pair, Sink


def _pair(operand: Operand) -> tuple[Operand, Operand]:
    return (operand.first, operand.second) if isinstance(operand, Pair) else (operand, Sink())


def _together(context: FunctionContext, mask: Operand, function: str) -> str:
    return f"rt::together(t, {context.access.read(mask, 'b32')}, rt::{function}, &_l, {context.site});"


def shuffle(context: FunctionContext, instruction: Instruction) -> str | None:
    if instruction.types != ("b32",) or instruction.modifiers[:1] != ("sync",):
        return None
    mode = instruction.modifiers[1:]
    if mode not in (("up",), ("down",), ("bfly",), ("idx",)) or len(instruction.operands) != 5:
        return None
    target, a, b, c, mask = instruction.operands
    value, predicate = _pair(target)
    read, write = context.access.read, context.access.write
    return " ".join(
        (
            f"rt::Shuffle _l = {{{read(a, 'b32')}, {read(b, 'b32')}, {read(c, 'b32')}}};",
            _together(context, mask, f"shuffle_{mode[0]}"),
            write(value, "b32", "_l.d"),
            write(predicate, "pred", "_l.p"),
        )
    )


def vote(context: FunctionContext, instruction: Instruction) -> str | None:
    modes = set(instruction.modifiers)
    if "sync" not in modes or len(modes) != 2 or len(instruction.operands) != 3:
        return None
    (mode,) = modes - {"sync"}
    target, source, mask = instruction.operands
    type_ = "b32" if mode == "ballot" else "pred"
    if mode not in ("all", "any", "uni", "ballot") or instruction.types != (type_,):
        return None
    return " ".join(
        (
            f"rt::Vote _l = {{0, {context.access.read(source, 'pred')}}};",
            _together(context, mask, f"vote_{mode}"),
            context.access.write(target, type_, "_l.d" if type_ == "b32" else "_l.d != 0"),
        )
    )


def match(context: FunctionContext, instruction: Instruction) -> str | None:
    modes = set(instruction.modifiers)
    if "sync" not in modes or len(modes) != 2 or instruction.types not in (("b32",), ("b64",)):
        return None
    (mode,) = modes - {"sync"}
    target, source, mask = instruction.operands
    value, predicate = _pair(target)
    if mode not in ("any", "all") or (mode == "any" and isinstance(target, Pair)):
        return None
    return " ".join(
        (
            f"rt::Match _l = {{{context.access.read(source, instruction.types[0])}}};",
            _together(context, mask, f"match_{mode}"),
            context.access.write(value, "b32", "_l.d"),
            context.access.write(predicate, "pred", "_l.p"),
        )
    )


def _redux_function(instruction: Instruction) -> str | None:
    if instruction.modifiers[:1] != ("sync",) or len(instruction.types) != 1:
        return None
    operation, *rest = instruction.modifiers[1:] or ("",)
    type_ = instruction.types[0]
    if operation in ("and", "or", "xor") and type_ == "b32" and not rest:
        return f"redux_{operation}"
    if operation == "add" and type_ in ("u32", "s32") and not rest:
        return "redux_add"
    if operation in ("min", "max") and type_ in ("u32", "s32") and not rest:
        return f"redux_{operation}_{type_}"
    if operation in ("min", "max") and type_ == "f32" and rest in ([], ["abs"], ["NaN"], ["abs", "NaN"]):
        return "_".join(("redux", operation, *(r.lower() for r in rest), "f32"))
    return None


def redux(context: FunctionContext, instruction: Instruction) -> str | None:
    function = _redux_function(instruction)
    if function is None:
        return None
    target, source, mask = instruction.operands
    return " ".join(
        (
            f"rt::Reduce _l = {{{context.access.read(source, 'b32')}}};",
            _together(context, mask, function),
            context.access.write(target, "b32", "_l.d"),
        )
    )


def elect(context: FunctionContext, instruction: Instruction) -> str | None:
    if instruction.name != "elect.sync" or len(instruction.operands) != 2:
        return None
    value, predicate = _pair(instruction.operands[0])
    return " ".join(
        (
            "rt::Match _l = {0};",
            _together(context, instruction.operands[1], "elect"),
            context.access.write(value, "b32", "_l.d"),
            context.access.write(predicate, "pred", "_l.p"),
        )
    )


def activemask(context: FunctionContext, instruction: Instruction) -> str | None:
    if instruction.name != "activemask.b32":
        return None
    return context.access.write(instruction.operands[0], "b32", f"rt::activemask(t, {context.site})")


def barrier(context: FunctionContext, instruction: Instruction) -> str | None:
    """``bar`` is the aligned form of ``barrier``."""
    modifiers = [m for m in instruction.modifiers if m != "cta"]
    aligned = instruction.opcode == "bar" or "aligned" in modifiers
    modifiers = [m for m in modifiers if m != "aligned"]
    operands = instruction.operands
    read = context.access.read
    if modifiers == ["warp", "sync"] and instruction.opcode == "bar" and not instruction.types:
        return f"char _l; {_together(context, operands[0], 'warp_sync')}"
    flag = "true" if aligned else "false"
    if modifiers in (["sync"], ["arrive"]) and not instruction.types and 1 <= len(operands) <= 2:
        count = read(operands[1], "u32") if len(operands) == 2 else "0"
        join = f"rt::Join::{modifiers[0]}"
        return f"rt::barrier(t, {read(operands[0], 'u32')}, {count}, {join}, false, {flag}, {context.site});"
    if len(modifiers) == 2 and modifiers[0] == "red" and 3 <= len(operands) <= 4:
        kind = {("popc", "u32"): "popc", ("and", "pred"): "all", ("or", "pred"): "any"}.get(
            (modifiers[1], ".".join(instruction.types))
        )
        if kind is None:
            return None
        count = read(operands[2], "u32") if len(operands) == 4 else "0"
        call = (
            f"rt::barrier(t, {read(operands[1], 'u32')}, {count}, rt::Join::{kind}, "
            f"{read(operands[-1], 'pred')}, {flag}, {context.site})"
        )
        type_ = instruction.types[0]
        return context.access.write(operands[0], type_, call if type_ == "u32" else f"{call} != 0")
    return None


_SCOPE = r"\.(cta|cluster|gpu|sys)"
_FENCE = re.compile(
    rf"((sc|acq_rel|acquire|release){_SCOPE}|cta|gl|sys"
    r"|mbarrier_init\.release\.cluster"
    r"|acquire\.sync_restrict::shared::cluster\.cluster|release\.sync_restrict::shared::cta\.cluster"
    r"|proxy\.alias|proxy\.async(\.(global|shared::cta|shared::cluster|shared))?"
    r"|proxy\.async::generic\.acquire\.sync_restrict::shared::cluster\.cluster"
    r"|proxy\.async::generic\.release\.sync_restrict::shared::cta\.cluster"
    rf"|proxy\.tensormap::generic\.(acquire|release){_SCOPE})"
)

_SHARED_PROXY = re.compile(r"proxy\.async(\.shared.*)?|proxy\.async::generic\..*")
"""Fences that order ordinary accesses to shared memory and those of asynchronous work."""


def fence(context: FunctionContext, instruction: Instruction) -> str | None:
    modifiers = ".".join(instruction.modifiers)
    if instruction.types or not _FENCE.fullmatch(modifiers):
        return None
    if len(instruction.operands) != (2 if modifiers.startswith("proxy.tensormap::generic.acquire") else 0):
        return None
    told = "rt::watch::proxy_fence(t); " if _SHARED_PROXY.fullmatch(modifiers) else ""
    return f"{told}__atomic_thread_fence(__ATOMIC_SEQ_CST); rt::burn(t, rt::fence_fuel, {context.site});"


def nanosleep(context: FunctionContext, instruction: Instruction) -> str | None:
    if instruction.name != "nanosleep.u32":
        return None
    return f"rt::sleep(t, {context.site});"


def no_effect(context: FunctionContext, instruction: Instruction) -> str | None:
    """Launches run in issue order, and registers are not a resource here."""
    known = ("griddepcontrol.wait", "griddepcontrol.launch_dependents")
    if instruction.name in known or instruction.name in (
        "setmaxnreg.inc.sync.aligned.u32",
        "setmaxnreg.dec.sync.aligned.u32",
    ):
        return ";"
    raise Unsupported(instruction.name)
