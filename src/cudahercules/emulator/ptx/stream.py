"""A cursor over tokens."""

from __future__ import annotations

from cudahercules.emulator.ptx.tokens import PtxError, Token


class Stream:
    """``.loc`` and ``.file`` lines are handed to ``on_line`` and never seen by the reader."""

    def __init__(self, text: str, tokens: list[Token]):
        self.source = text
        self.files: dict[int, str] = {}
        for token in tokens:
            if token.kind == "line" and token.text.startswith(".file"):
                parts = token.text.split(None, 2)
                self.files[int(parts[1])] = parts[2].split('"')[1]
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
            raise PtxError("PTX ends in the middle of a statement")
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

    def skip_past(self, text: str) -> None:
        while self.next().text != text:
            pass

    def error(self, message: str) -> PtxError:
        at = self.tokens[min(self.position, len(self.tokens)) - 1].start if self.tokens else 0
        return PtxError(f"PTX line {self.source.count(chr(10), 0, at) + 1}: {message}")
