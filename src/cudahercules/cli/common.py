"""What all commands share: errors as one message, exit codes, progress."""

from __future__ import annotations

import errno
import functools
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import typer

from cudahercules.cli import INTERRUPTED, Standing
from cudahercules.errors import HerculesError

SLOW_S = 2.0
"""A command that takes longer than this says what it is doing."""


def explained(command: Callable[..., Any]) -> Callable[..., Any]:
    """Turn the errors that a user can meet into one message on stderr and the right exit code."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return command(*args, **kwargs)
        except KeyboardInterrupt:
            _interrupted()
        except typer.Exit:
            raise
        except HerculesError as error:
            fail(str(error), error.exit_code)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                fail(f"no space left on the disk ({error.filename or 'output'}): free some and try again", 3)
            _our_fault(error)
        except Exception as error:
            if Standing.interrupted:  # a library may turn an interrupted import into an error of its own
                _interrupted()
            _our_fault(error)

    return run


def _interrupted() -> None:
    from cudahercules.process import stop_children

    stop_children()
    fail("interrupted: nothing was written for what had not ended", INTERRUPTED)


def _our_fault(error: Exception) -> None:
    """An exception that no user's mistake should be able to cause: short, unless debugging."""
    if os.environ.get("HERCULES_DEBUG"):
        raise error
    frame = traceback.extract_tb(error.__traceback__)[-1]
    fail(
        f"{type(error).__name__} at {frame.filename}:{frame.lineno}: {error}. This is a fault of "
        "CUDAHercules; HERCULES_DEBUG=1 shows the traceback",
        3,
    )


def fail(message: str, code: int) -> None:
    """Print one message to stderr and end with ``code``."""
    from cudahercules.report.text import clean

    print(f"hercules: {clean(message)}", file=sys.stderr)
    raise typer.Exit(code)


def emit(text: str) -> None:
    """Write one line to stdout at once: readers of a pipe see verdicts as they come."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class Progress:
    """Says on stderr what is going on; silent until ``SLOW_S`` have passed, and where stderr is no
    terminal."""

    def __init__(self) -> None:
        self._stage = ""
        self._status: Any = None
        self._open = False
        self._lock = threading.Lock()

    def __call__(self, stage: str) -> None:
        """Say that ``stage`` begins."""
        with self._lock:
            self._stage = stage
            if self._status is not None:
                self._status.update(stage)

    def about(self, subject: str) -> Callable[[str], None]:
        """The same, with ``subject`` before each stage."""
        return lambda stage: self(f"{subject}: {stage}")

    @contextmanager
    def running(self) -> Iterator[Progress]:
        """Show progress while the block runs."""
        timer = threading.Timer(SLOW_S, self._show)
        timer.daemon = True
        self._open = True
        if sys.stderr.isatty():
            timer.start()
        try:
            yield self
        finally:
            timer.cancel()
            self._hide()

    def _show(self) -> None:
        from rich.console import Console

        with self._lock:
            if self._open:
                self._status = Console(stderr=True, highlight=False, markup=False).status(self._stage)
                self._status.start()

    def _hide(self) -> None:
        with self._lock:
            self._open = False
            if self._status is not None:
                self._status.stop()
                self._status = None


def progress() -> AbstractContextManager[Progress]:
    """Progress for what runs inside a ``with``."""
    return Progress().running()


class Bar:
    """A bar on stderr over a known number of things; nothing where stderr is no terminal."""

    def __init__(self, total: int, done: int = 0):
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        text = TextColumn("{task.description}", markup=False)
        columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), text)
        here = Console(stderr=True, highlight=False, markup=False)
        quiet = not sys.stderr.isatty()
        self._bar = Progress(*columns, console=here, transient=True, disable=quiet)
        self._row = self._bar.add_task("", total=total, completed=done)

    def say(self, stage: str) -> None:
        self._bar.update(self._row, description=stage)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """One thing is done: for what is printed about it the bar goes away."""
        self._bar.advance(self._row)
        self._bar.stop()
        try:
            yield
        finally:
            self._bar.start()

    def __enter__(self) -> Bar:
        self._bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._bar.stop()
