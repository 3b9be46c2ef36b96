"""The registers that wgmma may be writing while the thread goes on, and how they are declared in C++."""

from __future__ import annotations

from cudahercules.emulator.ptx.ir import Function, Instruction, Register, Vector, bits


def accumulators(function: Function) -> dict[str, int]:
    """Names of the function's accumulators, numbered: destinations of its ``wgmma.mma_async`` and all
    32-bit registers that are moved to or from one of them (compilers copy accumulators before the wait)."""
    neighbours: dict[str, set[str]] = {}
    names: list[str] = []
    for item in function.body or ():
        if not isinstance(item, Instruction):
            continue
        if item.opcode == "wgmma" and item.operands and isinstance(item.operands[0], Vector):
            names += [e.name for e in item.operands[0].elements if isinstance(e, Register) and _is_word(e)]
        elif is_copy(item):
            target, source = (o.name for o in item.operands if isinstance(o, Register))
            neighbours.setdefault(target, set()).add(source)
            neighbours.setdefault(source, set()).add(target)
    found: dict[str, int] = {}
    while names:
        name = names.pop(0)
        if name not in found:
            found[name] = len(found)
            names += sorted(neighbours.get(name, ()))
    return found


def is_copy(instruction: Instruction) -> bool:
    """Whether ``instruction`` moves one 32-bit register to another."""
    return (
        instruction.opcode == "mov"
        and len(instruction.operands) == 2
        and all(_is_word(operand) for operand in instruction.operands)
    )


def _is_word(operand: object) -> bool:
    return isinstance(operand, Register) and not operand.selector and _width(operand.type) == 32


def _width(type_: str) -> int:
    return 0 if type_ == "pred" else bits(type_)


def declarations(names: dict[str, int], storage: dict[str, str]) -> list[str]:
    """C++ that declares them as parts of one array, each under its own name."""
    if not names:
        return []
    lines = [f"rt::AccumulatorArray<{len(names)}> ACC(t);"]
    for name, index in names.items():
        type_ = storage[name]
        lines.append(f"{type_}& {name} = reinterpret_cast<{type_}&>(ACC.values[{index}]);")
    return lines


def after_copy(names: dict[str, int], instruction: Instruction) -> str:
    """What must follow a ``mov`` between accumulators: the value may still be on its way."""
    if not names or not is_copy(instruction):
        return ""
    target, source = instruction.operands
    assert isinstance(target, Register) and isinstance(source, Register)
    if target.name not in names:
        return ""
    to, origin = names[target.name], names[source.name]
    return f" if (ACC.untils[{origin}] | ACC.untils[{to}]) rt::wgmma_moved(ACC, {to}, {origin});"


_ALL_READ = frozenset(("st", "red", "call", "bar", "barrier"))


def reads(names: dict[str, int], instruction: Instruction) -> list[int]:
    """The accumulators that ``instruction`` computes with, not those that it copies or multiplies into."""
    if not names or instruction.opcode == "wgmma" or is_copy(instruction):
        return []
    operands = instruction.operands if instruction.opcode in _ALL_READ else instruction.operands[1:]
    found: list[int] = []
    for operand in operands:
        elements = operand.elements if isinstance(operand, Vector) else (operand,)
        found += [names[e.name] for e in elements if isinstance(e, Register) and e.name in names]
    return sorted(set(found))
