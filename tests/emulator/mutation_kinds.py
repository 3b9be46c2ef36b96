"""Mutations of PTX units, by kind: each gives the statements of a mutant, or None where it finds nothing to
change. What comes out is mostly not PTX, and that is the point."""

from __future__ import annotations

from collections.abc import Callable

from mutation_instructions import ON_INSTRUCTIONS, Mutant, Pool, registers
from mutation_units import Unit, is_instruction, is_label
from mutation_words import CHARACTERS, DIRECTIVES, HEADERS, NOISE, NUMBERS, SIZES, TYPES


def _instruction_positions(mutant: Mutant) -> list[int]:
    return [i for i, s in enumerate(mutant) if is_instruction(s)]


def _deleted(mutant: Mutant, pool: Pool) -> Mutant | None:
    at = pool.random.choice(_instruction_positions(mutant))
    return mutant[:at] + mutant[at + 1 :]


def _duplicated(mutant: Mutant, pool: Pool) -> Mutant | None:
    at = pool.random.randrange(len(mutant))
    to = pool.random.randrange(len(mutant))
    return [*mutant[:to], mutant[at], *mutant[to:]]


def _moved(mutant: Mutant, pool: Pool) -> Mutant | None:
    at = pool.random.choice(_instruction_positions(mutant))
    rest = mutant[:at] + mutant[at + 1 :]
    to = pool.random.choice(_instruction_positions(rest) or [0])
    return [*rest[:to], mutant[at], *rest[to:]]


def _block(mutant: Mutant, pool: Pool) -> tuple[int, int]:
    at = pool.random.choice(_instruction_positions(mutant))
    return at, min(len(mutant) - 1, at + pool.random.randrange(2, 12))


def _block_deleted(mutant: Mutant, pool: Pool) -> Mutant | None:
    start, end = _block(mutant, pool)
    return mutant[:start] + mutant[end:]


def _block_duplicated(mutant: Mutant, pool: Pool) -> Mutant | None:
    start, end = _block(mutant, pool)
    to = pool.random.choice(_instruction_positions(mutant))
    return [*mutant[:to], *mutant[start:end], *mutant[to:]]


def _block_moved(mutant: Mutant, pool: Pool) -> Mutant | None:
    start, end = _block(mutant, pool)
    rest = mutant[:start] + mutant[end:]
    to = pool.random.randrange(len(rest))
    return [*rest[:to], *mutant[start:end], *rest[to:]]


def _spliced(mutant: Mutant, pool: Pool) -> Mutant | None:
    """An instruction of another kernel; of its registers those are kept that have a namesake here."""
    here = set(registers(mutant))
    other = pool.random.choice(pool.instructions)
    renamed = []
    for token in other:
        if token.startswith("%") and token not in here:
            alike = [r for r in here if r.rstrip("0123456789") == token.rstrip("0123456789")]
            token = pool.one(sorted(alike)) if alike else token
        renamed.append(token)
    to = pool.random.choice(_instruction_positions(mutant))
    return [*mutant[:to], tuple(renamed), *mutant[to:]]


_DECLARING = (".reg", ".shared", ".local", ".param", ".global", ".const", ".extern", ".visible", ".weak")


def _declaration(mutant: Mutant, pool: Pool) -> Mutant | None:
    found = [i for i, s in enumerate(mutant) if s and s[0] in _DECLARING]
    if not found:
        return None
    at = pool.random.choice(found)
    s = list(mutant[at])
    match pool.random.randrange(7):
        case 0:
            places = [i for i, t in enumerate(s) if t[0].isdigit()]
            if not places:
                return None
            s[pool.random.choice(places)] = pool.one(SIZES)
        case 1:
            places = [i for i, t in enumerate(s) if t[1:] in TYPES]
            if not places:
                return None
            s[pool.random.choice(places)] = "." + pool.one(TYPES)
        case 2:
            s[0] = pool.one(_DECLARING)
        case 3:
            s[1:1] = [".align", pool.one(SIZES)]
        case 4:
            s[-1:-1] = ["[", pool.one(SIZES), "]"] * pool.random.randrange(1, 4)
        case 5:
            return mutant[:at] + mutant[at + 1 :]
        case _:
            s[1:1] = [pool.one((".v2", ".v4", ".ptr", ".attribute", ".align", ".texref", ".const", ".x"))]
    return [*mutant[:at], tuple(s), *mutant[at + 1 :]]


def _initialiser(mutant: Mutant, pool: Pool) -> Mutant | None:
    found = [i for i, s in enumerate(mutant) if "=" in s]
    if not found:
        found = [
            i for i, s in enumerate(mutant) if s and s[0] in (".global", ".const", ".visible", ".shared")
        ]
        found = [i for i in found if ".func" not in mutant[i] and ".entry" not in mutant[i]]
        if not found:
            return None
    at = pool.random.choice(found)
    s = mutant[at]
    names = [t for m in mutant for t in m if t[0] in "_$" or t[0].isalpha()]
    values = (
        *NUMBERS,
        "{",
        "}",
        "generic",
        "(",
        ")",
        ",",
        "{ { 1 } , { 2 , 3 } }",
        pool.one(names),
        "0xFF",
        "+",
    )
    if "=" not in s:
        return [*mutant[:at], (*s[:-1], "=", *pool.one(values).split(), ";"), *mutant[at + 1 :]]
    where = pool.random.randrange(s.index("=") + 1, len(s))
    return [*mutant[:at], (*s[:where], *pool.one(values).split(), *s[where + 1 :]), *mutant[at + 1 :]]


def _signature(mutant: Mutant, pool: Pool) -> Mutant | None:
    """The sizes, types and number of parameters, of the kernel or of what it calls."""
    found = [i for i, s in enumerate(mutant) if ".param" in s]
    if not found:
        return None
    at = pool.random.choice(found)
    s = list(mutant[at])
    places = [i for i, t in enumerate(s) if t == ".param"]
    place = pool.random.choice(places)
    end = next((i for i in range(place, len(s)) if s[i] in ",);"), len(s) - 1)
    match pool.random.randrange(6):
        case 0:
            del s[place : end + (s[end] == ",")]
        case 1:
            s[end:end] = [",", *s[place:end]]
        case 2:
            s[end:end] = ["[", pool.one(SIZES), "]"]
        case 3:
            s[place + 1 : place + 1] = [".align", pool.one(SIZES)]
        case 4:
            types = [i for i in range(place, end) if s[i][1:] in TYPES]
            if not types:
                return None
            s[types[0]] = "." + pool.one(TYPES)
        case _:
            numbers = [i for i in range(place, end) if s[i][0].isdigit()]
            if not numbers:
                return None
            s[pool.random.choice(numbers)] = pool.one(SIZES)
    return [*mutant[:at], tuple(s), *mutant[at + 1 :]]


def _directive(mutant: Mutant, pool: Pool) -> Mutant | None:
    found = [i for i, s in enumerate(mutant) if ".entry" in s or ".func" in s]
    at = pool.random.choice(found)
    name = pool.one(DIRECTIVES)
    numbers = [t for _ in range(pool.random.randrange(5)) for t in (pool.one(SIZES), ",")][:-1]
    s = mutant[at]
    to = s.index("{") if "{" in s else len(s)
    return [*mutant[:at], (*s[:to], name, *numbers, *s[to:]), *mutant[at + 1 :]]


def _header(mutant: Mutant, pool: Pool) -> Mutant | None:
    s = list(mutant[0])
    s[pool.random.randrange(len(s))] = pool.one((*HEADERS, *SIZES))
    return [tuple(s), *mutant[1:]]


def _scopes(mutant: Mutant, pool: Pool) -> Mutant | None:
    """Braces opened or closed, one or thousands, or a label that stands twice."""
    to = pool.random.randrange(1, len(mutant))
    opened, closed = "{" * 3000, "}" * 3000
    pieces: list[Mutant] = [
        [("{",)],
        [("}",)],
        [tuple(opened)],
        [tuple(opened + closed)],
        [("mov.b32", "%r1", ",", *opened, "0", *closed, ";")],
        [("mov.b32", *"(" * 3000, ";")],
        [("mov.pred", *("%p1", "|") * 3000, "%p1", ";")],
        [(".global", ".b32", "g", "=", *opened, *closed, ";")],
        [s for s in mutant if is_label(s)][:1] * 2,
        [("x", ":", ".branchtargets", "a", ",", "b", ";")],
        [("y", ":", ".callprototype", "(", ")", ";")],
        [("ret", ";")],
        [(";",)],
    ]
    return [*mutant[:to], *pool.random.choice(pieces), *mutant[to:]]


def _token_noise(mutant: Mutant, pool: Pool) -> Mutant | None:
    """A few tokens anywhere deleted, doubled, replaced or put in."""
    tokens = [list(s) for s in mutant]
    for _ in range(pool.random.choice((1, 1, 1, 2, 5))):
        line = tokens[pool.random.randrange(len(tokens))]
        if not line:
            continue
        at = pool.random.randrange(len(line))
        match pool.random.randrange(4):
            case 0:
                del line[at]
            case 1:
                line.insert(at, line[at])
            case 2:
                line[at] = pool.one(NOISE)
            case _:
                line.insert(at, pool.one(NOISE))
    return [tuple(line) for line in tokens]


def _truncated(mutant: Mutant, pool: Pool) -> Mutant | None:
    at = pool.random.randrange(1, len(mutant))
    s = mutant[at]
    return [*mutant[:at], s[: pool.random.randrange(len(s) + 1)]]


def _characters(mutant: Mutant, pool: Pool) -> Mutant | None:
    at = pool.random.randrange(len(mutant))
    text = " ".join(mutant[at])
    for _ in range(pool.random.choice((1, 1, 3))):
        place = pool.random.randrange(len(text) + 1)
        text = text[:place] + pool.one(CHARACTERS) + text[place + pool.random.randrange(2) :]
    return [*mutant[:at], (text,), *mutant[at + 1 :]]


_ON_UNITS: dict[str, Callable[[Mutant, Pool], Mutant | None]] = {
    "instruction deleted": _deleted,
    "statement duplicated": _duplicated,
    "instruction moved": _moved,
    "block deleted": _block_deleted,
    "block duplicated": _block_duplicated,
    "block moved": _block_moved,
    "spliced from elsewhere": _spliced,
    "declaration": _declaration,
    "initialiser": _initialiser,
    "parameters": _signature,
    "directive": _directive,
    "header": _header,
    "scopes and nesting": _scopes,
    "token noise": _token_noise,
    "truncated": _truncated,
    "characters": _characters,
}

KINDS = (*ON_INSTRUCTIONS, *_ON_UNITS)


def mutate(unit: Unit, kind: str, pool: Pool) -> Mutant | None:
    """``unit`` after one mutation of ``kind``; None if it has nothing of that kind."""
    mutant = unit.statements()
    if kind in _ON_UNITS:
        return _ON_UNITS[kind](mutant, pool) if _instruction_positions(mutant) else None
    positions = _instruction_positions(mutant)
    for _ in range(4):
        if not positions:
            return None
        at = pool.random.choice(positions)
        changed = ON_INSTRUCTIONS[kind](mutant[at], pool, mutant)
        if changed is not None and changed != mutant[at]:
            return [*mutant[:at], changed, *mutant[at + 1 :]]
    return None
