"""Text on a terminal: consoles, tables, colours.

Names, messages and compiler output come from candidates: everything is shown through :func:`clean`, so
that no control character reaches the terminal, and never read as rich's markup.

Colours repeat what a word beside them says, and only those are used that can be read on a dark and on a
light background alike: green, red and magenta of the terminal's own palette (yellow is not one of them).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

PLAIN_WIDTH = 132
"""Columns where the output is not a terminal."""
WIDE = 110
"""From this width on tables show everything; below it they are made for 80 columns."""
GOOD, BAD, NEITHER = "green", "red", "magenta"
"""Well; not well; not the candidate's matter, or not here."""

_COLOURS = {
    "correct": GOOD,
    "unsupported_on_cpu": NEITHER,
    "invalid_measurement": NEITHER,
    "infrastructure_error": NEITHER,
}


def console(stream: TextIO | None = None) -> Console:
    """A console that neither guesses at highlights nor wraps a file's output at 80 columns."""
    from rich.console import Console

    stream = stream or sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else PLAIN_WIDTH
    return Console(file=stream, width=width, highlight=False, soft_wrap=False, markup=False)


def is_wide(out: Console) -> bool:
    return out.width >= WIDE


def clean(text: str) -> str:
    """``text`` without control characters; line breaks and tabs stay."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


def say(out: Console, text: str, style: str = "", indent: int = 0) -> None:
    """Print ``text``, cleaned: wrapped between words on a terminal, as it is elsewhere."""
    from rich.padding import Padding
    from rich.text import Text

    shown = Text(clean(text), style=style)
    if out.is_terminal:
        out.print(Padding(shown, (0, 0, 0, indent)) if indent else shown)
    else:
        shown = Text("\n".join(" " * indent + line for line in clean(text).split("\n")), style=style)
        out.print(shown, soft_wrap=True)


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    *,
    right: Sequence[str] = (),
    whole: Sequence[str] = (),
) -> Table:
    """A plain table; columns named in ``right`` are aligned to the right, those in ``whole`` are never
    broken into lines (they can be copied)."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for name in columns:
        justify: Literal["left", "right"] = "right" if name in right else "left"
        grid.add_column(name, justify=justify, overflow="fold", no_wrap=name in whole)
    for row in rows:
        grid.add_row(*(cell if isinstance(cell, Text) else Text(clean(cell)) for cell in row))
    return grid


def cut(text: str, width: int) -> str:
    """The first line of ``text``, with an ellipsis where it is longer than ``width``."""
    line = text.split("\n", 1)[0]
    return line if len(line) <= width else line[: max(0, width - 1)] + "\N{HORIZONTAL ELLIPSIS}"


def colour(kind: str) -> str:
    """The colour of a verdict's kind."""
    return _COLOURS.get(kind, BAD)


def coloured(kind: str) -> Text:
    """A verdict's kind in its colour."""
    from rich.text import Text

    return Text(kind, style=colour(kind))
