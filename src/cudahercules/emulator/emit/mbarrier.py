"""``mbarrier``: arrivals, transaction counts and waits on objects in shared memory of the cluster."""

from __future__ import annotations

from cudahercules.emulator.emit.context import FunctionContext
from cudahercules.emulator.emit.memory import ATOMIC, QUIET, pointer
from cudahercules.emulator.ptx.ir import Instruction, Memory, Operand, Sink

_ORDER = frozenset(("release", "acquire", "relaxed", "cta", "cluster"))
_SPACES = {"shared": "shared", "shared::cta": "shared", "shared::cluster": "cluster"}


def mbarrier(context: FunctionContext, instruction: Instruction) -> str | None:
    if instruction.types != ("b64",) and instruction.modifiers[:1] != ("pending_count",):
        return None
    spaces = [_SPACES[m] for m in instruction.modifiers if m in _SPACES]
    rest = tuple(m for m in instruction.modifiers if m not in _ORDER and m not in _SPACES)
    if len(spaces) > 1:
        return None
    space = spaces[0] if spaces else ""
    operands = list(instruction.operands)
    match rest:
        case ("pending_count",) if len(operands) == 2 and instruction.types in ((), ("b64",)):
            count = f"rt::mbarrier_missing({context.access.read(operands[1], 'b64')})"
            return context.access.write(operands[0], "u32", count)
        case ("init",) | ("inval",) if space != "cluster":
            return _one_way(context, rest[0], operands, space)
        case ("expect_tx",) | ("complete_tx",):
            return _one_way(context, rest[0], operands, space)
        case ("arrive" | "arrive_drop", *how) if how in ([], ["expect_tx"], ["noComplete"]):
            return _arrive(context, rest[0] == "arrive_drop", how, operands, space)
        case ("test_wait" | "try_wait", *how) if how in ([], ["parity"]) and space != "cluster":
            return _wait(context, rest[0], how, operands, space)
    return None


def _at(context: FunctionContext, operand: Operand, space: str) -> str:
    return f"uint8_t* const _p = {pointer(context, operand, 8, space, ATOMIC + QUIET)};"


def _one_way(context: FunctionContext, name: str, operands: list[Operand], space: str) -> str | None:
    if len(operands) != (1 if name == "inval" else 2):
        return None
    at, site = _at(context, operands[0], space), context.site
    if name == "inval":
        return f"{at} rt::mbarrier_inval(t, _p, {site});"
    function = {"init": "init", "expect_tx": "expect", "complete_tx": "complete"}[name]
    return f"{at} rt::mbarrier_{function}(t, _p, {context.access.read(operands[1], 'u32')}, {site});"


def _arrive(
    context: FunctionContext, drop: bool, how: list[str], operands: list[Operand], space: str
) -> str | None:
    target: Operand = Sink() if isinstance(operands[0], Memory) else operands.pop(0)
    # Another block's state is nobody's business, and these two always say how many.
    if not (2 if how else 1) <= len(operands) <= 2 or (space == "cluster" and not isinstance(target, Sink)):
        return None
    number = context.access.read(operands[1], "u32") if len(operands) == 2 else "1u"
    lines = [_at(context, operands[0], space)]
    if how == ["expect_tx"]:
        lines.append(f"rt::mbarrier_expect(t, _p, {number}, {context.site});")
        number = "1u"
    flags = f"{'true' if drop else 'false'}, {'true' if how == ['noComplete'] else 'false'}"
    lines.append(f"const uint64_t _s = rt::mbarrier_arrive(t, _p, {number}, {flags}, {context.site});")
    lines.append(context.access.write(target, "b64", "_s"))
    return " ".join(lines)


def _wait(
    context: FunctionContext, name: str, how: list[str], operands: list[Operand], space: str
) -> str | None:
    """The hint how long ``try_wait`` may sleep is not used: it sleeps as long as others can run."""
    if len(operands) not in (3, 4) or (len(operands) == 4 and name != "try_wait"):
        return None
    if how == ["parity"]:
        phase = f"({context.access.read(operands[2], 'u32')} & 1u) != 0"
    else:
        phase = f"{context.access.read(operands[2], 'b64')} >> 63 != 0"
    return " ".join(
        (
            _at(context, operands[1], space),
            f"const bool _d = rt::mbarrier_wait(t, _p, {phase}, {context.site});",
            context.access.write(operands[0], "pred", "_d"),
        )
    )
