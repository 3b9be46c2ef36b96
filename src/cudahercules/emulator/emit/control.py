"""Moves, branches, calls and ends."""

from __future__ import annotations

from cudahercules.cache import digest
from cudahercules.emulator.emit.access import Unsupported, c_type
from cudahercules.emulator.emit.context import FunctionContext
from cudahercules.emulator.ptx.ir import (
    Function,
    Group,
    Instruction,
    Label,
    Operand,
    Register,
    Sink,
    Symbol,
    Variable,
    Vector,
    bits,
)


def move(context: FunctionContext, instruction: Instruction) -> str | None:
    """``mov``, with packing and unpacking of vectors."""
    if instruction.modifiers or len(instruction.types) != 1 or len(instruction.operands) != 2:
        return None
    type_ = instruction.types[0]
    target, source = instruction.operands
    if isinstance(source, Vector):
        return _pack(context, target, source, type_)
    if isinstance(target, Vector):
        return _unpack(context, target, source, type_)
    return context.access.write(target, type_, context.access.read(source, type_))


def _part(vector: Vector, type_: str) -> str:
    if not vector.elements:
        raise Unsupported("vector length")
    width, rest = divmod(bits(type_), len(vector.elements))
    if rest or width not in (8, 16, 32, 64):
        raise Unsupported("vector length")
    return f"b{width}"


def _pack(context: FunctionContext, target: Operand, source: Vector, type_: str) -> str:
    part = _part(source, type_)
    whole = c_type(f"b{bits(type_)}")
    pieces = [
        f"({whole}){context.access.read(e, part)} << {i * bits(part)}" for i, e in enumerate(source.elements)
    ]
    return context.access.write(target, f"b{bits(type_)}", f"({whole})({' | '.join(pieces)})")


def _unpack(context: FunctionContext, target: Vector, source: Operand, type_: str) -> str:
    part = _part(target, type_)
    whole = c_type(f"b{bits(type_)}")
    lines = [f"const {whole} _w = {context.access.read(source, f'b{bits(type_)}')};"]
    for i, element in enumerate(target.elements):
        if not isinstance(element, Sink):
            lines.append(context.access.write(element, part, f"({c_type(part)})(_w >> {i * bits(part)})"))
    return " ".join(lines)


def branch(
    context: FunctionContext, instruction: Instruction, seen: set[str], labels: set[str]
) -> str | None:
    """``seen`` are the labels above: a branch to one of them goes back and burns fuel."""
    if instruction.opcode == "brx":
        return _indexed(context, instruction, seen, labels)
    if instruction.types or instruction.modifiers not in ((), ("uni",)) or len(instruction.operands) != 1:
        return None
    (target,) = instruction.operands
    if not isinstance(target, Label) or target.name not in labels:
        return None
    if target.name in seen:
        return f"rt::burn(t, 1, {context.site}); goto {target.name};"
    return f"goto {target.name};"


def _indexed(
    context: FunctionContext, instruction: Instruction, seen: set[str], labels: set[str]
) -> str | None:
    if instruction.modifiers not in (("idx",), ("idx", "uni")) or len(instruction.operands) != 2:
        return None
    index, table = instruction.operands
    targets = context.function.tables.get(table.name) if isinstance(table, Label) else None
    if targets is None or not labels.issuperset(targets):
        return None
    value = context.access.read(index, "u32")
    cases = " ".join(f"case {i}: goto {label};" for i, label in enumerate(targets))
    burn = f"rt::burn(t, 1, {context.site});" if seen.intersection(targets) else ""
    return f"{burn} switch ({value}) {{ {cases} default: rt::fault_branch(t, {context.site}, {value}); }}"


def leave(context: FunctionContext, instruction: Instruction) -> str | None:
    if instruction.modifiers not in ((), ("uni",)) or instruction.operands:
        return None
    if instruction.opcode == "exit" and not context.function.is_kernel:
        return "rt::exit_thread(t);"
    return "t.local = F; return;"


def stop(context: FunctionContext, instruction: Instruction) -> str | None:
    return f"rt::fault_trap(t, {context.site});" if not instruction.modifiers else None


def stack(context: FunctionContext, instruction: Instruction) -> str | None:
    """``alloca``, ``stacksave`` and ``stackrestore``: the thread's local memory is a stack."""
    operands = instruction.operands
    if instruction.modifiers or instruction.types != ("u64",):
        return None
    if instruction.opcode == "stacksave" and len(operands) == 1:
        return context.access.write(operands[0], "u64", "(uint64_t)t.local")
    if instruction.opcode == "stackrestore" and len(operands) == 1:
        return f"rt::restore(t, {context.access.read(operands[0], 'u64')}, {context.site});"
    if instruction.opcode == "alloca" and len(operands) in (2, 3):
        size = context.access.read(operands[1], "u64")
        alignment = context.access.read(operands[2], "u64") if len(operands) == 3 else "16ull"
        call = f"rt::allocate(t, {size}, {alignment}, {context.site})"
        return context.access.write(operands[0], "u64", call)
    return None


def signature(returns: tuple[Variable, ...], parameters: tuple[Variable, ...]) -> str:
    """A number in C++ that tells functions with other parameter sizes apart."""
    text = f"{[v.size for v in returns]}{[v.size for v in parameters]}"
    return f"0x{digest(text)[:16]}ull"


def call(context: FunctionContext, instruction: Instruction) -> str | None:
    if instruction.modifiers not in ((), ("uni",)) or instruction.types:
        return None
    operands = list(instruction.operands)
    returns = _variables(context, operands.pop(0)) if isinstance(operands[0], Group) else ()
    target = operands.pop(0)
    arguments = _variables(context, operands.pop(0)) if operands and isinstance(operands[0], Group) else ()
    if isinstance(target, Register):
        return _call_pointer(context, target, returns, arguments)
    if not isinstance(target, Symbol) or target.offset:
        return None
    function = context.module.module.functions.get(target.name)
    if function is None:
        return None
    if function.body is None:
        return _call_system(context, target.name, returns, arguments)
    if signature(function.returns, function.parameters) != signature(returns, arguments):
        return None
    number = context.module.functions[target.name]
    return f"{_argument_array(context, returns, arguments)} f_{number}(t, _a);"


def _variables(context: FunctionContext, group: Operand) -> tuple[Variable, ...]:
    assert isinstance(group, Group)
    found = []
    for element in group.elements:
        if not isinstance(element, Symbol) or element.name not in context.local:
            raise Unsupported("call with arguments that are not parameter variables")
        found.append(context.function.variables[element.name])
    return tuple(found)


def _argument_array(
    context: FunctionContext, returns: tuple[Variable, ...], arguments: tuple[Variable, ...]
) -> str:
    pointers = ", ".join(f"F + {context.local[v.name]}" for v in (*returns, *arguments)) or "nullptr"
    return f"uint8_t* const _a[] = {{{pointers}}};"


def _call_pointer(
    context: FunctionContext,
    target: Register,
    returns: tuple[Variable, ...],
    arguments: tuple[Variable, ...],
) -> str:
    address = context.access.read(target, "u64")
    kind = signature(returns, arguments)
    return (
        f"{_argument_array(context, returns, arguments)} "
        f"rt::function_at(t, {address}, {kind}, {context.site})(t, _a);"
    )


def _call_system(
    context: FunctionContext, name: str, returns: tuple[Variable, ...], arguments: tuple[Variable, ...]
) -> str | None:
    def argument(index: int, type_: str) -> str:
        return f"rt::load<{type_}>(F + {context.local[arguments[index].name]})"

    if name == "vprintf" and [v.size for v in arguments] == [8, 8] and [v.size for v in returns] == [4]:
        result = f"rt::print(t, {argument(0, 'uint64_t')}, {argument(1, 'uint64_t')}, {context.site})"
        return f"rt::store<uint32_t>(F + {context.local[returns[0].name]}, {result});"
    if name == "__assertfail" and [v.size for v in arguments] == [8, 8, 4, 8, 8]:
        parts = ", ".join(
            (
                argument(0, "uint64_t"),
                argument(1, "uint64_t"),
                argument(2, "uint32_t"),
                argument(3, "uint64_t"),
            )
        )
        return f"rt::assertion_failed(t, {parts}, {context.site});"
    return None


def declared(function: Function, number: int) -> str:
    return f"static void f_{number}(rt::Thread& t, uint8_t* const* A);"
