"""PTX text cut into tokens. ``.loc`` and ``.file`` end at the line's end and stay whole."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from cudahercules.errors import HerculesError


class PtxError(HerculesError):
    """PTX that the parser cannot read; the message names the line of the PTX text."""


class NestingError(PtxError):
    """PTX that nests deeper than any compiler writes it."""


@dataclass(frozen=True, slots=True)
class Token:
    """``kind`` is line (a ``.loc`` or ``.file`` line), directive, name, number, string or mark."""

    kind: str
    text: str
    start: int
    end: int


_TOKEN = re.compile(
    r"""
      (?P<skip>  \s+ | //[^\n]* | /\*.*?(?:\*/|\Z) | \#[^\n]* )
    | (?P<line>  \.(?:loc|file)\b[^\n]* )
    | (?P<directive> \.[A-Za-z_]\w*(?:::\w+)* )
    | (?P<number> 0[fF][0-9a-fA-F]{8} | 0[dD][0-9a-fA-F]{16} | 0[xX][0-9a-fA-F]+U? | 0[bB][01]+U?
                | \d+\.\d*(?:[eE][+-]?\d+)? | \d+[eE][+-]?\d+ | \d+U? )
    | (?P<name>  [%$_A-Za-z][\w$]*(?:(?:\.|::)\w+)* )
    | (?P<string> "(?:[^"\\]|\\.)*" )
    | (?P<mark>  [-+{}\[\]()<>,;:=|!@~&*^?/] )
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)


def tokenize(text: str) -> list[Token]:
    """All tokens of ``text``. Raises PtxError at the first character that begins none."""
    return list(_tokens(text))


def _tokens(text: str) -> Iterator[Token]:
    position, end = 0, len(text)
    match = _TOKEN.match
    while position < end:
        found = match(text, position)
        if found is None:
            line = text.count("\n", 0, position) + 1
            raise PtxError(f"PTX line {line}: cannot read {text[position : position + 20]!r}")
        start, position = position, found.end()
        kind = found.lastgroup
        assert kind is not None
        if kind == "skip" and found.group().startswith("/*") and not found.group().endswith("*/"):
            raise PtxError(f"PTX line {text.count(chr(10), 0, start) + 1}: a comment without an end")
        if kind != "skip":
            yield Token(kind, found.group(), start, position)
