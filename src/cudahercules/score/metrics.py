"""The metrics, each with its definition and its denominator.

A metric gives every judged answer a value; a task's value is the mean over its judged answers (one pool of n
answers a task), and pass@k is computed from that pool. Tasks are then averaged in two ways: each task counts
equally, or each family does (sixty variants of attention are not sixty independent facts). Answers that could
not be judged are in no denominator; :class:`Value` says how many there were.

Speeds exist only where a GPU timed the answers. On the CPU judge those metrics are ``None``: not timed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from cudahercules.score.bootstrap import interval
from cudahercules.score.record import Record

Weighting = Literal["task", "family"]
WEIGHTINGS: tuple[Weighting, ...] = ("task", "family")
THRESHOLDS = (0.5, 0.8, 1.0, 1.05)
"""The p of fast_p: half the expert's speed to 5 % above it."""
KS = (1, 2, 3, 5, 10, 20, 50, 100)
"""The k of pass@k, as far as the pools reach."""


Pool = Callable[[np.ndarray], np.ndarray]
"""From the values of a pool's answers (along the last axis) to the pool's value."""


def mean(values: np.ndarray) -> np.ndarray:
    return values.mean(axis=-1)


def pass_at(k: int) -> Pool:
    """The unbiased estimator 1 - C(n-c, k) / C(n, k) of n answers of which c are right: the chance that at
    least one of k answers drawn from the pool is right. Raises ValueError for a pool of fewer than k."""

    def of_pool(values: np.ndarray) -> np.ndarray:
        n = values.shape[-1]
        if n < k:
            raise ValueError(f"pass@{k} of a pool of {n}")
        by_count = np.array([1.0 - math.comb(n - c, k) / math.comb(n, k) for c in range(n + 1)])
        return by_count[(values >= 1).sum(axis=-1)]

    return of_pool


@dataclass(frozen=True)
class Metric:
    """``value`` is what one judged answer gets, ``of_pool`` what a task's pool makes of these; pools of fewer
    than ``least`` answers are left out. ``is_share``: a share of one (shown as per cent), else a ratio."""

    name: str
    definition: str
    value: Callable[[Record], float]
    of_pool: Pool = mean
    least: int = 1
    needs_timing: bool = False
    is_share: bool = True


@dataclass(frozen=True)
class Value:
    """A metric over some records. ``value`` is None where nothing can be said, and ``note`` then says why.
    ``low`` and ``high`` are the ends of the 95 % bootstrap interval, None where there are too few tasks.
    ``tasks``, ``families`` and ``answers`` are what the value is a mean over."""

    value: float | None
    low: float | None
    high: float | None
    tasks: int
    families: int
    answers: int
    note: str = ""


def _fast(p: float, strict: bool) -> Callable[[Record], float]:
    def value(record: Record) -> float:
        if record.speed is None:
            return 0.0
        return float((record.speed.low if strict else record.speed.ratio) >= p)

    return value


def _speed(record: Record) -> float:
    return record.speed.ratio if record.speed is not None else 0.0


def metrics(records: Sequence[Record]) -> tuple[Metric, ...]:
    """All metrics that make sense for ``records``: pass@k up to the size of the largest pool."""
    largest = max((len(pool) for pool in pools(records).values()), default=1)
    return (
        Metric(
            "compile_rate",
            "share of judged answers from which nvcc made a program (no code counts as none)",
            lambda r: float(r.compiled),
        ),
        Metric(
            "pass_rate",
            "share of judged answers whose outputs were right in every workload",
            lambda r: float(r.correct),
        ),
        *(
            Metric(
                f"pass@{k}",
                f"chance that one of {k} answers at least is right: 1 - C(n-c,{k})/C(n,{k}), n judged "
                f"answers a task, c of them right; tasks with n < {k} are left out",
                lambda r: float(r.correct),
                of_pool=pass_at(k),
                least=k,
            )
            for k in KS
            if k <= largest
        ),
        Metric(
            "mean_speed",
            "mean of expert time / candidate time over judged answers, 0 for those that are not right",
            _speed,
            needs_timing=True,
            is_share=False,
        ),
        *(
            Metric(
                f"fast_{p:g}{'_strict' if strict else ''}",
                f"share of judged answers that are right with {_what(strict)} of {p:g} or more",
                _fast(p, strict),
                needs_timing=True,
            )
            for strict in (False, True)
            for p in THRESHOLDS
        ),
    )


def _what(strict: bool) -> str:
    return "the lower end of the interval of expert time / candidate time" if strict else "a speed"


def pools(records: Sequence[Record]) -> dict[str, list[Record]]:
    """The judged answers by task."""
    found: dict[str, list[Record]] = {}
    for record in records:
        if record.judged:
            found.setdefault(record.task, []).append(record)
    return found


NOT_TIMED = "not timed: the CPU judge checks answers only"
NOT_JUDGED = "no answer could be judged"


def compute(
    metric: Metric, records: Sequence[Record], weighting: Weighting, *, bootstrap: bool = True
) -> Value:
    """The value of ``metric`` over ``records`` in one weighting, with its interval."""
    judged = pools(records)
    if not judged:
        return _nothing(NOT_JUDGED)
    if metric.needs_timing and any(r.device == "cpu" for pool in judged.values() for r in pool):
        return _nothing(NOT_TIMED)
    by_family: dict[str, list[np.ndarray]] = {}
    for pool in judged.values():
        if metric.needs_timing:  # right, but no opponent was left to time it against: no speed, and no zero
            pool = [r for r in pool if r.speed is not None or not r.correct]
        if len(pool) >= metric.least:
            by_family.setdefault(pool[0].family, []).append(np.array([metric.value(r) for r in pool]))
    if not by_family:
        return _nothing(f"no task has {metric.least} judged answers")
    ends = interval(metric.of_pool, list(by_family.values()), weighting) if bootstrap else None
    tasks = {family: [float(metric.of_pool(v)) for v in values] for family, values in by_family.items()}
    return Value(
        value=average(tasks, weighting),
        low=ends[0] if ends else None,
        high=ends[1] if ends else None,
        tasks=sum(map(len, tasks.values())),
        families=len(tasks),
        answers=sum(len(v) for values in by_family.values() for v in values),
    )


def _nothing(note: str) -> Value:
    return Value(value=None, low=None, high=None, tasks=0, families=0, answers=0, note=note)


def average(values: Mapping[str, Sequence[float]], weighting: Weighting) -> float:
    """The mean of tasks' values by family, in one weighting."""
    if weighting == "family":
        return sum(sum(v) / len(v) for v in values.values()) / len(values)
    flat = [v for family in values.values() for v in family]
    return sum(flat) / len(flat)
