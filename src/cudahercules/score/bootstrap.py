"""Intervals of the metrics: what other tasks of the same kind, and other answers, might have given.

Each replicate draws the units of the weighting anew, with replacement: tasks where each task counts, and
families, then tasks in each, where each family does. Then every drawn task's answers are drawn anew from its
pool. The interval is the middle 95 % of the replicates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

REPLICATES = 1000
LEVEL = 0.95
FEWEST = 3
"""Units below which no interval is given: two tasks say nothing about others."""
_SEED = 20250513


def interval(
    of_pool: Callable[[np.ndarray], np.ndarray], families: Sequence[Sequence[np.ndarray]], weighting: str
) -> tuple[float, float] | None:
    """The ends of the interval of the mean, or None for fewer than ``FEWEST`` units.

    ``families`` holds for each family, for each of its tasks, the values of the task's answers;
    ``of_pool`` maps such values (along the last axis) to the task's value."""
    units = len(families) if weighting == "family" else sum(map(len, families))
    if units < FEWEST:
        return None
    random = np.random.default_rng(_SEED)
    drawn = [np.stack([_resampled(of_pool, values, random) for values in tasks]) for tasks in families]
    means = _family_means(drawn, random) if weighting == "family" else _task_means(drawn, random)
    edge = (1 - LEVEL) / 2
    low, high = np.quantile(means, [edge, 1 - edge])
    return float(low), float(high)


def _resampled(of_pool: Callable, values: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """``REPLICATES`` values of one task, each from answers drawn anew."""
    return of_pool(values[random.integers(len(values), size=(REPLICATES, len(values)))])


def _task_means(drawn: Sequence[np.ndarray], random: np.random.Generator) -> np.ndarray:
    values = np.concatenate(drawn)  # tasks x replicates
    picks = random.integers(len(values), size=(REPLICATES, len(values)))
    return values[picks, np.arange(REPLICATES)[:, None]].mean(axis=1)


def _family_means(drawn: Sequence[np.ndarray], random: np.random.Generator) -> np.ndarray:
    replicate = np.arange(REPLICATES)
    chosen = random.integers(len(drawn), size=(REPLICATES, len(drawn)))
    total = np.zeros(REPLICATES)
    for place in range(len(drawn)):
        for family, values in enumerate(drawn):
            here = replicate[chosen[:, place] == family]
            picks = random.integers(len(values), size=(len(here), len(values)))
            total[here] += values[picks, here[:, None]].mean(axis=1)
    return total / len(drawn)
