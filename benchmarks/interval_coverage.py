"""How often the interval of a measurement misses the truth, simulated without a GPU.

Placement effects of 0.6 % of several shapes, noise of 0.4 % a pair, one pair in fifty off by up to 20 %.
Each trial goes through the looks of its design as a grading does; what is counted is the interval that
is reported (asked for: at most 1 % miss), and calls of "faster" or "slower", which are all wrong here: the
true ratio is 1, or exactly 1 + delta. ``process`` breaks an assumption on purpose: instances of a
process share an effect. The last row is a task's figure over three workloads.
"""

from __future__ import annotations

import math
import sys
from collections import Counter

import numpy as np

from cudahercules.judge.design import DESIGNS, Design
from cudahercules.measure import statistics as st

PLACEMENT, NOISE, STRAY = 0.006, 0.004, 0.02
SHAPES = ("normal", "two_values", "heavy_tails", "rare", "skewed", "process")
DELTA = 0.01


def placement(rng: np.random.Generator, shape: str, count: int) -> np.ndarray:
    """Effects of ``count`` instances, of size PLACEMENT."""
    if shape == "two_values":
        effects = rng.choice([-1.0, 1.0], count)
    elif shape == "heavy_tails":
        effects = rng.standard_t(3, count) / math.sqrt(3)
    elif shape == "rare":
        effects = (rng.random(count) < 0.1) * 3 * rng.choice([-1, 1], count) + rng.normal(0, 1 / 3, count)
    elif shape == "skewed":
        effects = rng.exponential(1, count) - 1
    elif shape == "process":
        effects = rng.normal(0, 1, 2)[np.arange(count) % 2] + rng.normal(0, 0.5, count)
    else:
        effects = rng.normal(0, 1, count)
    return PLACEMENT * effects.reshape(-1, 1, 1)


def measured(
    rng: np.random.Generator, design: Design, shape: str, truth: float
) -> tuple[st.Samples, st.Estimate]:
    """Samples and interval at the look that ends a measurement."""
    size = (design.looks[-1], design.blocks, 2)
    values = math.log(truth) + placement(rng, shape, size[0]) + rng.normal(0, NOISE, size)
    values += (rng.random(size) < STRAY) * rng.uniform(-0.2, 0.2, size)
    for look, error in zip(design.looks, design.errors, strict=True):
        samples = st.Samples(100 * np.exp(-values[:look]), np.full((look, *size[1:]), 100.0))
        interval = st.estimate(samples, error, int(rng.integers(1 << 62)))
        if st.decide(interval, DELTA) != "unresolved":
            break
    return samples, interval


def main(trials: int) -> None:
    rng = np.random.default_rng(1)
    print(f"{trials} trials a row\ndesign shape        truth  missed %  outcomes")
    for design in DESIGNS.values():
        for shape in SHAPES:
            for truth in (1.0, 1 + DELTA):
                intervals = [measured(rng, design, shape, truth)[1] for _ in range(trials)]
                report(f"{design.name:6} {shape:12}", truth, intervals, DELTA)
    for truth in (1.0, 1 + DELTA):
        figures = [
            st.combine(
                [measured(rng, DESIGNS["light"], "normal", truth)[0] for _ in range(3)], [DELTA] * 3, seed=k
            )
            for k in range(trials)
        ]
        report("task   normal      ", truth, [f.estimate for f in figures], DELTA)


def report(name: str, truth: float, intervals: list[st.Estimate], delta: float) -> None:
    missed = sum(not i.low <= truth <= i.high for i in intervals)
    outcomes = Counter(st.decide(i, delta) for i in intervals)
    print(f"{name} {truth:6.2f} {100 * missed / len(intervals):8.2f}   {dict(outcomes)}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500)
