"""The errors that a user of CUDAHercules can meet, each with the exit code that it ends in.

A message says what is wrong *and* what to do; it is printed as it stands, without a traceback.
"""

from __future__ import annotations


class HerculesError(Exception):
    """Base of all errors that are explained to the user. ``exit_code`` is the program's."""

    exit_code = 3


class UsageError(HerculesError):
    """The call, a file or a flag is wrong (exit code 2)."""

    exit_code = 2


class TaskError(UsageError):
    """A task file is wrong; the message names file, line and field."""


class MachineError(HerculesError):
    """This machine lacks something or fails (exit code 3): a compiler, a GPU, disk space."""


class PlanError(HerculesError):
    """A launch plan is damaged, forged, or meant for something else (exit code 2)."""

    exit_code = 2
