"""Operands in C++: how registers are stored, read and written."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable

from cudahercules.emulator.ptx.ir import (
    Function,
    Immediate,
    Instruction,
    Memory,
    Negated,
    Operand,
    Pair,
    Register,
    Sink,
    Special,
    Symbol,
    Vector,
    bits,
)
from cudahercules.emulator.ptx.literals import as_float

_FLOAT_ARITHMETIC = frozenset(
    ("add", "sub", "mul", "fma", "mad", "neg", "abs", "min", "max", "div", "copysign", "setp", "set", "testp")
) | frozenset(("ex2", "lg2", "rcp", "sqrt", "rsqrt", "sin", "cos", "tanh"))
_NEUTRAL = frozenset(("mov", "ld", "ldu", "st", "selp", "shfl", "atom", "red", "call"))


class Unsupported(Exception):
    """An operand or a combination that the emulator does not know."""


def c_type(type_: str) -> str:
    """The C++ type in which a value of PTX type ``type_`` is computed."""
    if type_ == "pred":
        return "bool"
    if type_ == "f32":
        return "float"
    if type_ == "f64":
        return "double"
    try:
        width = bits(type_)
    except ValueError:
        raise Unsupported(f"type {type_}") from None
    if width == 128:
        return "unsigned __int128"
    if width not in (8, 16, 32, 64):
        raise Unsupported(f"type {type_}")
    if type_[0] == "s" and type_[1:].isdigit():
        return f"int{width}_t"
    return f"uint{width}_t"


def _unsigned(width: int) -> str:
    return "unsigned __int128" if width == 128 else f"uint{width}_t"


def storage_types(function: Function) -> dict[str, str]:
    """The C++ type of every register that the body mentions.

    Declared floats are floats. Bit registers become floats where arithmetic on them is mostly
    floating point: otherwise a loop-carried sum would travel between register files.
    """
    votes: Counter[str] = Counter()
    used: dict[str, str] = {}

    def visit(operand: Operand, vote: int) -> None:
        if isinstance(operand, Register):
            used[operand.name] = operand.type
            votes[operand.name] += vote
        elif isinstance(operand, Negated):
            used[operand.register.name] = operand.register.type
        elif isinstance(operand, Memory):
            visit(operand.base, -1)
            for coordinate in operand.coordinates:
                visit(coordinate, -1)
        elif isinstance(operand, Pair):
            visit(operand.first, vote)
            visit(operand.second, vote)
        elif isinstance(operand, Vector):
            for element in operand.elements:
                visit(element, vote)
        elif hasattr(operand, "elements"):
            for element in operand.elements:
                visit(element, 0)

    for instruction in function.body or ():
        if not isinstance(instruction, Instruction):
            continue
        if instruction.guard:
            used[instruction.guard.register.name] = "pred"
        for position, operand in enumerate(instruction.operands):
            visit(operand, _vote(instruction, position))
    return {name: _storage(type_, votes[name]) for name, type_ in used.items()}


def _vote(instruction: Instruction, position: int) -> int:
    if instruction.opcode in _NEUTRAL:
        return 0
    if instruction.opcode == "cvt" and len(instruction.types) == 2:
        return 1 if instruction.types[min(position, 1)] in ("f32", "f64") else -1
    if instruction.opcode in _FLOAT_ARITHMETIC and instruction.types[-1:] in (("f32",), ("f64",)):
        return 1
    return -1


def _storage(type_: str, vote: int) -> str:
    if type_ == "pred":
        return "bool"
    if type_ in ("f32", "f64"):
        return c_type(type_)
    width = bits(type_)
    if type_[0] == "b" and vote > 0 and width in (32, 64):
        return "float" if width == 32 else "double"
    return _unsigned(width)


class Access:
    """Reads and writes operands of one function.

    ``address_of(symbol)`` and ``special(name)`` give C++ for what only the function's emitter knows.
    """

    carry = "carry"

    def __init__(
        self,
        storage: dict[str, str],
        address_of: Callable[[Symbol], str],
        special: Callable[[str], str],
    ):
        self.storage = storage
        self._address_of = address_of
        self._special = special

    def read(self, operand: Operand, type_: str) -> str:
        """An rvalue of C++ type ``c_type(type_)``."""
        wanted = c_type(type_)
        if isinstance(operand, Register):
            return self._read_register(operand, type_, wanted)
        if isinstance(operand, Immediate):
            return literal(operand, type_)
        if isinstance(operand, Negated):
            if wanted != "bool" or self.storage[operand.register.name] != "bool":
                raise Unsupported("! of something else than a predicate")
            return f"!{operand.register.name}"
        if isinstance(operand, Special):
            return f"({wanted})({self._special(operand.name)})"
        if isinstance(operand, Symbol):
            return f"({wanted})({self._address_of(operand)})"
        raise Unsupported("operand")

    def _read_register(self, register: Register, type_: str, wanted: str) -> str:
        stored = self.storage[register.name]
        if register.selector:
            return self._select(register, type_, wanted)
        if stored == wanted:
            return register.name
        if stored == "bool" or wanted == "bool":
            raise Unsupported("predicate where a number belongs, or the other way round")
        if wanted in ("float", "double"):
            width = 32 if wanted == "float" else 64
            if stored in ("float", "double"):
                raise Unsupported("a float register of another width")
            return f"__builtin_bit_cast({wanted}, ({_unsigned(width)}){register.name})"
        return f"(({wanted}){self.raw(register)})"

    def _select(self, register: Register, type_: str, wanted: str) -> str:
        kind, index = register.selector[0], int(register.selector[1:])
        width = 8 if kind == "b" else 16
        if index * width >= 32:
            raise Unsupported("selector")
        part = f"int{width}_t" if type_.startswith("s") else f"uint{width}_t"
        return f"({wanted})({part})({self.raw(register)} >> {index * width})"

    def raw(self, register: Register) -> str:
        """The register's bits as an unsigned integer of its own width."""
        stored = self.storage[register.name]
        if stored in ("float", "double"):
            return f"__builtin_bit_cast({_unsigned(32 if stored == 'float' else 64)}, {register.name})"
        return register.name

    def write(self, operand: Operand, type_: str, expression: str) -> str:
        """A statement that stores ``expression``, extended as PTX does for wider registers."""
        if isinstance(operand, Sink):
            return ""
        if not isinstance(operand, Register) or operand.selector:
            raise Unsupported("destination")
        stored, value = self.storage[operand.name], c_type(type_)
        if stored == value:
            return f"{operand.name} = {expression};"
        if stored == "bool" or value == "bool":
            raise Unsupported("predicate where a number belongs, or the other way round")
        if value in ("float", "double"):
            width = 32 if value == "float" else 64
            expression = f"__builtin_bit_cast({_unsigned(width)}, ({value})({expression}))"
        else:
            expression = f"({value})({expression})"
        if stored in ("float", "double"):
            width = 32 if stored == "float" else 64
            return f"{operand.name} = __builtin_bit_cast({stored}, ({_unsigned(width)})({expression}));"
        if value.startswith("int"):
            signed = "__int128" if "128" in stored else stored.removeprefix("u")
            return f"{operand.name} = ({stored})({signed})({expression});"
        return f"{operand.name} = ({stored})({expression});"


def literal(value: Immediate, type_: str) -> str:
    """An immediate as C++ of type ``c_type(type_)``."""
    wanted = c_type(type_)
    if wanted == "bool":
        return "true" if value.value else "false"
    if wanted == "float":
        pattern = value.value if value.kind == "f32" else _float_bits(value)
        return f"__builtin_bit_cast(float, 0x{pattern & 0xFFFFFFFF:x}u)"
    if wanted == "double":
        pattern = value.value if value.kind == "f64" else _double_bits(value)
        return f"__builtin_bit_cast(double, 0x{pattern:x}ull)"
    width = 128 if "128" in wanted else int("".join(c for c in wanted if c.isdigit()))
    pattern = value.value & ((1 << width) - 1)
    if width == 128:
        high, low = pattern >> 64, pattern & ((1 << 64) - 1)
        return f"((unsigned __int128)0x{high:x}ull << 64 | 0x{low:x}ull)"
    return f"({wanted})0x{pattern:x}{'ull' if width == 64 else 'u'}"


def _float_bits(value: Immediate) -> int:
    return _pattern("<f", "<I", value)


def _double_bits(value: Immediate) -> int:
    return _pattern("<d", "<Q", value)


def _pattern(number: str, bits_: str, value: Immediate) -> int:
    try:
        return struct.unpack(bits_, struct.pack(number, as_float(value)))[0]
    except OverflowError:
        raise Unsupported("a number beyond its type") from None
