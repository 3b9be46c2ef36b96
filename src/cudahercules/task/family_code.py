"""A family's own Python runs inside :func:`mistakes_named`, so that its author reads file, line and error."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cudahercules.errors import HerculesError, TaskError


@contextmanager
def mistakes_named(path: Path) -> Iterator[None]:
    """Turn what the code of ``path`` raises into a TaskError, ``file:line: error: what``.

    So is an attempt to end the program. What speaks about the machine passes: errors of memory and files,
    and RuntimeError, which is how PyTorch reports a GPU's troubles.
    """
    try:
        yield
    except (HerculesError, MemoryError, OSError, RuntimeError):
        raise
    except (Exception, SystemExit) as error:
        what = str(error.msg if isinstance(error, SyntaxError) else error)[:300] or "no message"
        raise TaskError(f"{path}:{_line(path, error)}: {type(error).__name__}: {what}") from error


def _line(path: Path, error: BaseException) -> int:
    """The line of ``path`` where it happened: a syntax error's own, else the innermost of its frames."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return error.lineno or 1
    lines = [f.lineno or 1 for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
    return lines[-1] if lines else 1
