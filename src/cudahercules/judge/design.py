"""How many samples a workload gets, how they are paced: designs that are declared in advance."""

from __future__ import annotations

from dataclasses import dataclass

from cudahercules.measure.statistics import LOOK_ERRORS

SLOW_RATIO = 4.0
"""A candidate that takes this many times the expert's time is measured with the slow design."""
HEAVY_US = 500.0
"""From here on a pair's noise is small (0.1 % measured) and its pacing dear: fewer pairs an instance."""
GIANT_US = 20_000.0
PACE_RATIO, PACE_MS = 4.0, 5.0
"""Idle time before a sample: four times its length, at most 5 ms. A 1.4 ms GEMM back to back drives
an H200 from 1980 to 1590 MHz within 0.2 s; with 5 ms gaps it does not; at 20 ms clocks ramp down."""


@dataclass(frozen=True)
class Design:
    """How many samples are taken: ``looks`` are the instances in all at each look, ``blocks`` the
    ABBA blocks (two pairs each) an instance, ``keep`` the candidate samples of each that are checked.
    ``errors`` is the part of 1 % that each look may spend."""

    name: str
    looks: tuple[int, ...]
    blocks: int
    keep: int  # candidate samples an instance that are checked, at secret positions
    errors: tuple[float, ...] = LOOK_ERRORS

    @property
    def kept_at_once(self) -> int:
        """Candidate samples that wait for their check together: all of one look."""
        return self.keep * max(b - a for a, b in zip((0, *self.looks), self.looks, strict=False))


DESIGNS = {
    "light": Design("light", looks=(8, 16, 32), blocks=4, keep=1),
    "heavy": Design("heavy", looks=(8, 16, 32), blocks=2, keep=1),
    "giant": Design("giant", looks=(8, 16), blocks=1, keep=1, errors=(0.005, 0.005)),
    "slow": Design("slow", looks=(4,), blocks=1, keep=2, errors=(0.01,)),
}
"""Every design checks at least 8 candidate samples at its first look."""


def choose_design(candidate_us: float, expert_us: float) -> Design:
    """The design for a workload, from the probe (microseconds)."""
    if candidate_us > SLOW_RATIO * expert_us:
        return DESIGNS["slow"]
    if max(candidate_us, expert_us) >= GIANT_US:
        return DESIGNS["giant"]
    return DESIGNS["heavy" if expert_us >= HEAVY_US else "light"]


def pause_ms(sample_us: float) -> float:
    """Idle milliseconds before a sample that takes ``sample_us``."""
    return min(PACE_MS, PACE_RATIO * sample_us / 1000)
