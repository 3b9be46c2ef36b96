"""From a model's answer to source files, by rules that a reader can check.

The answer is Markdown. Only fenced blocks are looked at, never prose, and only finished ones:

1. Blocks that name a file (```` ```cuda file=tile.cuh ````, or ``// file: tile.cuh`` as their first line)
   make a candidate of several files, if at least one of them is a ``.cu`` file. A name that comes twice
   means its last block. Blocks without a name are then left out.
2. Otherwise one block is the candidate, ``solution.cu``: the last one that defines ``solve``, or the only
   block of code there is.
3. A block that the answer does not close was cut off: it is never taken.

Blocks in other languages (Python, a shell) are left out. :class:`Extraction` says what was taken, what
was left out and why, and, where nothing was taken, why there was none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cudahercules.build.candidate import GENERATED_HEADER, from_text
from cudahercules.errors import UsageError

SINGLE = "solution.cu"
"""The name of a candidate's only file."""
LANGUAGES = ("", "cuda", "cu", "c++", "cpp", "cxx", "cc", "c", "h", "hpp", "cuh")
"""Languages of a fence that can hold CUDA C++; a fence without one counts, too."""

_FENCE = re.compile(r"^(?P<indent>[ \t]*)(?P<fence>`{3,}|~{3,})[ \t]*(?P<info>[^`]*?)[ \t]*$")
_NAMED_INFO = re.compile(r"(?:^|\s)file=(?P<name>\S+)")
_NAMED_LINE = re.compile(r"^\s*(?://|/\*)\s*file:\s*(?P<name>[^\s*]+)\s*(?:\*/)?\s*$", re.IGNORECASE)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_DEFINES_SOLVE = re.compile(r"\bsolve\s*\([^;{}]*\)\s*\{")


@dataclass(frozen=True)
class Block:
    """A fenced block. ``number`` counts from 1; ``name`` is the file that it names, or ""."""

    number: int
    language: str
    name: str
    text: str
    closed: bool

    @property
    def is_code(self) -> bool:
        return self.language in LANGUAGES

    @property
    def defines_solve(self) -> bool:
        return bool(_DEFINES_SOLVE.search(_COMMENT.sub(" ", self.text)))


@dataclass(frozen=True)
class Extraction:
    """``files`` maps names to text and is empty exactly where ``problem`` says why there was no code."""

    files: dict[str, str]
    taken: str
    ignored: tuple[str, ...]
    problem: str

    def explanation(self) -> str:
        """All of it in one paragraph."""
        first = self.problem or self.taken
        return " ".join([first, *(f"Left out: {what}." for what in self.ignored)])


def extract(answer: str, *, cut_off: bool = False) -> Extraction:
    """The candidate in ``answer``. ``cut_off`` says that a token limit ended the answer."""
    blocks = list(_blocks(answer))
    open_blocks = [b for b in blocks if not b.closed]
    foreign = [b for b in blocks if b.closed and not b.is_code]
    headers = [b for b in blocks if b.closed and b.name == GENERATED_HEADER]
    code = [b for b in blocks if b.closed and b.is_code and b not in headers]
    ignored = [f"block {b.number}, which is {b.language}" for b in foreign]
    ignored += [f"block {b.number}, which the answer does not close" for b in open_blocks]
    ignored += [f"block {b.number}, a {GENERATED_HEADER}: the generated one is used" for b in headers]
    chosen = _named(code) or _single(code)
    if not chosen:
        return Extraction({}, "", tuple(ignored), _why_none(answer, code, open_blocks, cut_off))
    files = {b.name or SINGLE: b.text for b in chosen}
    ignored += [_why_left_out(b, chosen) for b in code if b not in chosen]
    try:
        from_text("answer", files)
    except UsageError as error:
        return Extraction({}, "", tuple(ignored), f"What the answer names is no candidate: {error}.")
    return Extraction(files, _what_was_taken(chosen, code), tuple(ignored), "")


_LINE_BREAK = re.compile(r"\r\n?|\n")
"""As C++ and Markdown see lines; ``splitlines`` breaks them at form feeds and U+2028, too."""


def _blocks(answer: str) -> Iterator[Block]:
    number = 0
    opening: re.Match[str] | None = None
    lines: list[str] = []
    for line in _LINE_BREAK.split(answer.removesuffix("\n")):
        fence = _FENCE.match(line)
        if opening is None:
            if fence:
                number, opening, lines = number + 1, fence, []
        elif fence and not fence["info"] and fence["fence"].startswith(opening["fence"]):
            yield _block(number, opening, lines, closed=True)
            opening = None
        else:
            lines.append(line.removeprefix(opening["indent"]))
    if opening is not None:
        yield _block(number, opening, lines, closed=False)


def _block(number: int, opening: re.Match[str], lines: Sequence[str], closed: bool) -> Block:
    info = opening["info"]
    named = _NAMED_INFO.search(info)
    words = _NAMED_INFO.sub(" ", info).split()
    language = words[0].lower().strip("{}.") if words else ""
    name = named["name"].strip("\"'") if named else ""
    if not name and lines and (first := _NAMED_LINE.match(lines[0])):
        name = first["name"]
    return Block(number, language, name, "".join(f"{line}\n" for line in lines), closed)


def _named(code: Sequence[Block]) -> list[Block]:
    """The last block of each name, if a ``.cu`` file is among them."""
    last = {b.name: b for b in code if b.name}
    return list(last.values()) if any(name.endswith(".cu") for name in last) else []


def _single(code: Sequence[Block]) -> list[Block]:
    solutions = [b for b in code if b.defines_solve]
    chosen = solutions[-1] if solutions else code[0] if len(code) == 1 else None
    return [Block(chosen.number, chosen.language, "", chosen.text, True)] if chosen else []


def _what_was_taken(chosen: Sequence[Block], code: Sequence[Block]) -> str:
    if chosen[0].name:
        return f"Taken: {', '.join(f'{b.name} (block {b.number})' for b in chosen)}."
    block = chosen[0]
    others = sum(b.defines_solve for b in code) > 1
    why = ", the last one that defines solve" if others else ""
    return f"Taken: block {block.number}{why}."


def _why_left_out(block: Block, chosen: Sequence[Block]) -> str:
    if chosen[0].name and block.name:
        return f"block {block.number}, an earlier text of {block.name}"
    if chosen[0].name:
        return f"block {block.number}, which names no file while others do"
    if block.defines_solve:
        return f"block {block.number}, an earlier definition of solve"
    return f"block {block.number}, which does not define solve"


def _why_none(answer: str, code: Sequence[Block], unfinished: Sequence[Block], cut_off: bool) -> str:
    limit = " at its token limit" if cut_off else ""
    if not answer.strip():
        return f"No code: the answer is empty{limit}."
    if code:
        return f"No code: the answer has {len(code)} blocks of code, and none of them defines solve."
    if unfinished:
        return f"No code: the answer ends{limit} inside a block of code; unfinished code is not graded."
    if _DEFINES_SOLVE.search(_COMMENT.sub(" ", answer)):
        return "No code: solve stands outside a fenced block, and only fenced blocks are taken."
    return "No code: the answer has no fenced block of code." + (" It was cut off." if cut_off else "")
