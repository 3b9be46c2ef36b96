"""From pairs of samples to a verdict about speed: estimate, interval, looks, rule.

Everything here is arithmetic on arrays: no clock, no GPU. docs/measurement.md derives the choices.

Model of one workload: ``log(expert / candidate)`` of pair p in instance i is ``theta + a_i + e_ip``.
``a_i`` is the placement effect of an instance (measured: about 1 % for a 37 us kernel), ``e_ip`` the
noise of a pair. The estimate is the trimmed mean over instances of the median over that instance's
pairs: the median removes stray samples where they occur; trimming an eighth at each end removes the
rare instance that was disturbed as a whole (25 % seen), and costs 4 % of efficiency otherwise.

The interval is the envelope of two bootstraps. Resampling instances and the ABBA blocks within them
shows both sources of noise; resampling instances alone, widened from the normal to Student's quantile,
is right where there are few instances and they differ, which the first is too narrow for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np

Outcome = Literal["faster", "on_par", "slower", "unresolved"]

LEVEL = 0.99
"""Coverage of a reported interval, all looks taken together."""
LOOK_ERRORS = (0.004, 0.003, 0.003)
"""How the 1 % is split among the looks; the sum bounds the error of the whole sequence
(Bonferroni), whatever the stopping rule. The first look gets most: nearly every verdict ends there."""
MARGIN = 0.01
"""delta: differences within 1 % are not called."""
SHORT_MARGIN = 0.03
"""delta for opponents under SHORT_US, where event overhead of 2-3 us is part of every sample."""
SHORT_US = 50.0
TRIM = 1 / 8
DRAWS = 4000
"""Bootstrap draws: 6 of them lie beyond the narrowest quantile used (0.15 %)."""


@dataclass(frozen=True)
class Samples:
    """Paired times of one workload in microseconds, each of shape (instances, blocks, 2).

    A block is four samples in the order candidate, expert, expert, candidate (or its mirror image),
    which cancels linear drift; it gives two pairs, the last axis.
    """

    candidate_us: np.ndarray
    expert_us: np.ndarray

    def __post_init__(self) -> None:
        shape = self.candidate_us.shape
        if len(shape) != 3 or shape[2] != 2 or shape != self.expert_us.shape:
            raise ValueError(
                f"samples must both be (instances, blocks, 2), got {shape}, {self.expert_us.shape}"
            )
        if shape[0] < 2 or shape[1] < 1:
            raise ValueError(f"at least 2 instances of 1 block are needed, got {shape[:2]}")
        for times in (self.candidate_us, self.expert_us):
            if not (np.isfinite(times).all() and (times > 0).all()):
                raise ValueError("a sample is not a positive finite time")

    @property
    def instances(self) -> int:
        return self.candidate_us.shape[0]

    @property
    def pairs(self) -> int:
        return self.candidate_us.size

    @property
    def log_ratios(self) -> np.ndarray:
        """log(expert / candidate) a pair, shape (instances, blocks, 2): positive is faster."""
        return np.log(self.expert_us) - np.log(self.candidate_us)


@dataclass(frozen=True)
class Estimate:
    """A ratio expert time / candidate time with its interval; ``error`` is the share of intervals
    of this kind that miss the truth (the look's part of 1 %)."""

    ratio: float
    low: float
    high: float
    error: float

    @property
    def half_width(self) -> float:
        """Half the interval relative to the ratio: 0.01 is 1 %."""
        return (self.high - self.low) / (2 * self.ratio)


def margin(expert_us: float) -> float:
    """delta for an opponent that takes ``expert_us`` microseconds."""
    return SHORT_MARGIN if expert_us < SHORT_US else MARGIN


def trimmed_mean(medians: np.ndarray) -> np.ndarray:
    """Mean over the last axis without the TRIM largest and smallest values of it."""
    count = medians.shape[-1]
    cut = trimmed_off(count)
    return np.sort(medians, axis=-1)[..., cut : count - cut].mean(axis=-1)


def trimmed_off(instances: int) -> int:
    """How many instances are left out at each end."""
    return int(TRIM * instances)


def estimate_log_ratio(log_ratios: np.ndarray) -> float:
    """Trimmed mean over instances of the median over pairs; ``log_ratios`` is (instances, blocks, 2)."""
    return float(trimmed_mean(np.median(log_ratios.reshape(len(log_ratios), -1), axis=1)))


def bootstrap(log_ratios: np.ndarray, seed: int, draws: int = DRAWS) -> np.ndarray:
    """``draws`` replicates of the estimate: instances drawn with replacement, then the blocks of
    each drawn instance. Equal seeds give equal draws."""
    instances, blocks, _ = log_ratios.shape
    rng = np.random.default_rng(seed)
    chosen = rng.integers(0, instances, (draws, instances, 1))
    within = rng.integers(0, blocks, (draws, instances, blocks))
    return trimmed_mean(np.median(log_ratios[chosen, within].reshape(draws, instances, -1), axis=2))


def bootstrap_instances(log_ratios: np.ndarray, seed: int, draws: int = DRAWS) -> np.ndarray:
    """``draws`` replicates with whole instances drawn with replacement."""
    medians = np.median(log_ratios.reshape(len(log_ratios), -1), axis=1)
    rng = np.random.default_rng(seed)
    return trimmed_mean(medians[rng.integers(0, len(medians), (draws, len(medians)))])


def student_quantile(p: float, degrees: int) -> float:
    """Quantile of Student's t for ``p`` > 0.5, by bisection on the distribution function.

    The distribution function for whole degrees of freedom is a finite sum (Abramowitz and Stegun
    26.7.3 and 26.7.4); scipy would cost 0.3 s of import.
    """
    low, high = 0.0, 1.0
    while _student_cdf(high, degrees) < p:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _student_cdf(middle, degrees) < p else (low, middle)
    return (low + high) / 2


def _student_cdf(t: float, degrees: int) -> float:
    angle = math.atan(t / math.sqrt(degrees))
    cosine = math.cos(angle)
    odd = degrees % 2
    term = cosine if odd else 1.0
    total = term if not odd or degrees > 1 else 0.0
    for k in range(3 if odd else 2, degrees - 1, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    area = math.sin(angle) * total
    both_sides = 2 / math.pi * (angle + area) if odd else area
    return 0.5 + both_sides / 2


def widening(instances: int, error: float) -> float:
    """Factor on the bootstrap's quantiles for a trimmed mean of ``instances`` independent values.

    Resampling n values gives (n-1)/n of the variance, and its tails are normal where the mean's are
    Student's; a trimmed mean of h values has h-1 degrees of freedom (Tukey and McLaughlin)."""
    p = 1 - error / 2
    t = student_quantile(p, instances - 2 * trimmed_off(instances) - 1)
    return t / NormalDist().inv_cdf(p) * math.sqrt(instances / (instances - 1))


@dataclass(frozen=True)
class Replicates:
    """An estimate (log ratio) with draws of it by both bootstraps; those of ``instances`` are
    already widened."""

    centre: float
    blocks: np.ndarray
    instances: np.ndarray

    def interval(self, error: float) -> Estimate:
        """The envelope of both intervals at 1 - ``error``."""
        quantiles = [error / 2, 1 - error / 2]
        ends = np.array([np.quantile(d, quantiles) for d in (self.blocks, self.instances)])
        low, high = min(ends[:, 0].min(), self.centre), max(ends[:, 1].max(), self.centre)
        return Estimate(math.exp(self.centre), math.exp(low), math.exp(high), error)


def replicate(samples: Samples, error: float, seed: int) -> Replicates:
    """Both bootstraps of one workload. ``error`` chooses the Student quantile to widen to."""
    values = samples.log_ratios
    centre = estimate_log_ratio(values)
    whole = bootstrap_instances(values, seed)
    widened = centre + (whole - centre) * widening(samples.instances, error)
    return Replicates(centre, bootstrap(values, seed), widened)


def estimate(samples: Samples, error: float, seed: int) -> Estimate:
    """Ratio and interval of one workload at 1 - ``error``."""
    return replicate(samples, error, seed).interval(error)


def decide(interval: Estimate, delta: float) -> Outcome:
    """The rule: ``faster`` above 1 + delta, ``slower`` below 1 - delta, ``on_par`` inside, else
    ``unresolved``."""
    if interval.low > 1 + delta:
        return "faster"
    if interval.high < 1 - delta:
        return "slower"
    if interval.low >= 1 - delta and interval.high <= 1 + delta:
        return "on_par"
    return "unresolved"


@dataclass(frozen=True)
class TaskEstimate:
    """Geometric mean over bench workloads, with the rule's answer at ``margin``."""

    estimate: Estimate
    margin: float
    outcome: Outcome


def combine(workloads: Sequence[Samples], margins: Sequence[float], seed: int) -> TaskEstimate:
    """The task's figure: the mean of the workloads' log ratios and its joint bootstrap.

    Workloads are independent (other processes, other memory), so their draws are added draw by
    draw. How many looks each workload took depended on the data, so the interval is taken at the
    strictest level of any look. The margin is the geometric mean of the workloads' margins: a
    candidate at the edge everywhere is at the edge as a whole.
    """
    error = min(LOOK_ERRORS)
    parts = [replicate(w, error, seed + k) for k, w in enumerate(workloads)]
    count = len(parts)
    joint = Replicates(
        sum(p.centre for p in parts) / count,
        np.mean([p.blocks for p in parts], axis=0),
        np.mean([p.instances for p in parts], axis=0),
    )
    delta = math.exp(sum(math.log1p(m) for m in margins) / count) - 1
    interval = joint.interval(error)
    return TaskEstimate(interval, delta, decide(interval, delta))
