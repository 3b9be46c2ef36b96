"""Mutations of one instruction: opcode, modifiers, types, operands, guard. Each takes a statement and gives
another, or None where it finds nothing to change."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from mutation_units import Statement, Unit, is_instruction, is_label
from mutation_words import NUMBERS, SPACES, SPECIALS, TYPES

Mutant = list[Statement]


class Pool:
    """What has been seen anywhere: opcodes, modifiers, instructions. ``generator`` decides everything."""

    def __init__(self, units: Sequence[Unit], generator: random.Random):
        self.random = generator
        self.instructions = [s for u in units for s in u.body if is_instruction(s)]
        names = [opcode_of(s)[1] for s in self.instructions]
        self.names = sorted(set(names))
        self.bases = sorted({n.split(".")[0] for n in names})
        self.modifiers = sorted({m for n in names for m in n.split(".")[1:]})

    def one(self, choices: Sequence[str]) -> str:
        return self.random.choice(choices)


def opcode_of(statement: Statement) -> tuple[int, str]:
    """Where the opcode stands, and the opcode."""
    position = 0
    if statement[0] == "@":
        position = 3 if statement[1] == "!" else 2
    return position, statement[min(position, len(statement) - 1)]


def operands_of(statement: Statement) -> list[Statement]:
    """The operands' tokens, without commas."""
    found: list[Statement] = []
    depth, operand = 0, []
    for token in statement[opcode_of(statement)[0] + 1 : -1]:
        depth += (token in "{[(") - (token in "}])")
        if token == "," and depth == 0:
            found.append(tuple(operand))
            operand = []
        else:
            operand.append(token)
    return [*found, tuple(operand)] if operand or found else found


def assembled(statement: Statement, operands: Sequence[Statement]) -> Statement:
    """``statement`` with other operands."""
    position, _ = opcode_of(statement)
    joined: list[str] = []
    for operand in operands:
        joined += [*operand, ","]
    return (*statement[: position + 1], *joined[:-1], ";")


def _with_name(statement: Statement, name: str) -> Statement:
    position, _ = opcode_of(statement)
    return (*statement[:position], name, *statement[position + 1 :])


def registers(mutant: Mutant) -> list[str]:
    return sorted({t for s in mutant if is_instruction(s) for t in s if t.startswith("%") and len(t) > 2})


def _opcode(s: Statement, pool: Pool, _m: Mutant) -> Statement | None:
    _, *rest = opcode_of(s)[1].split(".")
    return _with_name(s, ".".join((pool.one(pool.bases), *rest)))


def _whole_opcode(s: Statement, pool: Pool, _m: Mutant) -> Statement | None:
    return _with_name(s, pool.one(pool.names))


def _modifier_dropped(s: Statement, pool: Pool, _m: Mutant) -> Statement | None:
    parts = opcode_of(s)[1].split(".")
    if len(parts) < 2:
        return None
    del parts[pool.random.randrange(1, len(parts))]
    return _with_name(s, ".".join(parts))


def _modifier_added(s: Statement, pool: Pool, _m: Mutant) -> Statement | None:
    parts = opcode_of(s)[1].split(".")
    parts.insert(pool.random.randrange(1, len(parts) + 1), pool.one(pool.modifiers))
    return _with_name(s, ".".join(parts))


def _modifier_replaced(s: Statement, pool: Pool, _m: Mutant) -> Statement | None:
    parts = opcode_of(s)[1].split(".")
    if len(parts) < 2:
        return None
    parts[pool.random.randrange(1, len(parts))] = pool.one(pool.modifiers)
    return _with_name(s, ".".join(parts))


def _modifiers_shuffled(s: Statement, pool: Pool, _m: Mutant) -> Statement | None:
    base, *parts = opcode_of(s)[1].split(".")
    if len(parts) < 2:
        return None
    pool.random.shuffle(parts)
    return _with_name(s, ".".join((base, *parts)))


def _type(s: Statement, pool: Pool, _m: Mutant) -> Statement | None:
    parts = opcode_of(s)[1].split(".")
    typed = [i for i, p in enumerate(parts) if i and p in TYPES]
    if not typed:
        return None
    parts[pool.random.choice(typed)] = pool.one(TYPES)
    return _with_name(s, ".".join(parts))


def _space(s: Statement, pool: Pool, _m: Mutant) -> Statement | None:
    parts = opcode_of(s)[1].split(".")
    spaces = [i for i, p in enumerate(parts) if p in SPACES]
    if not spaces:
        return None
    parts[pool.random.choice(spaces)] = pool.one(SPACES)
    return _with_name(s, ".".join(parts))


def _vector_width(s: Statement, pool: Pool, _m: Mutant) -> Statement | None:
    widths = ("v2", "v4", "v8", "x1", "x2", "x4")
    parts = opcode_of(s)[1].split(".")
    found = [i for i, p in enumerate(parts) if p in widths]
    if found:
        parts[pool.random.choice(found)] = pool.one(widths)
    elif parts[0] in ("ld", "st", "ldmatrix", "atom", "red"):
        parts.insert(len(parts) - 1, pool.one(widths))
    else:
        return None
    return _with_name(s, ".".join(parts))


def _vector_elements(s: Statement, pool: Pool, _m: Mutant) -> Statement | None:
    operands = operands_of(s)
    vectors = [i for i, o in enumerate(operands) if o[:1] == ("{",)]
    if not vectors:
        return None
    at = pool.random.choice(vectors)
    elements = [t for t in operands[at] if t not in "{},"]
    match pool.random.randrange(4):
        case 0:
            elements = elements[:-1]
        case 1:
            elements += elements[:1]
        case 2:
            elements = elements * 2
        case _:
            elements = []
    joined = [token for e in elements for token in (e, ",")][:-1]
    operands[at] = ("{", *joined, "}")
    return assembled(s, operands)


def _register(s: Statement, pool: Pool, mutant: Mutant) -> Statement | None:
    found = [i for i, t in enumerate(s) if t.startswith("%")]
    others = registers(mutant)
    if not found or not others:
        return None
    at = pool.random.choice(found)
    return (*s[:at], pool.one(others), *s[at + 1 :])


def _register_replaced(s: Statement, pool: Pool, _m: Mutant) -> Statement | None:
    found = [i for i, t in enumerate(s) if t.startswith("%")]
    if not found:
        return None
    at = pool.random.choice(found)
    other = pool.one((*SPECIALS, *NUMBERS, "%undeclared", "%r99999", "_", "nosuch", "-"))
    return (*s[:at], other, *s[at + 1 :])


def _immediate(s: Statement, pool: Pool, _m: Mutant) -> Statement | None:
    found = [i for i, t in enumerate(s) if t[0].isdigit()]
    if not found:
        return None
    at = pool.random.choice(found)
    return (*s[:at], pool.one(NUMBERS), *s[at + 1 :])


def _immediate_to_register(s: Statement, pool: Pool, mutant: Mutant) -> Statement | None:
    found = [i for i, t in enumerate(s) if t[0].isdigit()]
    others = registers(mutant)
    if not found or not others:
        return None
    at = pool.random.choice(found)
    return (*s[:at], pool.one(others), *s[at + 1 :])


def _address(s: Statement, pool: Pool, mutant: Mutant) -> Statement | None:
    operands = operands_of(s)
    found = [i for i, o in enumerate(operands) if o[:1] == ("[",)]
    if not found:
        return None
    at = pool.random.choice(found)
    base = operands[at][1] if len(operands[at]) > 2 else "0"
    names = [t for m in mutant for t in m if t[0] in "_$" or t[0].isalpha()]
    choice = pool.random.randrange(5)
    if choice == 0:
        operands[at] = ("[", base, "+", pool.one(NUMBERS), "]")
    elif choice == 1:
        operands[at] = ("[", pool.one(NUMBERS), "]")
    elif choice == 2:
        operands[at] = ("[", pool.one(names), "+", pool.one(NUMBERS), "]")
    elif choice == 3:
        operands[at] = ("[", base, ",", "{", *pool.one(NUMBERS).split(), "}", "]")
    else:
        operands[at] = ("[", pool.one(SPECIALS), "]")
    return assembled(s, operands)


def _operand_dropped(s: Statement, pool: Pool, _m: Mutant) -> Statement | None:
    operands = operands_of(s)
    if not operands:
        return None
    del operands[pool.random.randrange(len(operands))]
    return assembled(s, operands)


def _operand_added(s: Statement, pool: Pool, mutant: Mutant) -> Statement | None:
    operands = operands_of(s)
    others = operands + operands_of(pool.random.choice(pool.instructions)) + [("0",)]
    operands.insert(pool.random.randrange(len(operands) + 1), pool.random.choice(others))
    return assembled(s, operands)


def _operands_swapped(s: Statement, pool: Pool, _m: Mutant) -> Statement | None:
    operands = operands_of(s)
    if len(operands) < 2:
        return None
    pool.random.shuffle(operands)
    return assembled(s, operands)


def _operand_form(s: Statement, pool: Pool, mutant: Mutant) -> Statement | None:
    """The same operand as an address, a vector, a group, a pair, negated, or as another instruction's."""
    operands = operands_of(s)
    if not operands:
        return None
    at = pool.random.randrange(len(operands))
    o = operands[at]
    others = [x for x in operands_of(pool.random.choice(pool.instructions)) if x] or [("_",)]
    wrapped = [("[", *o, "]"), ("{", *o, "}"), ("{", *o, ",", *o, "}"), ("(", *o, ")"), (*o, "|", *o)]
    marked = [("!", *o), ("-", *o), (*o, "+", "8"), o[:1], ("_",), ("{", "}"), ("(", ")")]
    operands[at] = pool.random.choice([*wrapped, *marked, pool.random.choice(others)])
    return assembled(s, operands)


def _guard(s: Statement, pool: Pool, mutant: Mutant) -> Statement | None:
    position, _ = opcode_of(s)
    others = registers(mutant) or ["%p1"]
    if pool.random.random() < 0.7:
        others = [r for r in others if r.startswith("%p")] or others
    other = pool.one(others)
    wrong: list[Statement] = [("@",), ("@", "1"), ("@", "!", "!", other), ("@", "%tid.x")]
    guards: list[Statement] = [(), ("@", other), ("@", "!", other), pool.random.choice(wrong)]
    return (*pool.random.choice(guards), *s[position:])


def _label(s: Statement, pool: Pool, mutant: Mutant) -> Statement | None:
    if not any(t.split(".")[0] in ("bra", "brx", "call") for t in s):
        return None
    labels = [m[0] for m in mutant if is_label(m)]
    names = [t for m in mutant if any(x in (".func", ".entry", ".global") for x in m) for t in m]
    at = len(s) - 2
    return (*s[:at], pool.one((*labels, "$nowhere", "%r1", "0", *names)), *s[at + 1 :])


def _selector(s: Statement, pool: Pool, _m: Mutant) -> Statement | None:
    found = [i for i, t in enumerate(s) if t.startswith("%")]
    if not found:
        return None
    at = pool.random.choice(found)
    return (*s[:at], s[at] + pool.one((".b0", ".b3", ".h1", ".b10", ".b32", ".x", ".y")), *s[at + 1 :])


OneInstruction = Callable[[Statement, Pool, Mutant], Statement | None]
ON_INSTRUCTIONS: dict[str, OneInstruction] = {
    "opcode": _opcode,
    "whole opcode": _whole_opcode,
    "modifier dropped": _modifier_dropped,
    "modifier added": _modifier_added,
    "modifier replaced": _modifier_replaced,
    "modifiers shuffled": _modifiers_shuffled,
    "type": _type,
    "state space": _space,
    "vector width": _vector_width,
    "vector elements": _vector_elements,
    "register": _register,
    "register to something else": _register_replaced,
    "immediate": _immediate,
    "immediate to register": _immediate_to_register,
    "address": _address,
    "operand dropped": _operand_dropped,
    "operand added": _operand_added,
    "operands swapped": _operands_swapped,
    "operand's form": _operand_form,
    "predicate": _guard,
    "label": _label,
    "selector": _selector,
}
