"""A cursor over tokens."""

from __future__ import annotations

import re

from cudahercules.emulator.ptx.literals import integer
from cudahercules.emulator.ptx.tokens import NestingError, PtxError, Token

MOST = (1 << 32) - 1
"""The largest size, count or directive's number that PTX is taken to state."""
_FILE = re.compile(r'\.file\s+(\d{1,9})\s+"([^"]*)"')


class Stream:
    """``.loc`` and ``.file`` lines are handed to ``on_line`` and never seen by the reader."""

    def __init__(self, text: str, tokens: list[Token]):
        self.source = text
        self.files: dict[int, str] = {}
        for token in tokens:
            if token.kind == "line" and token.text.startswith(".file"):
                found = _FILE.match(token.text)
                if found is None:
                    raise self._error_at(token.start, f"cannot read {token.text!r}")
                self.files[int(found[1])] = found[2]
        self.tokens = [t for t in tokens if not (t.kind == "line" and t.text.startswith(".file"))]
        self.position = 0
        self.loc: str | None = None

    def _settle(self) -> None:
        """Step over ``.loc`` lines (the last one stays in ``loc`` for whoever asks)."""
        tokens = self.tokens
        while self.position < len(tokens) and tokens[self.position].kind == "line":
            self.on_line(tokens[self.position].text)
            self.position += 1

    def on_line(self, text: str) -> None:
        """Called for each ``.loc`` line as it is passed; a body parser replaces it."""

    @property
    def at_end(self) -> bool:
        self._settle()
        return self.position >= len(self.tokens)

    def peek(self) -> str:
        """The next token's text, or the empty string at the end."""
        self._settle()
        return self.tokens[self.position].text if self.position < len(self.tokens) else ""

    def peek_second(self) -> str:
        """The text of the token after the next one."""
        self._settle()
        following = self.position + 1
        return self.tokens[following].text if following < len(self.tokens) else ""

    def next(self) -> Token:
        self._settle()
        if self.position >= len(self.tokens):
            raise self.error("PTX ends in the middle of a statement")
        token = self.tokens[self.position]
        self.position += 1
        return token

    def accept(self, text: str) -> bool:
        if self.peek() == text:
            self.position += 1
            return True
        return False

    def expect(self, text: str) -> Token:
        token = self.next()
        if token.text != text:
            raise self.error(f"expected {text!r}, found {token.text!r}")
        return token

    def name(self) -> str:
        """The next token as a name that is declared here. Raises PtxError."""
        token = self.next()
        if token.kind != "name":
            raise self.error(f"expected a name, found {token.text!r}")
        return token.text

    def number(self, most: int = MOST) -> int:
        """The next token as an integer from 0 to ``most``. Raises PtxError."""
        text = self.next().text
        try:
            value = integer(text)
        except ValueError:
            raise self.error(f"expected a number, found {text!r}") from None
        if not 0 <= value <= most:
            raise self.error(f"{text} is more than {most}, the most that is read here")
        return value

    def skip_past(self, text: str) -> None:
        while self.next().text != text:
            pass

    def error(self, message: str) -> PtxError:
        at = self.tokens[min(self.position, len(self.tokens)) - 1].start if self.tokens else 0
        return self._error_at(at, message)

    def too_deep(self, what: str) -> NestingError:
        return NestingError(str(self.error(f"{what} that nests too deeply")))

    def _error_at(self, at: int, message: str) -> PtxError:
        return PtxError(f"PTX line {self.source.count(chr(10), 0, at) + 1}: {message}")
