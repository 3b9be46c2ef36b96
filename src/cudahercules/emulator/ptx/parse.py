"""PTX text to IR. The parser knows the language's syntax and no opcode (except which take labels).

An instruction whose operands it cannot read becomes an instruction with the opcode ``?``, which no
table accepts: the check then refuses it by name.
"""

from __future__ import annotations

import math

from cudahercules.emulator.ptx.body import BodyParser
from cudahercules.emulator.ptx.ir import Function, Location, Module, Relocated, Variable, bits, is_type
from cudahercules.emulator.ptx.literals import encode, immediate
from cudahercules.emulator.ptx.stream import MOST, Stream
from cudahercules.emulator.ptx.tokens import PtxError, tokenize

_SPACES = {".global": "global", ".const": "const", ".shared": "shared", ".local": "local", ".param": "param"}
_MOST_ALIGNMENT = 1 << 16
_MOST_INITIALISED = 64 << 20
"""Bytes of one variable that may be filled up to reach the next initial value."""
_LINKAGES = (".extern", ".visible", ".weak", ".common")


def parse(text: str) -> Module:
    """The module in ``text``. Raises PtxError with the line of the PTX text."""
    return _ModuleParser(text).parse()


class _ModuleParser:
    def __init__(self, text: str):
        self.stream = Stream(text, tokenize(text))
        self.module = Module("", "", {}, {})

    def parse(self) -> Module:
        stream = self.stream
        linkage = ""
        while not stream.at_end:
            token = stream.next()
            match token.text:
                case ".version":
                    self.module.version = stream.next().text
                case ".target":
                    self.module.target = stream.next().text
                    while stream.accept(","):
                        stream.next()
                case ".address_size":
                    stream.next()
                case ".section":
                    self._skip_section()
                case ".pragma" | ".alias":
                    stream.skip_past(";")
                case "." | ";":
                    continue
                case ".entry" | ".func":
                    self._function(token.text == ".entry")
                    linkage = ""
                case text if text in _LINKAGES:
                    linkage = text[1:]
                case text if text in _SPACES:
                    for variable in parse_variables(stream, _SPACES[text], linkage):
                        self._declare(variable)
                    linkage = ""
                case _:
                    raise stream.error(f"unexpected {token.text!r}")
        return self.module

    def _declare(self, variable: Variable) -> None:
        known = self.module.variables.get(variable.name)
        if known is None or known.external:
            self.module.variables[variable.name] = variable

    def _skip_section(self) -> None:
        self.stream.skip_past("{")
        depth = 1
        while depth:
            token = self.stream.next()
            depth += (token.text == "{") - (token.text == "}")

    def _function(self, is_kernel: bool) -> None:
        stream = self.stream
        directives: dict[str, tuple[int, ...]] = {}
        self._directives(directives)
        returns = self._parameters() if stream.peek() == "(" else ()
        name = stream.name()
        parameters = self._parameters() if stream.peek() == "(" else ()
        function = Function(name, is_kernel, returns, parameters, directives=directives)
        self._directives(directives)
        if stream.accept("{"):
            BodyParser(stream, function, self.module).parse()
        else:
            stream.accept(";")
        known = self.module.functions.get(name)
        if known is None or known.body is None:
            self.module.functions[name] = function

    def _directives(self, into: dict[str, tuple[int, ...]]) -> None:
        """Performance directives such as ``.maxntid 256, 1, 1`` before or after the signature."""
        stream = self.stream
        while stream.peek().startswith("."):
            directive = stream.next().text[1:]
            if directive in ("attribute", "pragma"):
                raise stream.error(f"function attribute .{directive}")
            numbers = []
            while stream.peek()[:1].isdigit():
                numbers.append(stream.number())
                stream.accept(",")
            into[directive] = tuple(numbers)

    def _parameters(self) -> tuple[Variable, ...]:
        stream = self.stream
        stream.expect("(")
        found: list[Variable] = []
        while not stream.accept(")"):
            stream.expect(".param")
            found.append(_variable(stream, "param", ""))
            stream.accept(",")
        return tuple(found)


def parse_variables(stream: Stream, space: str, linkage: str) -> list[Variable]:
    """Declarations after their space directive, up to and including the semicolon."""
    first = _variable(stream, space, linkage)
    found = [first]
    while stream.accept(","):
        found.append(_declarator(stream, space, linkage, first.type, first.alignment, 1))
    stream.expect(";")
    return found


def _variable(stream: Stream, space: str, linkage: str) -> Variable:
    alignment, type_, vector = 0, "", 1
    while stream.peek().startswith("."):
        directive = stream.next().text[1:]
        if directive == "align":
            alignment = stream.number(_MOST_ALIGNMENT)
            if alignment.bit_count() != 1:
                raise stream.error(f"an alignment of {alignment} is no power of two")
        elif directive in ("ptr", "global", "const", "shared", "local"):
            continue
        elif directive in ("v2", "v4", "v8"):
            vector = int(directive[1:])
        elif directive in ("attribute", "texref", "samplerref", "surfref"):
            raise stream.error(f"variables with .{directive} are not supported")
        else:
            type_ = directive
    return _declarator(stream, space, linkage, type_, alignment, vector)


def _declarator(
    stream: Stream, space: str, linkage: str, type_: str, alignment: int, vector: int
) -> Variable:
    name = stream.name()
    if not is_type(type_) or type_ == "pred":
        raise stream.error(f"variable {name!r} of unknown type {type_!r}")
    try:
        element = max(1, bits(type_) // 8) * vector
    except ValueError:
        raise stream.error(f"variable {name!r} of unknown type {type_!r}") from None
    dimensions: list[int] = []
    while stream.accept("["):
        dimensions.append(0 if stream.peek() == "]" else stream.number())
        stream.expect("]")
    size = element * math.prod(dimensions)
    if max(size, element * math.prod(dimensions[1:])) > MOST:
        raise stream.error(f"variable {name!r} of {size} bytes, more than any memory here")
    data = bytearray()
    relocations: list[Relocated] = []
    if stream.accept("="):
        _initialiser(stream, type_, data, relocations, _strides(dimensions, element))
        if dimensions and dimensions[0] == 0:
            size = len(data)
        if len(data) > size:
            raise stream.error(f"more initial values than {name!r} has room for")
    return Variable(
        name, space, type_, alignment or element, size, bytes(data), tuple(relocations),
        external=linkage == "extern", linkage=linkage,
    )  # fmt: skip


def _strides(dimensions: list[int], element: int) -> list[int]:
    strides = [element]
    for extent in reversed(dimensions[1:]):
        strides.insert(0, strides[0] * extent)
    return strides


def _initialiser(
    stream: Stream, type_: str, data: bytearray, relocations: list[Relocated], strides: list[int]
) -> None:
    if not stream.accept("{"):
        _item(stream, type_, data, relocations)
        return
    base = len(data)
    count = 0
    while not stream.accept("}"):
        if stream.peek() == "{":
            begin = base + count * strides[0]
            if len(strides) == 1:
                raise stream.error("more braces than dimensions in an initialiser")
            if not len(data) <= begin <= _MOST_INITIALISED:
                raise stream.error("an initialiser that does not fit its variable")
            data.extend(bytes(begin - len(data)))
            _initialiser(stream, type_, data, relocations, strides[1:])
        else:
            _item(stream, type_, data, relocations)
        count += 1
        stream.accept(",")


def _item(stream: Stream, type_: str, data: bytearray, relocations: list[Relocated]) -> None:
    negative = stream.accept("-")
    token = stream.next()
    if token.kind == "number" and not stream.accept("("):
        try:
            data += encode(immediate(token.text, negative), type_)
        except (ValueError, OverflowError):
            raise stream.error(f"{token.text} is no value of type {type_}") from None
        return
    if token.kind == "number":  # 0xFF00(symbol): one byte of an address
        stream.position -= 2
        mask = stream.number((1 << 64) - 1)
        stream.expect("(")
        symbol, addend = _address(stream, stream.next().text)
        stream.expect(")")
        if mask == 0xFF:
            relocations.append(Relocated(len(data), symbol, addend))
        data.append(0)
        return
    symbol, addend = _address(stream, token.text)
    if bits(type_) != 64:
        raise stream.error(f"address of {symbol!r} in an initialiser of type {type_}")
    relocations.append(Relocated(len(data), symbol, addend))
    data += bytes(8)


def _address(stream: Stream, name: str) -> tuple[str, int]:
    if name == "generic":
        stream.expect("(")
        symbol, addend = stream.next().text, 0
        stream.expect(")")
    else:
        symbol, addend = name, 0
    if stream.peek() in ("+", "-"):
        sign = -1 if stream.next().text == "-" else 1
        addend += sign * stream.number((1 << 63) - 1)
    return symbol, addend


__all__ = ["Location", "PtxError", "parse"]
