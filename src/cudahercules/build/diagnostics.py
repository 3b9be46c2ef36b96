"""Turn what nvcc's stages print into typed messages with the candidate's own file names.

Four dialects meet here: g++ (preprocessing and host code), EDG (cudafe++ and cicc), ptxas and ld.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from cudahercules.build.artifact import SOURCE_PREFIX, CompilerMessage

MAX_MESSAGES = 20
MAX_TEXT = 600
MAX_TOTAL = 8000
"""Characters of all messages together: a template error must not fill a model's context."""

WORKING_DIRECTORY = "/proc/self/cwd/"
"""How sources are named to nvcc: an absolute path that is the same in every build directory."""

_PREFIXES = (WORKING_DIRECTORY, SOURCE_PREFIX, "./")
_GCC = re.compile(
    r"^(?P<file>[^\s:][^:]*):(?P<line>\d+):(?:\d+:)? (?P<severity>fatal error|error|warning): (?P<text>.*)$"
)
_EDG = re.compile(
    r"^(?P<file>\S.*?)\((?P<line>\d+)\): (?P<severity>(?:catastrophic |internal )?error|warning)"
    r"(?: #[\w-]+)?: (?P<text>.*)$"
)
_EDG_AT_END = re.compile(r"^At end of source: (?P<severity>error|warning)(?: #[\w-]+)?: (?P<text>.*)$")
_EDG_CONTEXT = re.compile(r"^\s+(?:detected during:? )?(?P<text>instantiation of .* at line \d+.*)$")
_PTXAS_AT = re.compile(
    r"^ptxas (?P<file>\S+), line (?P<line>\d+); (?P<severity>error|fatal)\s*: (?P<text>.*)$"
)
_PTXAS = re.compile(r"^ptxas (?P<severity>error|fatal)\s*: (?P<text>.*)$")
_AS = re.compile(r"^(?P<file>[^\s:]+):(?P<line>\d+): Error: (?P<text>.*)$")
_LD = re.compile(r"multiple definition of `(?P<name>[^']+)'")


class Refused(Exception):
    """A candidate that cannot be built; the fields become those of BuildFailure."""

    def __init__(
        self,
        kind: Literal["error", "timeout", "contract"],
        message: str,
        messages: tuple[CompilerMessage, ...] = (),
    ):
        super().__init__(message)
        self.kind, self.message, self.messages = kind, message, messages


_HINTS = (
    (
        re.compile(r"\"(solve|prepare)\" has \"C\" linkage"),
        "define it with exactly the parameters that solve.h declares",
    ),
    (
        re.compile(r"Unresolved extern function"),
        "device code is compiled one file at a time: define the function in the same .cu file or in a "
        "header that it includes",
    ),
)


def parse(output: str, unit: str, directory: Path | None = None) -> tuple[CompilerMessage, ...]:
    """All messages in ``output``, errors first, each once, trimmed to the limits above.

    ``unit`` is the file that was compiled, for messages that name none. ``directory`` holds the
    ``.ptx`` files that ptxas may complain about, so that its lines become source lines.
    """
    found: dict[CompilerMessage, None] = {}
    lines = output.splitlines()
    for i, line in enumerate(lines):
        message = _message(line, lines[i + 1 :], unit, directory)
        if message is not None:
            found.setdefault(message)
    ordered = sorted(found, key=lambda m: m.severity != "error")
    return tuple(_limit(ordered))


def _message(line: str, rest: list[str], unit: str, directory: Path | None) -> CompilerMessage | None:
    if match := _GCC.match(line) or _EDG.match(line):
        if _is_foreign(match["file"]):
            return None
        text = match["text"] + (_instantiation(rest) if "error" in match["severity"] else "")
        return _make(match["severity"], own_name(match["file"]), int(match["line"]), text)
    if match := _EDG_AT_END.match(line):
        return _make(match["severity"], unit, 0, f"at the end of the source: {match['text']}")
    if match := _PTXAS_AT.match(line):
        file, source_line = ptx_location(directory, match["file"], int(match["line"])) or (unit, 0)
        return _make("error", file, source_line, f"ptxas: {match['text']}")
    if match := _PTXAS.match(line):
        if "assembly aborted due to errors" in match["text"]:
            return None
        return _make("error", unit, 0, f"ptxas: {match['text']}")
    if match := _AS.match(line):
        file, line_number = own_name(match["file"]), int(match["line"])
        if file.endswith(".s"):
            file, line_number = unit, 0
        elif _is_foreign(match["file"]):
            return _make("error", unit, 0, f"inline assembly of the host code reads the file {file}")
        return _make("error", file, line_number, f"inline assembly of the host code: {match['text']}")
    if match := _LD.search(line):
        return _make("error", unit, 0, f"{match['name']} is defined in more than one .cu file")
    return None


def _is_foreign(file: str) -> bool:
    """Whether a message quotes a file that is neither the candidate's nor a header: a candidate that
    includes ``/etc/passwd`` must not read it in our error messages."""
    return file.startswith("/") and not file.startswith(_PREFIXES) and "/include/" not in file


def _instantiation(rest: Iterable[str]) -> str:
    """The first instantiation context that follows an EDG error, if any."""
    for line in rest:
        if _EDG.match(line) or not line.strip():
            break
        if match := _EDG_CONTEXT.match(line):
            return f" [{match['text']}]"
    return ""


def _make(severity: str, file: str, line: int, text: str) -> CompilerMessage:
    text = without_paths(text)
    for pattern, hint in _HINTS:
        if pattern.search(text):
            text = f"{text} ({hint})"
    if len(text) > MAX_TEXT:
        text = text[: MAX_TEXT - 1] + "…"
    kind = "warning" if severity == "warning" else "error"
    return CompilerMessage(severity=kind, file=file, line=line, text=text)


def _limit(messages: list[CompilerMessage]) -> Iterator[CompilerMessage]:
    room = MAX_TOTAL
    for message in messages[:MAX_MESSAGES]:
        room -= len(message.text)
        if room < 0:
            return
        yield message


def own_name(file: str) -> str:
    """The candidate's name of ``file``; a toolkit's or system's header loses its directories."""
    for prefix in _PREFIXES:
        if file.startswith(prefix):
            return file.removeprefix(prefix)
    return file if not file.startswith("/") else _header_name(file)


def _header_name(path: str) -> str:
    """``/…/include/cuda/std/barrier`` as a source would write it: ``cuda/std/barrier``."""
    for marker in ("/include/cccl/", "/include/"):
        if marker in path:
            return path.rsplit(marker, 1)[1]
    return path.rsplit("/", 1)[1]


def without_paths(text: str) -> str:
    """``text`` without build directories; other absolute paths become header names."""
    for prefix in _PREFIXES[:2]:
        text = text.replace(prefix, "")
    return re.sub(r"(?<![\w.>])/(?:[\w.+-]+/)+[\w.+-]+", lambda m: _header_name(m[0]), text)


def ptx_location(directory: Path | None, name: str, line: int) -> tuple[str, int] | None:
    """The source line that PTX line ``line`` came from: the ``.loc`` that holds there."""
    if directory is None:
        return None
    try:
        text = (directory / Path(name).name).read_text(errors="replace")
    except OSError:
        return None
    files = dict(re.findall(r'^\s*\.file\s+(\d+) "([^"]*)"', text, re.MULTILINE))
    for ptx_line in reversed(text.splitlines()[:line]):
        if match := re.match(r"\s*\.loc\s+(\d+) (\d+)", ptx_line):
            return own_name(files.get(match[1], "")), int(match[2])
        if ".entry" in ptx_line or ".func" in ptx_line:
            return None
    return None


def summary(messages: tuple[CompilerMessage, ...]) -> str:
    """The first error as one line: ``solution.cu:5: error: identifier "x" is undefined``."""
    first = messages[0]
    where = f"{first.file}:{first.line}" if first.line else first.file
    errors = sum(m.severity == "error" for m in messages)
    more = f" (and {errors - 1} more)" if errors > 1 else ""
    return f"{where}: {first.severity}: {first.text}{more}"
