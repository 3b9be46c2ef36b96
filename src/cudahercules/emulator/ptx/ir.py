"""The typed form of PTX that check and emit work on: every name resolved, every operand typed.

Registers, labels and parameter variables that PTX declares in nested ``{}`` scopes get names that
are unique in their function. Types are PTX's own, without the dot (``b32``, ``f16x2``, ``pred``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_TYPE = re.compile(
    r"(?:[busf](?:8|16|32|64|128)|pred|f16x2|bf16|bf16x2|tf32|f32x2|[su]16x2|[su]8x4|b8x16|b6x16_p32|b4x16_p64"
    r"|(?:e4m3|e5m2|e2m1|e2m3|e3m2|ue8m0|ue4m3)(?:x2|x4)?|[su]4|b1|bf16x4|f16x4)"
)


def is_type(part: str) -> bool:
    """Whether a dot-separated part of an opcode names a type (and not a modifier)."""
    return _TYPE.fullmatch(part) is not None


def bits(type_: str) -> int:
    """Width in bits of a PTX type; a predicate counts as 1."""
    if type_ == "pred":
        return 1
    if type_ in ("bf16", "f16", "e4m3x2", "e5m2x2", "ue8m0x2"):
        return 16
    if type_ in ("f16x2", "bf16x2", "tf32", "s16x2", "u16x2", "s8x4", "u8x4", "e4m3x4", "e5m2x4"):
        return 32
    if type_ in ("e4m3", "e5m2", "e2m1x2", "e2m3", "e3m2", "ue8m0", "ue4m3"):
        return 8
    if type_ in ("e2m1x4", "e2m3x2", "e3m2x2"):
        return 16
    if type_ in ("e2m3x4", "e3m2x4"):
        return 32
    if type_ in ("f32x2", "f16x4", "bf16x4"):
        return 64
    return int(type_.lstrip("busf"))


@dataclass(frozen=True, slots=True)
class Location:
    """A source line: the innermost one that is not in the toolkit's headers. Where the code itself is in such
    a header, ``inner`` is its line (``file:line``). ``callers`` has the call sites through which code of the
    line was inlined, from the inside out (``file:line``)."""

    file: str = ""
    line: int = 0
    inner: str = ""
    callers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Register:
    """``name`` is a valid C++ identifier, unique in the function; ``type`` is the declared type.
    ``selector`` is the ``.b0``-``.b3``, ``.h0``, ``.h1`` of a video instruction's operand."""

    name: str
    type: str
    selector: str = ""


@dataclass(frozen=True, slots=True)
class Special:
    """A special register, with its component: ``tid.x``, ``laneid``, ``clock64``."""

    name: str


@dataclass(frozen=True, slots=True)
class Immediate:
    """``kind`` is ``int`` (``value`` is the number itself, maybe negative), ``f32`` or ``f64``
    (``value`` is the bit pattern; decimal floats are f64)."""

    kind: str
    value: int


@dataclass(frozen=True, slots=True)
class Symbol:
    """The address of a variable (module, shared, local or parameter) or function, plus ``offset``."""

    name: str
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Memory:
    """``[base + offset]``, or ``[base + offset, {coordinates}]`` of a tensor copy."""

    base: Register | Symbol | Immediate
    offset: int = 0
    coordinates: tuple[Operand, ...] = ()


@dataclass(frozen=True, slots=True)
class Vector:
    """``{a, b, ...}``: a vector operand, or the halves of a pack or unpack."""

    elements: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """``p|q``: two destinations."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Negated:
    """``!p``."""

    register: Register


@dataclass(frozen=True, slots=True)
class Sink:
    """``_``: a destination that nobody reads."""


@dataclass(frozen=True, slots=True)
class Label:
    name: str


@dataclass(frozen=True, slots=True)
class Group:
    """``(a, b)``: the returns or the arguments of a call."""

    elements: tuple[Operand, ...]


Operand = Register | Special | Immediate | Symbol | Memory | Vector | Pair | Negated | Sink | Label | Group


@dataclass(frozen=True, slots=True)
class Guard:
    """``@p`` or ``@!p``."""

    register: Register
    negated: bool


@dataclass(frozen=True, slots=True)
class Instruction:
    """``opcode`` is the base (``add``), ``modifiers`` what stands between the dots in order without
    types (``("rn", "ftz")``), ``types`` the types in order (``("f32",)``), ``name`` the whole opcode
    (``add.rn.ftz.f32``) and ``text`` the instruction as written, on one line."""

    opcode: str
    modifiers: tuple[str, ...]
    types: tuple[str, ...]
    name: str
    operands: tuple[Operand, ...]
    guard: Guard | None
    location: Location
    text: str


@dataclass(frozen=True, slots=True)
class LabelMark:
    """The place to which ``Label(name)`` points."""

    name: str


@dataclass(frozen=True, slots=True)
class Relocated:
    """An 8-byte initialiser item: the (generic) address of a symbol plus ``addend``."""

    offset: int
    symbol: str
    addend: int


@dataclass(frozen=True, slots=True)
class Variable:
    """``space`` is global, const, shared, local or param. ``size`` is in bytes; 0 for an unsized
    extern array. ``data`` holds the initial bytes (shorter than size: the rest is zero)."""

    name: str
    space: str
    type: str
    alignment: int
    size: int
    data: bytes = b""
    relocations: tuple[Relocated, ...] = ()
    external: bool = False
    linkage: str = ""


@dataclass(slots=True)
class Function:
    """A kernel (``.entry``) or device function. ``body`` is None for a declaration.

    ``variables`` are the shared, local and param variables declared inside; ``tables`` are the
    ``.branchtargets`` and ``.calltargets`` lists by label; ``directives`` such as ``maxntid`` with
    their numbers; ``file`` and ``line`` where the function begins.
    """

    name: str
    is_kernel: bool
    returns: tuple[Variable, ...]
    parameters: tuple[Variable, ...]
    body: list[Instruction | LabelMark] | None = None
    registers: dict[str, str] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)
    directives: dict[str, tuple[int, ...]] = field(default_factory=dict)
    location: Location = Location()


@dataclass(slots=True)
class Module:
    """One PTX file."""

    version: str
    target: str
    variables: dict[str, Variable]
    functions: dict[str, Function]
