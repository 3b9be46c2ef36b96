"""``mbarrier``: arrivals and waits on objects in the block's own shared memory."""

from __future__ import annotations

from cudahercules.emulator.emit.context import FunctionContext
from cudahercules.emulator.emit.memory import ATOMIC, pointer
from cudahercules.emulator.ptx.ir import Instruction, Memory, Operand, Sink

_ORDER = frozenset(("release", "acquire", "relaxed", "cta"))
_SPACES = frozenset(("shared", "shared::cta"))


def mbarrier(context: FunctionContext, instruction: Instruction) -> str | None:
    if instruction.types != ("b64",) or not instruction.modifiers:
        return None
    rest = [m for m in instruction.modifiers if m not in _ORDER and m not in _SPACES]
    if len(rest) == len(instruction.modifiers) and rest[0] not in ("pending_count",):
        rest.append("generic")
    operands = list(instruction.operands)
    match tuple(rest[:2]):
        case ("pending_count",) if len(operands) == 2:
            count = f"rt::mbarrier_missing({context.access.read(operands[1], 'b64')})"
            return context.access.write(operands[0], "u32", count)
        case ("init",) | ("inval",) | ("expect_tx",) | ("complete_tx",):
            return _one_way(context, rest[0], operands)
        case ("arrive",) | ("arrive", "expect_tx") | ("arrive_drop",) | ("arrive", "noComplete"):
            return _arrive(context, rest, operands)
        case ("test_wait",) | ("try_wait",) | ("test_wait", "parity") | ("try_wait", "parity"):
            return _wait(context, rest, operands)
    return None


def _at(context: FunctionContext, operand: Operand) -> str:
    return f"uint8_t* const _p = {pointer(context, operand, 8, 'shared', ATOMIC)};"


def _one_way(context: FunctionContext, name: str, operands: list[Operand]) -> str | None:
    if name == "inval":
        return f"{_at(context, operands[0])} rt::store<uint64_t>(_p, 0);" if len(operands) == 1 else None
    if len(operands) != 2:
        return None
    function = {"init": "init", "expect_tx": "expect", "complete_tx": "complete"}[name]
    return (
        f"{_at(context, operands[0])} rt::mbarrier_{function}(_p, {context.access.read(operands[1], 'u32')});"
    )


def _arrive(context: FunctionContext, rest: list[str], operands: list[Operand]) -> str | None:
    target: Operand = Sink() if isinstance(operands[0], Memory) else operands.pop(0)
    if not 1 <= len(operands) <= 2:
        return None
    number = context.access.read(operands[1], "u32") if len(operands) == 2 else "1u"
    lines = [_at(context, operands[0])]
    if rest[1:] == ["expect_tx"]:
        lines.append(f"rt::mbarrier_expect(_p, {number});")
        number = "1u"
    drop = "true" if rest[0] == "arrive_drop" else "false"
    lines.append(f"const uint64_t _s = rt::mbarrier_arrive(_p, {number}, {drop});")
    lines.append(context.access.write(target, "b64", "_s"))
    return " ".join(lines)


def _wait(context: FunctionContext, rest: list[str], operands: list[Operand]) -> str | None:
    """A wait that fails lets other threads run: at once where it may sleep, else after some polls."""
    if len(operands) not in (3, 4) or (len(operands) == 4 and rest[0] != "try_wait"):
        return None
    if rest[1:] == ["parity"]:
        phase = f"({context.access.read(operands[2], 'u32')} & 1u) != 0"
    else:
        phase = f"{context.access.read(operands[2], 'b64')} >> 63 != 0"
    fuel = "rt::polling_fuel" if rest[0] == "try_wait" else "rt::strong_load_fuel"
    return " ".join(
        (
            _at(context, operands[1]),
            f"const bool _d = rt::mbarrier_done(_p, {phase});",
            context.access.write(operands[0], "pred", "_d"),
            f"if (!_d) rt::burn(t, {fuel}, {context.site});",
        )
    )
