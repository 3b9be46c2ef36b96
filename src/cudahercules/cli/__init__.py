"""The ``hercules`` program. One module a group of commands; nothing heavy is imported before one runs."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType

import typer

from cudahercules.cli import authoring, browse, grading, iterating, machine, proving
from cudahercules.cli.common import INTERRUPTED
from cudahercules.process import allow_children, stop_children

app = typer.Typer(
    name="hercules",
    help="How close is this CUDA code to what the best human experts ship for the same work?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 correct, 1 not correct, 2 wrong use, 3 machine or infrastructure.",
)
for group in (grading, iterating, browse, authoring, proving, machine):
    for name, command in group.COMMANDS.items():
        app.command(name)(command)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code. No child process outlives the call."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _terminate)
    allow_children()
    try:
        app(args=None if argv is None else list(argv), prog_name="hercules")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    except KeyboardInterrupt:
        print("hercules: interrupted", file=sys.stderr)
        return INTERRUPTED
    finally:
        stop_children()
    return 0


def _terminate(_number: int, _frame: FrameType | None) -> None:
    """End in order on SIGTERM, as ``kill`` and batch systems send it: children are killed on the way."""
    raise SystemExit(128 + signal.SIGTERM)
