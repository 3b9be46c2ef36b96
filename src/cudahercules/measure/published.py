"""The best figures that others published for what tasks ask (``published.json``), with card and source.

The first entry whose pattern fits a task is the one for it, so special ones come before general ones.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Literal

from pydantic import Field, TypeAdapter, ValidationError

from cudahercules.errors import MachineError
from cudahercules.task.model import Model, Task

FILE = Path(__file__).with_name("published.json")


class Published(Model):
    """``rate`` is in operations or bytes a second (``unit``), counted as the family counts them."""

    tasks: str  # a pattern of task ids
    rate: float = Field(gt=0)
    unit: Literal["flops", "bytes"]
    gpu: str  # as the driver calls it
    what: str
    source: str = Field(min_length=8)


@lru_cache(maxsize=1)
def all_published() -> tuple[Published, ...]:
    """Every entry. Raises MachineError for a damaged file."""
    try:
        return TypeAdapter(tuple[Published, ...]).validate_json(FILE.read_bytes())
    except ValidationError as error:
        raise MachineError(f"{FILE}: {error.errors()[0]['msg']}: install the package again") from error


def published(task: Task) -> Published | None:
    """The best figure known for ``task``; None if there is none."""
    return next((p for p in all_published() if fnmatchcase(task.id, p.tasks)), None)
