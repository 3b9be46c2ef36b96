"""What a sample carries from its solver to its scorer, in Inspect's store."""

from __future__ import annotations

from typing import Any

from inspect_ai.util import StoreModel
from pydantic import Field


class Seat(StoreModel):
    """Which task a sample is about, and the how-manieth answer to it (from 1)."""

    task: str = ""
    epoch: int = 0


class Answer(StoreModel):
    """The candidate that a solver settled on; without one (``given`` false) the scorer looks into the last
    message. ``explanation`` says what was taken from the model's words. ``guided`` and ``rounds`` are
    :class:`~cudahercules.evaluate.trajectory.Trajectory` as plain data, for settings with feedback."""

    given: bool = False
    files: dict[str, str] = Field(default_factory=dict)
    explanation: str = ""
    trajectory: dict[str, Any] | None = None
