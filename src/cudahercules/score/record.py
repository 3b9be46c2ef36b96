"""One graded answer as the metrics see it: whose it was, for which task, and what the judge said."""

from __future__ import annotations

from typing import Literal

from cudahercules.judge.verdict import Verdict
from cudahercules.task.model import Model, Task

NO_CODE = "no_code"
"""The outcome of an answer without code; all other outcomes are kinds of verdict."""
ABOUT_US = ("unsupported_on_cpu", "invalid_measurement", "infrastructure_error")
"""Verdicts that say nothing about the answer: such records are in no denominator, and are counted apart."""


class Speed(Model):
    """Expert time / candidate time over the task's bench workloads, with the interval's lower end."""

    ratio: float
    low: float


class Usage(Model):
    """What an answer cost. ``money`` in US dollars, None where the model's prices are not known;
    ``seconds`` of wall time from the first message to the score."""

    input_tokens: int = 0
    output_tokens: int = 0
    money: float | None = None
    seconds: float | None = None


class Record(Model):
    """``outcome`` is a verdict's kind or ``no_code``; ``compiled`` as in :func:`compiles`. ``speed`` is there
    only for a correct answer that was timed. ``device`` is the judge's: where it is ``cpu`` nothing can be
    timed. ``epoch`` counts the answers to one task from 1. The last six come from settings with feedback: the
    best round, and whether it was right under guidance (docs/evaluating.md)."""

    model: str
    setting: str
    task: str
    family: str
    task_class: str
    target: str
    domain: str
    epoch: int
    outcome: str
    compiled: bool
    device: Literal["cpu", "gpu"]
    speed: Speed | None = None
    usage: Usage = Usage()
    guided_correct: bool | None = None
    regressions: int | None = None
    cycles: int | None = None
    drifts: int | None = None
    best_round: int | None = None
    rounds: int | None = None

    @property
    def judged(self) -> bool:
        """Whether the outcome says something about the answer."""
        return self.outcome not in ABOUT_US

    @property
    def correct(self) -> bool:
        return self.outcome == "correct"


def identity(task: Task) -> dict[str, str]:
    """The fields of a record that come from its task."""
    return {
        "task": task.id,
        "family": task.family,
        "task_class": task.task_class.value,
        "target": task.target.value,
        "domain": task.domain,
    }


def speed_of(verdict: Verdict) -> Speed | None:
    """The speed of a correct, timed candidate; None for every other verdict."""
    if verdict.kind == "correct" and verdict.timing.kind == "timed":
        return Speed(ratio=verdict.timing.ratio, low=verdict.timing.low)
    return None


def compiles(verdict: Verdict | None) -> bool:
    """Whether nvcc made a program of the answer: there was code (a verdict), and neither an error nor a
    time limit ended its compilation. What the contract refuses afterwards has compiled."""
    if verdict is None or verdict.kind == "build_error":
        return False
    return not (verdict.kind == "timeout" and verdict.stage == "build")
