"""``wgmma``: products of a warpgroup out of shared memory, and the waits for them."""

from __future__ import annotations

import re

from cudahercules.emulator.emit.access import Unsupported
from cudahercules.emulator.emit.context import FunctionContext
from cudahercules.emulator.emit.tensor import vector
from cudahercules.emulator.ptx.ir import Immediate, Instruction, Operand, Register, Vector

_FP8 = [(d, a, b) for d in ("f32", "f16") for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")]
_BYTES = [("s32", a, b) for a in ("s8", "u8") for b in ("s8", "u8")]
TYPES: dict[int, list[tuple[str, ...]]] = {
    16: [("f32", "f16", "f16"), ("f16", "f16", "f16"), ("f32", "bf16", "bf16")],
    8: [("f32", "tf32", "tf32")],
    32: [*_FP8, *_BYTES],
}
"""Types of D, A and B by k."""


def wgmma(context: FunctionContext, instruction: Instruction) -> str | None:
    if instruction.types == ():
        return _order(context, instruction)
    modifiers = list(instruction.modifiers)
    saturate = modifiers[-1:] == ["satfinite"]
    modifiers = modifiers[: len(modifiers) - saturate]
    if len(modifiers) != 4 or modifiers[:3] != ["mma_async", "sync", "aligned"]:
        return None
    shape = re.fullmatch(r"m64n(\d+)k(\d+)", modifiers[3])
    if shape is None:
        return None
    n, k = int(shape[1]), int(shape[2])
    types = instruction.types
    if types not in TYPES.get(k, ()) or not _is_width(n, types[0]) or (saturate and types[0] != "s32"):
        return None
    return _issue(context, instruction, n, types, saturate)


def _is_width(n: int, d: str) -> bool:
    """Multiples of 8 up to 256; with integers only those of 16 beyond 32, and 24."""
    return 8 <= n <= 256 and n % 8 == 0 and (d != "s32" or n in (8, 24) or n % 16 == 0)


def _order(context: FunctionContext, instruction: Instruction) -> str | None:
    operands = instruction.operands
    match instruction.name:
        case "wgmma.fence.sync.aligned" if not operands:
            return f"rt::wgmma_fence(t, {context.site});"
        case "wgmma.commit_group.sync.aligned" if not operands:
            return f"rt::wgmma_commit(t, {context.site});"
        case "wgmma.wait_group.sync.aligned" if len(operands) == 1:
            if isinstance(operands[0], Immediate) and 0 <= operands[0].value <= 7:
                return f"rt::wgmma_wait(t, {operands[0].value}, {context.site});"
    return None


def _issue(
    context: FunctionContext, instruction: Instruction, n: int, types: tuple[str, ...], saturate: bool
) -> str | None:
    target, a, b, keep, *constants = instruction.operands
    in_registers = isinstance(a, Vector)
    signs, transposes = _constants(types, constants, in_registers)
    index = _indices(context, target, n // (4 if types[0] == "f16" else 2))
    read = context.access.read
    if isinstance(a, Vector):
        descriptor = "0"
        values = ", ".join(read(element, "b32") for element in vector(a, 4))
    else:
        descriptor, values = read(a, "b64"), ""
    flags = (in_registers, *transposes, *(s == -1 for s in signs), saturate)
    form = ", ".join((str(n), *(f"rt::Format::{t}" for t in types), *(str(f).lower() for f in flags)))
    operands = f"{{{descriptor}, {read(b, 'b64')}, {read(keep, 'pred')}, {{{values}}}}}"
    return " ".join(
        (
            f"static const uint16_t _x[] = {{{', '.join(map(str, index))}}};",
            f"static const rt::WgmmaSite _s = {{{{{form}}}, _x}};",
            f"rt::wgmma_issue(t, ACC, _s, {operands}, {context.site});",
        )
    )


def _constants(
    types: tuple[str, ...], constants: list[Operand], a_in_registers: bool
) -> tuple[tuple[int, int], tuple[bool, bool]]:
    """The signs of A and B, and whether they lie transposed (MN-major)."""
    wanted = 0 if types[0] == "s32" else 2
    if types[1] in ("f16", "bf16"):
        wanted += 1 if a_in_registers else 2
    if len(constants) != wanted:
        raise Unsupported(f"{len(constants)} constants instead of {wanted}")
    numbers = [c.value if isinstance(c, Immediate) else None for c in constants]
    signs = tuple(numbers[:2]) or (1, 1)
    turned = numbers[2:]
    if a_in_registers or not turned:
        turned = [0, *turned]
    turned += [0] * (2 - len(turned))
    if any(s not in (1, -1) for s in signs) or any(t not in (0, 1) for t in turned):
        raise Unsupported("a constant that is not allowed")
    return signs, (turned[0] == 1, turned[1] == 1)  # type: ignore[return-value]


def _indices(context: FunctionContext, target: Operand, count: int) -> list[int]:
    """Which accumulators of the function the destination's registers are."""
    numbers = []
    for element in vector(target, count):
        if not isinstance(element, Register) or element.name not in context.accumulators:
            raise Unsupported("a destination that is no vector of 32-bit registers")
        numbers.append(context.accumulators[element.name])
    if len(set(numbers)) != count:
        raise Unsupported("a register twice in the destination")
    return numbers


def forms() -> list[str]:
    """What this module takes, for the page that lists it."""
    lines = [
        f"wgmma.mma_async.sync.aligned.m64nNk{k}{'{.satfinite}' if d == 's32' else ''}.{d}.{a}.{b}"
        for k, types in TYPES.items()
        for d, a, b in types
    ]
    return [*lines, "wgmma.fence|commit_group|wait_group.sync.aligned"]
