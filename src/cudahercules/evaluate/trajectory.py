"""The rounds of one sample under feedback: which was best, and where a model went back, round in circles, or
away from fast code.

A round is better than another if it came further (a build, a plan, right answers), and among right ones if it
is faster. The best so far is never given up: the final answer is the best one, the earliest of equals.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from typing import Any

from cudahercules.judge.verdict import Verdict
from cudahercules.score.record import NO_CODE, speed_of
from cudahercules.task.model import Model

DRIFT = 0.95
"""A right answer below this share of the best speed so far has drifted to slower code."""
_STAGES = (
    NO_CODE,
    "build_error",
    "contract_error",
    "cheating",
    "timeout",
    "crash",
    "incorrect",
    "unsupported_on_cpu",
    "correct",
)
_NOISE = re.compile(r"//[^\n]*|/\*.*?\*/|\s+", re.DOTALL)


class Round(Model):
    """One answer and what guidance said of it. ``speed`` is the geometric mean over guidance workloads,
    ``speeds`` has each; both are empty for what is not right or not timed. ``fingerprint`` is the same for
    sources that differ in comments and white space only. ``regression``: an earlier round came further, or
    was clearly faster (``drift``, below 95 % of its speed). ``repeats``: the earlier round with the same
    code; ``cycle``: that was not the round just before."""

    number: int
    outcome: str
    passed: int
    speed: float | None
    speeds: dict[str, float]
    fingerprint: str
    regression: bool
    drift: bool
    repeats: int | None
    cycle: bool
    files: dict[str, str]
    explanation: str

    @property
    def rank(self) -> tuple[int, int, float]:
        """Larger is better."""
        return _STAGES.index(self.outcome), self.passed, self.speed or 0.0


class Trajectory(Model):
    """The rounds of a sample, in order."""

    rounds: tuple[Round, ...] = ()

    @property
    def best(self) -> Round | None:
        """The best round so far, the earliest of equals; None before the first one with code."""
        with_code = [r for r in self.rounds if r.files]
        return max(with_code, key=lambda r: (r.rank, -r.number), default=None)

    def extended(self, files: Mapping[str, str], explanation: str, verdict: Verdict | None) -> Trajectory:
        """With one more round: the code (none: ``{}`` and no verdict) and what guidance said."""
        outcome = verdict.kind if verdict is not None else NO_CODE
        speed = speed_of(verdict) if verdict is not None else None
        fingerprint = fingerprint_of(files)
        same = [r.number for r in self.rounds if fingerprint and r.fingerprint == fingerprint]
        best = self.best
        drift = (
            speed is not None
            and best is not None
            and best.speed is not None
            and speed.ratio < DRIFT * best.speed
        )
        fell = best is not None and _STAGES.index(outcome) < _STAGES.index(best.outcome)
        number = len(self.rounds) + 1
        new = Round(
            number=number,
            outcome=outcome,
            passed=len(getattr(verdict, "passed", ()) or getattr(verdict, "checks", ())),
            speed=speed.ratio if speed is not None else None,
            speeds=speeds_of(verdict),
            fingerprint=fingerprint,
            regression=fell or drift,
            drift=drift,
            repeats=same[-1] if same else None,
            cycle=bool(same) and same[-1] < number - 1,
            files=dict(files),
            explanation=explanation,
        )
        return Trajectory(rounds=(*self.rounds, new))

    def record_fields(self) -> dict[str, Any]:
        """The fields of a score's record that come from the rounds."""
        best = self.best
        return {
            "rounds": len(self.rounds),
            "best_round": best.number if best is not None else None,
            "guided_correct": best is not None and best.outcome == "correct",
            "regressions": sum(r.regression for r in self.rounds),
            "cycles": sum(r.cycle for r in self.rounds),
            "drifts": sum(r.drift for r in self.rounds),
        }

    def gap(self, final: Verdict | None) -> dict[str, Any]:
        """What guided beside what scores. Speeds are geometric means: of the best round under guidance, and
        of the final verdict over the same workloads and over those that were held back; None where not
        timed."""
        best = self.best
        speeds = speeds_of(final)
        shown = best.speeds if best is not None else {}
        return {
            "guided_outcome": best.outcome if best is not None else NO_CODE,
            "final_outcome": final.kind if final is not None else NO_CODE,
            "guided_speed": best.speed if best is not None else None,
            "final_speed_shown": _geometric_mean([v for name, v in speeds.items() if name in shown]),
            "final_speed_held_back": _geometric_mean([v for name, v in speeds.items() if name not in shown]),
        }


def speeds_of(verdict: Verdict | None) -> dict[str, float]:
    """Expert time / candidate time by bench workload; empty for what is not right or not timed."""
    if verdict is not None and verdict.kind == "correct" and verdict.timing.kind == "timed":
        return {w.workload: w.ratio for w in verdict.timing.workloads}
    return {}


def fingerprint_of(files: Mapping[str, str]) -> str:
    """A digest of the sources without comments and white space; "" for none."""
    if not files:
        return ""
    bare = [f"{name}\0{_NOISE.sub('', text)}" for name, text in sorted(files.items())]
    return hashlib.sha256("\0".join(bare).encode()).hexdigest()[:16]


def _geometric_mean(values: list[float]) -> float | None:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None
