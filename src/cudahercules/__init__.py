"""CUDAHercules: how close is this CUDA code to what the best human experts ship?

>>> from cudahercules import load_task, grade
>>> verdict = grade(load_task("module/layernorm_fwd/h1024_fp32@general"), "my_kernel.cu")

Everything is imported when it is first used: importing the package costs a millisecond.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["Task", "Verdict", "__version__", "all_tasks", "exit_code", "grade", "load_task"]

if TYPE_CHECKING:
    from cudahercules.judge.grade import grade
    from cudahercules.judge.verdict import Verdict, exit_code
    from cudahercules.task.load import all_tasks, load_task
    from cudahercules.task.model import Task

_HOME = {
    "Task": "cudahercules.task.model",
    "Verdict": "cudahercules.judge.verdict",
    "all_tasks": "cudahercules.task.load",
    "exit_code": "cudahercules.judge.verdict",
    "grade": "cudahercules.judge.grade",
    "load_task": "cudahercules.task.load",
}


def __getattr__(name: str) -> Any:
    """Import a public name from its home the first time it is asked for (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
