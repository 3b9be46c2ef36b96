"""The body of a function: scopes, registers, labels, locations and instructions."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from cudahercules.emulator.ptx.ir import (
    Function,
    Group,
    Guard,
    Immediate,
    Instruction,
    Label,
    LabelMark,
    Location,
    Memory,
    Module,
    Negated,
    Operand,
    Pair,
    Register,
    Sink,
    Special,
    Symbol,
    Variable,
    Vector,
    bits,
    is_type,
)
from cudahercules.emulator.ptx.literals import immediate
from cudahercules.emulator.ptx.stream import Stream
from cudahercules.emulator.ptx.tokens import NestingError, PtxError, Token

_SELECTORS = ("b0", "b1", "b2", "b3", "h0", "h1", "b10", "b32")
_MOST_OFFSET = (1 << 63) - 1
_DEEPEST_SCOPE, _DEEPEST_OPERAND = 256, 8
_LOC = re.compile(r"\.loc\s+(\d{1,9})\s+(\d{1,9})(?:\s+(\d{1,9}))?(.*)")
_INLINED = re.compile(r"\binlined_at\s+(\d{1,9})\s+(\d{1,9})\s+(\d{1,9})")
_TOOLKIT = re.compile(r"/include/|/cccl/|^/usr/")
MAX_REGISTERS = 1 << 18
"""Virtual registers of one function: several times what large templates have. Inline PTX may ask for any."""


@dataclass
class _Scope:
    number: int
    parent: _Scope | None
    depth: int = 0
    registers: dict[str, Register] = field(default_factory=dict)
    vectors: dict[str, Vector] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)


class BodyParser:
    """Fills ``function.body``, ``registers``, ``variables`` and ``tables`` from the stream, which
    stands behind the opening brace."""

    def __init__(self, stream: Stream, function: Function, module: Module):
        self.stream = stream
        self.function = function
        self.module = module
        self.scope = _Scope(0, None)
        self.scopes = 1
        self.identifiers: set[str] = set()
        self.body: list[Instruction | LabelMark] = []
        self.scope_of: list[_Scope] = []
        self.raw_tables: list[tuple[str, _Scope, tuple[str, ...]]] = []
        self.location = Location()
        self.parents: dict[tuple[int, int, int], tuple[int, int, int]] = {}

    def parse(self) -> None:
        previous = self.stream.on_line
        self.stream.on_line = self._loc  # type: ignore[method-assign]
        try:
            while True:
                if self.stream.accept("}"):
                    if self.scope.parent is None:
                        break
                    self.scope = self.scope.parent
                else:
                    self._statement()
        finally:
            self.stream.on_line = previous  # type: ignore[method-assign]
        self._resolve_labels()

    # --- statements -----------------------------------------------------------------------------

    def _statement(self) -> None:
        stream = self.stream
        token = stream.next()
        if token.text == ";":
            return
        if token.text == "{":
            self.scope = _Scope(self.scopes, self.scope, self.scope.depth + 1)
            self.scopes += 1
            if self.scope.depth > _DEEPEST_SCOPE:
                raise stream.too_deep("a scope")
        elif token.kind == "directive":
            self._directive(token.text)
        elif token.kind == "name" and stream.peek() == ":":
            stream.next()
            self._label(token.text)
        else:
            self._instruction(token)

    def _directive(self, text: str) -> None:
        from cudahercules.emulator.ptx.parse import parse_variables

        if text == ".reg":
            self._registers()
        elif text in (".shared", ".local", ".param"):
            for variable in parse_variables(self.stream, text[1:], ""):
                self._declare(variable)
        elif text in (".global", ".const"):
            for variable in parse_variables(self.stream, text[1:], ""):
                self.module.variables.setdefault(variable.name, variable)
        elif text == ".pragma":
            self.stream.skip_past(";")
        else:
            raise self.stream.error(f"directive {text} inside a function")

    def _declare(self, variable: Variable) -> None:
        name = variable.name if self.scope.number == 0 else f"{variable.name}@{self.scope.number}"
        self.scope.variables[variable.name] = name
        self.function.variables[name] = replace(variable, name=name)

    def _registers(self) -> None:
        stream = self.stream
        type_ = stream.next().text[1:]
        width = 1
        if type_ in ("v2", "v4"):
            width, type_ = int(type_[1:]), stream.next().text[1:]
        if not is_type(type_) or (type_ != "pred" and bits(type_) not in (8, 16, 32, 64, 128)):
            raise stream.error(f"registers of unknown type {type_!r}")
        while True:
            name = stream.name()
            names = [name]
            if stream.accept("<"):
                count = stream.number()
                if len(self.identifiers) + count > MAX_REGISTERS:
                    raise stream.error(f"more than {MAX_REGISTERS} registers in one function")
                names = [f"{name}{index}" for index in range(count)]
                stream.expect(">")
            for one in names:
                if width == 1:
                    self._register(one, type_)
                else:
                    self._vector(one, type_, width)
            if not stream.accept(","):
                break
        stream.expect(";")

    def _vector(self, name: str, type_: str, width: int) -> None:
        """A vector register: its components are registers, and alone its name means all of them."""
        for component, alias in zip("xyzw"[:width], "rgba", strict=False):
            self._register(f"{name}.{component}", type_)
            self.scope.registers[f"{name}.{alias}"] = self.scope.registers[f"{name}.{component}"]
        self.scope.vectors[name] = Vector(tuple(self.scope.registers[f"{name}.{c}"] for c in "xyzw"[:width]))

    def _register(self, name: str, type_: str) -> None:
        if len(self.identifiers) >= MAX_REGISTERS:
            raise self.stream.error(f"more than {MAX_REGISTERS} registers in one function")
        identifier = "R" + re.sub(r"\W", "_", name.removeprefix("%"))
        if self.scope.number:
            identifier += f"_s{self.scope.number}"
        while identifier in self.identifiers:
            identifier += "_"
        self.identifiers.add(identifier)
        self.scope.registers[name] = Register(identifier, type_)
        self.function.registers[identifier] = type_

    def _label(self, name: str) -> None:
        following = self.stream.peek()
        if following in (".callprototype", ".calltargets", ".branchtargets"):
            self.stream.next()
            names = []
            while not self.stream.accept(";"):
                token = self.stream.next()
                if token.kind == "name":
                    names.append(token.text)
            if following == ".branchtargets":
                self.raw_tables.append((name, self.scope, tuple(names)))
            return
        unique = "L" + re.sub(r"\W", "_", name)
        if self.scope.number:
            unique += f"_s{self.scope.number}"
        while unique in self.identifiers:
            unique += "_"
        self.identifiers.add(unique)
        self.scope.labels[name] = unique
        self._append(LabelMark(unique))

    def _append(self, item: Instruction | LabelMark) -> None:
        self.body.append(item)
        self.scope_of.append(self.scope)

    def _instruction(self, token: Token) -> None:
        stream = self.stream
        start = token.start
        location = self.location
        guard = None
        if token.text == "@":
            negated = stream.accept("!")
            register = self._lookup(stream.next().text)
            if not isinstance(register, Register) or register.type != "pred" or register.selector:
                raise stream.error("a guard must be a predicate register")
            guard = Guard(register, negated)
            token = stream.next()
        if token.kind != "name":
            raise stream.error(f"expected an instruction, found {token.text!r}")
        name = token.text
        opcode, *parts = name.split(".")
        first = stream.position
        operands: tuple[Operand, ...]
        try:
            operands = self._operands(opcode)
            end = stream.expect(";")
        except NestingError:
            raise
        except (PtxError, ValueError):
            stream.position = first
            opcode, operands = "?", ()
            while (end := stream.next()).text != ";":
                pass
        self._append(
            Instruction(
                opcode,
                tuple(p for p in parts if not is_type(p)),
                tuple(p for p in parts if is_type(p)),
                name,
                operands,
                guard,
                location,
                " ".join(stream.source[start : end.end].split()),
            )
        )

    # --- operands -------------------------------------------------------------------------------

    def _operands(self, opcode: str) -> tuple[Operand, ...]:
        found: list[Operand] = []
        branches = opcode in ("bra", "brx")
        while self.stream.peek() != ";":
            found.append(self._operand(branches))
            if not self.stream.accept(","):
                break
        return tuple(found)

    def _operand(self, branches: bool = False, depth: int = 0) -> Operand:
        stream = self.stream
        token = stream.next()
        if depth > _DEEPEST_OPERAND:
            raise stream.too_deep("an operand")
        text = token.text
        if token.kind == "number":
            return immediate(text)
        if token.kind == "name":
            return self._named(text, branches, depth)
        match text:
            case "-":
                return immediate(stream.next().text, negative=True)
            case "!":
                register = self._lookup(stream.next().text)
                if isinstance(register, Register):
                    return Negated(register)
            case "{":
                return Vector(self._list("}", depth + 1))
            case "(":
                return Group(self._list(")", depth + 1))
            case "[":
                return self._memory()
        raise stream.error(f"cannot read operand at {text!r}")

    def _list(self, closing: str, depth: int) -> tuple[Operand, ...]:
        elements: list[Operand] = []
        while not self.stream.accept(closing):
            elements.append(self._operand(depth=depth))
            if not self.stream.accept(","):
                self.stream.expect(closing)
                break
        return tuple(elements)

    def _named(self, text: str, branches: bool, depth: int) -> Operand:
        found: Operand | None = Sink() if text == "_" else self._lookup(text)
        if found is None and branches:
            return Label(text)
        if found is None:
            found = Symbol(self._symbol(text), self._offset())
        if self.stream.accept("|"):
            return Pair(found, self._operand(depth=depth + 1))
        return found

    def _memory(self) -> Memory:
        token = self.stream.next()
        base: Operand | None
        if token.kind == "number":
            base = immediate(token.text)
        else:
            base = self._lookup(token.text) or Symbol(self._symbol(token.text))
        if not isinstance(base, Register | Symbol | Immediate):
            raise self.stream.error(f"cannot read address {token.text!r}")
        offset = self._offset()
        coordinates: tuple[Operand, ...] = ()
        if self.stream.accept(","):
            self.stream.expect("{")
            coordinates = self._list("}", 1)
        self.stream.expect("]")
        return Memory(base, offset, coordinates)

    def _offset(self) -> int:
        offset = 0
        while self.stream.peek() in ("+", "-"):
            sign = -1 if self.stream.next().text == "-" else 1
            if self.stream.accept("-"):
                sign = -sign
            offset += sign * self.stream.number(_MOST_OFFSET)
        if abs(offset) > _MOST_OFFSET:
            raise self.stream.error("an offset beyond 64 bits")
        return offset

    def _lookup(self, text: str) -> Register | Special | Vector | None:
        scope: _Scope | None = self.scope
        name, _, part = text.rpartition(".")
        while scope is not None:
            if text in scope.registers:
                return scope.registers[text]
            if text in scope.vectors:
                return scope.vectors[text]
            if part in _SELECTORS and name in scope.registers:
                return replace(scope.registers[name], selector=part)
            scope = scope.parent
        if text.startswith("%") or text == "WARP_SZ":
            return Special(text.removeprefix("%"))
        return None

    def _symbol(self, name: str) -> str:
        scope: _Scope | None = self.scope
        while scope is not None:
            if name in scope.variables:
                return scope.variables[name]
            scope = scope.parent
        return name

    # --- locations and labels -------------------------------------------------------------------

    def _loc(self, text: str) -> None:
        """``.loc file line column[, function_name L, inlined_at file line column]``."""
        found = _LOC.match(text)
        if found is None:
            raise self.stream.error(f"cannot read {text!r}")
        here = (int(found[1]), int(found[2]), int(found[3] or 0))
        if inlined := _INLINED.search(found[4]):
            self.parents[here] = (int(inlined[1]), int(inlined[2]), int(inlined[3]))
        elif "inlined_at" in found[4]:
            raise self.stream.error(f"cannot read {text!r}")
        else:
            self.parents.pop(here, None)
        if here[1]:
            self.location = self._located(here)
            if not self.function.location.line:
                self.function.location = self.location

    def _located(self, here: tuple[int, int, int]) -> Location:
        """The innermost frame that is not in the toolkit's headers, else the outermost; and its callers."""
        files = self.stream.files
        inner = frame = here
        seen = set()
        while frame in self.parents and frame not in seen and _TOOLKIT.search(files.get(frame[0], "")):
            seen.add(frame)
            frame = self.parents[frame]
        where = f"{files.get(inner[0], '')}:{inner[1]}" if inner != frame else ""
        callers = []
        outer = frame
        while outer in self.parents and outer not in seen:
            seen.add(outer)
            outer = self.parents[outer]
            callers.append(f"{files.get(outer[0], '')}:{outer[1]}")
        return Location(files.get(frame[0], ""), frame[1], where, tuple(callers))

    def _resolve_labels(self) -> None:
        resolved: list[Instruction | LabelMark] = []
        for item, scope in zip(self.body, self.scope_of, strict=True):
            if isinstance(item, Instruction) and item.opcode in ("bra", "brx"):
                operands = tuple(
                    Label(self._label_name(o.name, scope)) if isinstance(o, Label) else o
                    for o in item.operands
                )
                item = replace(item, operands=operands)
            resolved.append(item)
        self.function.body = resolved
        for name, scope, targets in self.raw_tables:
            self.function.tables[name] = tuple(self._label_name(t, scope) for t in targets)

    def _label_name(self, name: str, scope: _Scope | None) -> str:
        while scope is not None:
            if name in scope.labels:
                return scope.labels[name]
            scope = scope.parent
        return name
