"""``cp.async`` without bulk: each thread's copies from global to shared memory, and its waits."""

from __future__ import annotations

from cudahercules.emulator.emit.context import FunctionContext
from cudahercules.emulator.emit.memory import ATOMIC, QUIET, READ, WRITE, byte_address, pointer
from cudahercules.emulator.ptx.ir import Immediate, Instruction, Memory, Negated, Operand, Register

_LEVELS = frozenset(("L2::cache_hint", "L2::64B", "L2::128B", "L2::256B"))


def copy(context: FunctionContext, instruction: Instruction) -> str | None:
    modifiers = instruction.modifiers
    if modifiers[:1] != ("async",):
        return None
    if instruction.name == "cp.async.commit_group":
        return "rt::async_commit(t);"
    if instruction.name == "cp.async.wait_all":
        return "rt::async_wait_all(t);"
    if instruction.name == "cp.async.wait_group" and len(instruction.operands) == 1:
        return f"rt::async_wait(t, {context.access.read(instruction.operands[0], 'u32')});"
    if modifiers[1:3] == ("mbarrier", "arrive"):
        return _arrive(context, instruction)
    rest = tuple(m for m in modifiers[1:] if m not in _LEVELS)
    spaces = (("shared", "global"), ("shared::cta", "global"))
    if instruction.types or rest[:1] not in (("ca",), ("cg",)) or rest[1:] not in spaces:
        return None
    operands = list(instruction.operands)
    if "L2::cache_hint" in modifiers:
        operands.pop()
    return _copy(context, operands, only_16=rest[0] == "cg")


def _copy(context: FunctionContext, operands: list[Operand], only_16: bool) -> str | None:
    size = operands[2] if len(operands) in (3, 4) else None
    if not isinstance(size, Immediate) or size.value not in ((16,) if only_16 else (4, 8, 16)):
        return None
    source = operands[1]
    if not isinstance(source, Memory):
        return None
    n = size.value
    whole = f"(const uint8_t*){pointer(context, source, n, 'global', READ)}"
    lines = [f"uint8_t* const _d = {pointer(context, operands[0], n, 'shared', WRITE + QUIET)};"]
    if len(operands) == 3:
        return f"{lines[0]} rt::async_copy(t, _d, {whole}, {n}, {n}, {context.site});"
    lines.append(f"uint32_t _n = {_source_bytes(context, operands[3], n)}; if (_n > {n}) _n = {n};")
    part = f"rt::async_source(t, {byte_address(context, source)}, _n, {context.site})"
    lines.append(f"rt::async_copy(t, _d, _n == {n} ? {whole} : {part}, {n}, _n, {context.site});")
    return " ".join(lines)


def _source_bytes(context: FunctionContext, operand: Operand, size: int) -> str:
    """A number of bytes to read, or a predicate that says to read none."""
    is_predicate = isinstance(operand, Negated) or (isinstance(operand, Register) and operand.type == "pred")
    if is_predicate:
        return f"{context.access.read(operand, 'pred')} ? 0 : {size}"
    return context.access.read(operand, "u32")


def _arrive(context: FunctionContext, instruction: Instruction) -> str | None:
    """The arrival comes when the thread's copies so far are done.

    Without ``.noinc`` the count of missing arrivals is raised first, so that it does not change.
    """
    rest = [m for m in instruction.modifiers[3:] if m not in ("shared", "shared::cta")]
    if instruction.types != ("b64",) or rest not in ([], ["noinc"]) or len(instruction.operands) != 1:
        return None
    at = pointer(context, instruction.operands[0], 8, "shared", ATOMIC + QUIET)
    count_first = "false" if rest else "true"
    return f"rt::async_arrive(t, {at}, {count_first}, {context.site});"
