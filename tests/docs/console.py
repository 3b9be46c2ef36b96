"""Sessions in the documentation: what is typed, what must come out, and where it can run.

A fenced block ``console`` holds commands (lines that begin with ``$ ``) and, between them, parts of what
they print. After the word stand marks:

    exit=1      the last command's exit code; exit=0,3 allows two (default 0)
    slow        only in the slow tier
    gpu         needs a GPU; counted as skipped elsewhere
    inspect     needs the extra `evaluate`; left out where Inspect is not installed
    checkout    runs in the checkout, not in the session's directory
    ctrl-c      the last command runs until it has printed the lines shown, all but the last one, and
                is then interrupted

A block ``cuda file=NAME`` (or any other language) is written to NAME. The blocks of a page are one
session: directory and exported variables are kept.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^```(?P<info>.*)$")
LEFT_OUT = "…"
"""A line that stands for output which the page does not show."""
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")


@dataclass(frozen=True)
class Block:
    """One fenced block of a page. ``marks`` are the words after the language."""

    page: Path
    line: int
    language: str
    marks: tuple[str, ...]
    text: str

    def has(self, mark: str) -> bool:
        return mark in self.marks

    def value(self, name: str, default: str = "") -> str:
        return next((m.partition("=")[2] for m in self.marks if m.startswith(f"{name}=")), default)

    @property
    def commands(self) -> list[str]:
        return [line[2:] for line in self.text.splitlines() if line.startswith("$ ")]

    @property
    def outputs(self) -> list[str]:
        lines = [line for line in self.text.splitlines() if not line.startswith("$ ")]
        return [line for line in lines if line.strip() not in ("", LEFT_OUT)]


def blocks(page: Path) -> list[Block]:
    """Every fenced block of a page, in order."""
    found: list[Block] = []
    start, info, body = 0, "", []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        fence = _FENCE.match(line)
        if fence and not start:
            start, info, body = number, fence["info"].strip(), []
        elif fence:
            words = info.split()
            language = words[0] if words else ""
            found.append(Block(page, start, language, tuple(words[1:]), "\n".join(body) + "\n"))
            start = 0
        elif start:
            body.append(line)
    return found


def plain(text: str) -> str:
    """Numbers and white space made equal, so that times and line breaks do not matter; nor does it which of
    the threads beyond a buffer's end comes first."""
    return " ".join(_NUMBER.sub("#", text).split()).replace("just past", "# bytes past")
