"""Real PTX cut into units that are small enough to be mutated by the hundred thousand.

A unit is one kernel or device function (of a long one, a run of its statements) with what it needs of its
module: header, variables, the functions that it calls. Units are kept as statements of tokens, so that a
mutation knows what it changes, and may still write what no parser takes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from cudahercules.emulator.ptx.tokens import Token, tokenize

Statement = tuple[str, ...]
"""The tokens of one statement with its end: ``;``, ``:`` of a label, or a brace of its own."""

WINDOW = 48
"""Statements of a long body that stand in one unit, about."""
_DECLARATIONS = (".reg", ".shared", ".local", ".param", ".global", ".const")
_SPACES = (".global", ".const", ".shared", ".local")


@dataclass(frozen=True, slots=True)
class Unit:
    """``header`` is version, target and address size, ``before`` whole declarations and functions that the
    body refers to, ``signature`` what stands before the body's opening brace."""

    seed: str
    header: Statement
    before: tuple[Statement, ...]
    signature: Statement
    body: tuple[Statement, ...]

    def statements(self) -> list[Statement]:
        return [self.header, *self.before, self.signature, ("{",), *self.body, ("}",)]

    def text(self) -> str:
        return "\n".join(" ".join(statement) for statement in self.statements()) + "\n"


@dataclass(frozen=True, slots=True)
class Function:
    """A kernel or device function with its body."""

    signature: Statement
    name: str
    body: tuple[Statement, ...]
    is_kernel: bool


class Source:
    """One PTX file: its functions with bodies, and all other names with their declarations."""

    def __init__(self, seed: str, text: str):
        self.seed = seed
        self.functions: list[Function] = []
        self.declared: dict[str, Statement] = {}
        header: list[str] = []
        tokens = [t for t in tokenize(text) if t.kind != "line"]
        position = 0
        while position < len(tokens):
            end = _end_of_item(tokens, position)
            item = tuple(t.text for t in tokens[position:end])
            position = end
            if item[0] in (".version", ".target", ".address_size"):
                header += item
            elif item[0] != ".section":
                self._item(item)
        self.header = tuple(header)

    def _item(self, item: Statement) -> None:
        kind = next((t for t in item if t in (".entry", ".func", *_SPACES)), "")
        if kind in (".entry", ".func"):
            name = _function_name(item, item.index(kind))
            if "{" in item and item[-1] == "}":
                opening = item.index("{")
                body = tuple(_statements(item[opening + 1 : -1]))
                self.functions.append(Function(item[:opening], name, body, kind == ".entry"))
                self.declared.setdefault(name, item)
                if kind == ".func":
                    self.declared[name] = item
            else:
                self.declared.setdefault(name, item)
        elif kind:
            self.declared[_variable_name(item)] = item

    def units(self, generator: random.Random) -> Iterator[Unit]:
        """Every function once if it is short, else runs of its statements that cover it."""
        for function in self.functions:
            for body in _windows(function.body, generator):
                yield self._unit(function, body)

    def whole(self, function: Function) -> Unit:
        """The whole module as a unit whose body is all of ``function``."""
        before = tuple(item for name, item in self.declared.items() if name != function.name)
        return Unit(self.seed, self.header, before, function.signature, function.body)

    def _unit(self, function: Function, body: tuple[Statement, ...]) -> Unit:
        needed = self._closure([*function.signature, *(t for s in body for t in s)], function.name)
        before = tuple(item for name, item in self.declared.items() if name in needed)
        mentioned = {t for s in body for t in s}
        before += tuple(item for item in _MEMORY if _variable_name(item) in mentioned)
        return Unit(self.seed, self.header, before, function.signature, body)

    def _closure(self, tokens: Sequence[str], own: str) -> set[str]:
        found: set[str] = set()
        waiting = [t for t in set(tokens) if t in self.declared and t != own]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += [t for t in set(self.declared[name]) if t in self.declared and t != own]
        return found


def _end_of_item(tokens: Sequence[Token], start: int) -> int:
    """One behind a top-level item: directives of the header, a declaration, or a function."""
    if tokens[start].text in (".version", ".address_size"):
        return start + 2
    if tokens[start].text == ".target":
        end = start + 2
        while tokens[end].text == ",":
            end += 2
        return end
    depth = 0
    initialised = False
    for position in range(start, len(tokens)):
        text = tokens[position].text
        initialised |= text == "="
        depth += (text == "{") - (text == "}")
        if depth == 0 and (text == ";" or (text == "}" and not initialised)):
            return position + 1
    return len(tokens)


def _function_name(item: Statement, kind: int) -> str:
    position = kind + 1
    if item[position] == "(":
        position = item.index(")", position) + 1
    return item[position]


def _variable_name(item: Statement) -> str:
    return next(t for t in item if t[0].isalpha() or t[0] in "_$%")


def _statements(tokens: Statement) -> Iterator[Statement]:
    """A body's tokens as statements. Braces after an instruction's name belong to it, others are scopes."""
    start = 0
    for position, text in enumerate(tokens):
        scope = position == start and text in ("{", "}")
        label = text == ":" and position == start + 1
        if text == ";" or scope or (label and tokens[position + 1 : position + 2] != (".callprototype",)):
            yield tokens[start : position + 1]
            start = position + 1
    if start < len(tokens):
        yield tokens[start:]


def is_instruction(statement: Statement) -> bool:
    return statement[-1] == ";" and len(statement) > 1 and statement[0][0] not in "."


def is_label(statement: Statement) -> bool:
    return len(statement) == 2 and statement[1] == ":"


def _windows(body: tuple[Statement, ...], generator: random.Random) -> Iterator[tuple[Statement, ...]]:
    declarations = tuple(s for s in body if s[0] in _DECLARATIONS)
    if len(body) <= 2 * WINDOW:
        yield body
        return
    start, depth = 0, 0
    end = start + generator.randrange(WINDOW // 2, WINDOW)
    for position, statement in enumerate(body, 1):
        depth += (statement == ("{",)) - (statement == ("}",))
        if (depth == 0 and position >= end) or position == len(body):
            yield _completed(declarations, body[start:position])
            start, end = position, position + generator.randrange(WINDOW // 2, WINDOW)


def _completed(declarations: tuple[Statement, ...], window: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """A window with the declarations of what it mentions, and with labels for its branches to elsewhere."""
    mentioned = {t for s in window for t in s}
    # A branch table is a declaration, too, but stands where nothing else of it is mentioned.
    present = set(window)
    kept = [d for d in (_restricted(d, mentioned) for d in declarations if d not in present) if d]
    here = {s[0] for s in window if is_label(s)}
    wanted = {s[-2] for s in window if any(t in ("bra", "bra.uni") for t in s)} - here
    ends: list[Statement] = [(name, ":") for name in sorted(wanted)]
    return (*kept, *_addresses(window), *window, *ends, ("ret", ";"))


_MEMORY: tuple[Statement, ...] = (
    (".global", ".align", "1024", ".b8", "window_global", "[", "65536", "]", ";"),
    (".shared", ".align", "1024", ".b8", "window_shared", "[", "16384", "]", ";"),
)
"""Where the addresses lead that a window would have got from statements before it."""


def _addresses(window: tuple[Statement, ...]) -> Iterator[Statement]:
    """Moves that give registers an address if the window uses them as addresses before it writes them."""
    written: set[str] = set()
    for statement in window:
        for opening, base in pairwise(statement):
            if opening == "[" and base.startswith("%r") and base not in written:
                written.add(base)
                wide = base.startswith("%rd")
                place = "window_global" if wide else "window_shared"
                yield ("mov.b64" if wide else "mov.b32", base, ",", place, ";")
        written.update(t for t in statement[1:2] if t.startswith("%"))


def _restricted(declaration: Statement, mentioned: set[str]) -> Statement:
    """A declaration as far as ``mentioned`` needs it; empty if not at all."""
    if declaration[0] != ".reg":
        return declaration if mentioned.intersection(declaration) else ()
    if "<" not in declaration:
        return declaration if mentioned.intersection(declaration) else ()
    prefix = declaration[2]
    used = sorted(t for t in mentioned if t.startswith(prefix) and t[len(prefix) :].isdigit())
    if not used:
        return ()
    names = [token for name in used for token in (name, ",")][:-1]
    return (*declaration[:2], *names, ";")


def renamed(unit: Unit, statements: Sequence[Statement], prefix: str) -> list[Statement]:
    """``statements``, a mutant of ``unit``, with ``prefix`` before each name that its module declares."""
    own = {_declared_name(s) for s in (unit.signature, *unit.before)} - _SYSTEM
    return [tuple(prefix + t if t in own else t for t in s) for s in statements]


_SYSTEM = {"vprintf", "__assertfail", "malloc", "free"}


def _declared_name(item: Statement) -> str:
    kind = next((i for i, t in enumerate(item) if t in (".entry", ".func")), None)
    return _variable_name(item) if kind is None else _function_name(item, kind)
