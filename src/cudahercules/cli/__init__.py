"""The ``hercules`` program. Its commands are in :mod:`cudahercules.cli.program`; here is what must stand
before anything that takes time to import: what signals and a reader that goes away mean."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

INTERRUPTED = 130


class Standing:
    """What has happened to this run from outside."""

    interrupted = False
    reader_gone = False


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code. No child process outlives the call."""
    _open_streams()
    Standing.interrupted = Standing.reader_gone = False
    with _signals(), _patient_stdout():
        try:
            return _run(argv)
        except SystemExit as end:
            # Outside of a command Typer turns an interruption into a silent exit.
            if isinstance(getattr(end.__context__, "__cause__", None), KeyboardInterrupt):
                return _interrupted()
            return end.code if isinstance(end.code, int) else 1
        except KeyboardInterrupt:
            return _interrupted()
        except Exception:
            # A library whose import is interrupted may say so with an error of its own.
            if Standing.interrupted:
                return _interrupted()
            raise


def _open_streams() -> None:
    """Streams that were closed (``>&-``) lead nowhere: else the next file opened would be one of them."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


def _run(argv: Sequence[str] | None) -> int:
    from cudahercules.process import allow_children, stop_children

    allow_children()
    try:
        from cudahercules.cli.program import app

        app(args=None if argv is None else list(argv), prog_name="hercules")
    finally:
        stop_children()
    return 0


def _interrupted() -> int:
    print("hercules: interrupted", file=sys.stderr)
    return INTERRUPTED


@contextmanager
def _signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end the program in order: children are killed on the way."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ours = {signal.SIGTERM: _terminate, signal.SIGHUP: _terminate, signal.SIGINT: _interrupt}
    ignored = {number for number in ours if signal.getsignal(number) is signal.SIG_IGN}  # as nohup does
    before = {number: signal.signal(number, ours[number]) for number in ours if number not in ignored}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _terminate(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _interrupt(_number: int, frame: FrameType | None) -> None:
    Standing.interrupted = True
    if _imports(frame):
        # Native modules print tracebacks of their own when an exception ends their import.
        if "cudahercules.process" in sys.modules:
            sys.modules["cudahercules.process"].stop_children()
        os.write(2, b"hercules: interrupted\n")
        os._exit(INTERRUPTED)
    raise KeyboardInterrupt


def _imports(frame: FrameType | None) -> bool:
    """Whether a module is being imported at ``frame``."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


@contextmanager
def _patient_stdout() -> Iterator[None]:
    """While a command runs, a reader that has gone (``| head -1``) is no error: its exit code stays true."""
    stdout = sys.stdout
    sys.stdout = _Patient(stdout)  # type: ignore[assignment]
    try:
        yield
    finally:
        sys.stdout = stdout


class _Patient:
    """A text stream that goes on into nothing when its reader has gone."""

    def __init__(self, stream: Any):
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            self._give_up()
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._give_up()

    def _give_up(self) -> None:
        Standing.reader_gone = True
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, self._stream.fileno())
        os.close(nothing)
