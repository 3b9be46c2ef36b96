"""``atom`` and ``red``."""

from __future__ import annotations

from cudahercules.emulator.emit.access import c_type
from cudahercules.emulator.emit.context import FunctionContext
from cudahercules.emulator.emit.memory import ATOMIC, pointer, where
from cudahercules.emulator.ptx.ir import Instruction, Operand, Vector, bits

_INTEGER_OPS = {
    "add": ("u32", "s32", "u64", "s64"),
    "and": ("b32", "b64"),
    "or": ("b32", "b64"),
    "xor": ("b32", "b64"),
    "exch": ("b32", "b64", "b128"),
    "cas": ("b16", "b32", "b64", "b128"),
    "inc": ("u32",),
    "dec": ("u32",),
    "min": ("u32", "s32", "u64", "s64"),
    "max": ("u32", "s32", "u64", "s64"),
}
_HALVES = {"f16": "Half", "bf16": "Brain", "f16x2": "Half", "bf16x2": "Brain"}


def atomic(context: FunctionContext, instruction: Instruction) -> str | None:
    place = where(instruction)
    reduction = instruction.opcode == "red"
    if place.space not in ("", "global", "shared", "cluster") or len(instruction.types) != 1:
        return None
    type_ = instruction.types[0]
    rest = tuple(m for m in place.rest if m != "noftz")
    noftz = len(rest) != len(place.rest)
    if len(rest) != 1:
        return None
    operation = rest[0]
    function = _function(operation, type_, place.space, noftz)
    arguments = 2 if operation == "cas" else 1
    first = 0 if reduction else 1
    if function is None or len(instruction.operands) != first + 1 + arguments + place.hint:
        return None
    if reduction and operation in ("cas", "exch"):
        return None
    if place.vector > 1 and (place.space != "global" or operation == "cas" or type_ not in (*_HALVES, "f32")):
        return None
    size = bits(type_) // 8
    values = instruction.operands[first + 1 : first + 1 + arguments]
    at = pointer(context, instruction.operands[first], size * place.vector, place.space, ATOMIC)
    lines = [f"uint8_t* const _p = {at};"]
    ctype = c_type(type_)
    for i in range(place.vector):
        inputs = ", ".join(context.access.read(_element(v, i, place.vector), type_) for v in values)
        lines.append(f"const {ctype} _o{i} = {function}(_p + {i * size}, {inputs});")
    if not reduction:
        for i in range(place.vector):
            target = _element(instruction.operands[0], i, place.vector)
            lines.append(context.access.write(target, type_, f"_o{i}"))
    lines.append(f"rt::burn(t, rt::atomic_fuel, {context.site});")
    return " ".join(lines)


def _element(operand: Operand, index: int, count: int) -> Operand:
    if count > 1 and isinstance(operand, Vector) and len(operand.elements) == count:
        return operand.elements[index]
    return operand


def _function(operation: str, type_: str, space: str, noftz: bool) -> str | None:
    near = space in ("shared", "cluster")
    locked = "false" if near else "true"
    if type_ in _HALVES:
        if not noftz or operation not in ("add", "min", "max"):
            return None
        kind = "atomic_half2" if type_.endswith("x2") else "atomic_half"
        return f"rt::{kind}<{locked}, ptx::{_HALVES[type_]}, rt::HalfOp::{operation}>"
    if noftz:
        return None
    if (operation, type_) == ("add", "f32"):
        return f"rt::atomic_add_f32<{locked}, {'false' if near else 'true'}>"
    if (operation, type_) == ("add", "f64"):
        return f"rt::atomic_add_f64<{locked}>"
    if type_ in _INTEGER_OPS.get(operation, ()):
        return f"rt::atomic_{operation}<{locked}, {c_type(type_)}>"
    return None
