"""Rows of the instruction table: PTX opcodes written as in the PTX manual, each with its C++ expression.

A pattern reads like the manual's syntax line: ``add{.rnd}{.ftz}{.sat}.f32``. A part in braces is optional.
A part that names a choice (``rnd``, ``int``) stands for any of its members; every other part stands for
itself. Types must come in the pattern's order; the order of other modifiers is free, because the manual and
compilers disagree about it in places.

Operands are named and may state a type: ``d a b:u32``. The first is the destination; ``p|q`` is one that may
be a pair. Without a type an operand has the last type of the opcode; a type may also name a choice (then it
is what that choice matched) or be ``wide`` (twice the width of the last type).

In the expression ``$a`` (or ``${a}``) is the operand, ``$ftz`` whether the modifier is there
(``true``/``false``), ``$rnd`` what the choice matched in C++ terms, ``$T`` the C++ type of the last type and
``$cc`` the carry flag. Every other name is one of namespace ``ptx``.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

C_TYPES = {
    **{f"{kind}{width}": f"uint{width}_t" for kind in "bu" for width in (8, 16, 32, 64)},
    **{f"s{width}": f"int{width}_t" for width in (8, 16, 32, 64)},
    "f32": "float",
    "f64": "double",
    "pred": "bool",
    "f32x2": "uint64_t",
    "tf32": "uint32_t",
    "e2m1x2": "uint8_t",
    "u4": "uint8_t",
    "s4": "int8_t",
    **dict.fromkeys(("f16", "bf16", "e4m3x2", "e5m2x2", "e2m3x2", "e3m2x2", "ue8m0x2"), "uint16_t"),
    **dict.fromkeys(("f16x2", "bf16x2", "u16x2", "s16x2"), "uint32_t"),
}


@dataclass(frozen=True)
class Choice:
    """Named alternatives: PTX spelling → C++ text; ``default`` is the text of an optional, absent one."""

    texts: Mapping[str, str]
    default: str = ""

    @property
    def is_type(self) -> bool:
        return all(member in C_TYPES for member in self.texts)


@dataclass(frozen=True)
class Part:
    """One modifier or type of a pattern."""

    names: tuple[str, ...]  # alternatives, or the words of a compound such as xorsign.abs
    variable: str
    choice: Choice | None
    optional: bool

    @property
    def is_type(self) -> bool:
        return self.choice.is_type if self.choice else self.names[0] in C_TYPES


@dataclass(frozen=True)
class Operand:
    name: str
    type: str  # a PTX type, a choice's name, "wide" or "" (the last type)
    paired: bool  # p|q: may be a pair


@dataclass(frozen=True)
class Variant:
    """One concrete opcode of a row: its C++ substitutions and the PTX type of each operand."""

    row: Row
    name: str
    values: Mapping[str, str]
    types: tuple[str, ...]  # one for each operand of the row


_PART = re.compile(r"\{\.([\w.]+)\}|\.(\w+)")
_IDENTIFIER = re.compile(r"(?<![\w$:.{}])(?!(?:ptx|bool|true|false|float|double|u?int\d+_t)\b)[A-Za-z_]\w*")

_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)\})")


@dataclass(frozen=True)
class Row:
    """One line of the table. ``second`` is the expression of the second destination of a pair."""

    pattern: str
    operands_text: str
    expression: str
    second: str = ""
    choices: Mapping[str, Choice] | None = None

    @cached_property
    def opcode(self) -> str:
        return re.split(r"[.{]", self.pattern)[0]

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        found = []
        for optional, required in _PART.findall(self.pattern):
            text = optional or required
            choice = (self.choices or {}).get(text)
            names = tuple(choice.texts) if choice else tuple(text.split("."))
            found.append(Part(names, text.split(".")[0], choice, bool(optional)))
        return tuple(found)

    @cached_property
    def operands(self) -> tuple[Operand, ...]:
        found = []
        for word in self.operands_text.split():
            name, _, type_ = word.partition(":")
            found.append(Operand(name.split("|")[0], type_, "|" in name))
        return tuple(found)

    def match(self, modifiers: tuple[str, ...], types: tuple[str, ...]) -> Variant | None:
        """The variant that modifiers and types select; None unless every one of them is accounted for."""
        left, left_types = list(modifiers), list(types)
        values: dict[str, str] = {}
        taken: dict[str, str] = {}
        for part in self.parts:
            pool = left_types if part.is_type else left
            if part.choice is None:
                present = (
                    all(name in pool for name in part.names)
                    if not part.is_type
                    else pool[:1] == list(part.names)
                )
                matched = part.names if present else ()
                values[part.variable] = "true" if present else "false"
            else:
                candidates = pool[:1] if part.is_type else pool
                matched = tuple(name for name in candidates if name in part.choice.texts)[:1]
                values[part.variable] = part.choice.texts[matched[0]] if matched else part.choice.default
                if matched:
                    taken[part.variable] = matched[0]
            if not matched and not part.optional:
                return None
            for name in matched:
                pool.remove(name)
        if left or left_types:
            return None
        return self._variant(values, taken, types)

    def variants(self) -> Iterator[Variant]:
        """Every concrete opcode of this row."""
        ways = []
        for part in self.parts:
            options = [(name,) for name in part.names] if part.choice else [part.names]
            ways.append(options + ([()] if part.optional else []))
        for combination in itertools.product(*ways):
            words = [
                (name, part.is_type)
                for part, names in zip(self.parts, combination, strict=True)
                for name in names
            ]
            modifiers = tuple(name for name, is_type in words if not is_type)
            types = tuple(name for name, is_type in words if is_type)
            variant = self.match(modifiers, types)
            assert variant is not None, (self.pattern, words)
            yield variant

    def _variant(self, values: dict[str, str], taken: dict[str, str], types: tuple[str, ...]) -> Variant:
        last = types[-1]
        values["T"] = C_TYPES[last]
        wide = last[0] + str(2 * int(last[1:])) if last[0] in "us" and last[1:].isdigit() else ""
        resolved = tuple(
            {"": last, "wide": wide}.get(operand.type, taken.get(operand.type, operand.type))
            for operand in self.operands
        )
        words = [name for part in self.parts for name in self._spelling(part, values, taken)]
        return Variant(self, ".".join([self.opcode, *words]), values, resolved)

    @staticmethod
    def _spelling(part: Part, values: Mapping[str, str], taken: Mapping[str, str]) -> tuple[str, ...]:
        if part.choice:
            return (taken[part.variable],) if part.variable in taken else ()
        return part.names if values[part.variable] == "true" else ()

    @staticmethod
    def fill(template: str, values: Mapping[str, str]) -> str:
        """The template with namespaces spelled out and ``$`` variables replaced."""
        qualified = _IDENTIFIER.sub(lambda found: f"ptx::{found.group(0)}", template)
        return _VARIABLE.sub(lambda found: values[found.group(1) or found.group(2)], qualified)
