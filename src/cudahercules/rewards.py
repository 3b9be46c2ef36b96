"""Rewards for training: functions of verdicts, each documented with its range.

A verdict that says nothing about the candidate (an instruction that the emulator does not know, a machine
that failed) has no reward: the functions raise :class:`NotJudged`, and the step is to be left out or
repeated. The CPU judge times nothing; speeds from it do not exist, and what needs one raises
:class:`NotTimed`.

>>> from cudahercules import grade, load_task
>>> from cudahercules.rewards import milestone
>>> reward = milestone(grade(load_task("kernel/softmax/fp32"), "answer.cu"))
"""

from __future__ import annotations

from collections.abc import Sequence

from cudahercules.judge.verdict import Correct, Timed, Verdict

MARGIN = 0.05
"""What counts as a difference in speed in :func:`milestone`: 5 %."""
DISCOUNT = 0.4
"""What a later turn's reward is worth an earlier one, in :func:`discounted`."""
_ABOUT_US = ("unsupported_on_cpu", "invalid_measurement", "infrastructure_error")


class NotJudged(ValueError):
    """The verdict says nothing about the candidate."""


class NotTimed(ValueError):
    """The candidate is right, but was not timed: there is no speed, and 0 would be a lie."""


def correctness(verdict: Verdict) -> float:
    """1 for a right candidate, 0 for any other. In {0, 1}; needs no GPU."""
    if verdict.kind in _ABOUT_US:
        raise NotJudged(f"{verdict.kind} says nothing about the candidate")
    return float(verdict.kind == "correct")


def speed(verdict: Verdict, *, strict: bool = False) -> float:
    """Expert time / candidate time, the geometric mean over timed workloads; 0 if not right.

    At least 0, and 1 at the expert's speed. ``strict`` takes the lower end of the interval, so that noise
    earns nothing. Raises NotTimed for a right candidate of the CPU judge.
    """
    if not correctness(verdict):
        return 0.0
    timing = _timing(verdict)
    return timing.low if strict else timing.ratio


def milestone(verdict: Verdict, baseline: float = 0.5, *, margin: float = MARGIN) -> float:
    """-1 if not right; 1 if right; 2 if also faster than ``baseline`` times the expert's speed by the margin;
    3 if also faster than the expert by the margin. In {-1, 1, 2, 3}.

    ``baseline`` is a speed in the units of :func:`speed`: say, what a compiler reaches.
    """
    if not correctness(verdict):
        return -1.0
    reached = speed(verdict)
    if reached > 1 + margin:
        return 3.0
    return 2.0 if reached > baseline * (1 + margin) else 1.0


def discounted(rewards: Sequence[float], discount: float = DISCOUNT) -> list[float]:
    """For each turn the discounted sum of its reward and all later ones: R_t = r_t + discount * R_(t+1).

    An early turn that leads to fast code is paid for it. ``discount`` lies in [0, 1).
    """
    if not 0 <= discount < 1:
        raise ValueError(f"discount {discount}: must lie in [0, 1)")
    total, sums = 0.0, []
    for reward in reversed(rewards):
        total = reward + discount * total
        sums.append(total)
    return sums[::-1]


def roofline(verdict: Verdict) -> float:
    """The share of the card's ceiling that is reached, the mean over timed workloads; 0 if not right.

    In [0, 1]: values above 1 (data that stayed in the cache) count as 1. It needs no expert, but a card whose
    ceilings are known: raises NotTimed where none of the workloads has one.
    """
    if not correctness(verdict):
        return 0.0
    shares = [w.ceiling_fraction for w in _timing(verdict).workloads if w.ceiling_fraction > 0]
    if not shares:
        raise NotTimed("no ceilings are known for this card")
    return sum(min(1.0, share) for share in shares) / len(shares)


def profile_share(verdict: Verdict, kernels: Sequence[str]) -> float:
    """Of the launches that a right candidate makes, the share that are its own kernels named in ``kernels``
    (substrings of their names); 0 if not right. In [0, 1].

    A check against lazy answers: a candidate can launch only what it defines or what the task's library
    policy lets it include, and with CUB or CUTLASS allowed this tells how much of the work is the model's. It
    counts launches, not time.
    """
    if not correctness(verdict):
        return 0.0
    assert isinstance(verdict, Correct)
    total = sum(k.launches for k in verdict.kernels)
    own = sum(k.launches for k in verdict.kernels if any(name in k.name for name in kernels))
    return own / total if total else 0.0


def _timing(verdict: Verdict) -> Timed:
    assert isinstance(verdict, Correct)
    if verdict.timing.kind != "timed":
        raise NotTimed(f"not timed: {verdict.timing.reason}")
    return verdict.timing
