"""The paired measurement of one workload: candidate and expert take turns until the rule decides.

This module knows contestants, clocks and counters, not plans or tasks, so that a simulated
contestant can play a whole measurement. What is done and why: docs/measurement.md.

    solo   the expert alone: the band in which its later times must lie
    probe  the candidate's first samples choose a *design* declared in advance
    looks  instances (fresh memory on both sides) of ABBA blocks; after each look the kept outputs
           are checked and the rule is asked
    after  the expert alone again, then the warm figure
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from cudahercules.errors import MachineError
from cudahercules.judge.design import SLOW_RATIO, Design, choose_design, pause_ms
from cudahercules.measure import statistics as st
from cudahercules.measure.counters import POWER_CAP, Counters, Reading, grown, machine_trouble
from cudahercules.replay.interface import (
    CannotReplay,
    Contestant,
    ContestantFault,
    ContestantHang,
    Request,
    Sample,
)

SOLO_SAMPLES = 6
SOLO_BAND = 0.05
"""Band around the expert's solo samples: placement (1 %), boost clock steps (15 of 1980 MHz) and the
scatter of a median of six, with room. A neighbour or heat that matters moves times further."""
SOLO_SLACK_US = 2.0
SETTLING = 4
"""Samples thrown away after the judge has computed references: giving their memory back disturbs the
next three or so (8 % measured)."""
WARM_PAIRS = 4
CLOCK_EXCESS = 0.02
"""Events may not claim more time than the process's own clock saw, beyond 2 % and 5 us."""
CLOCK_EXCESS_US = 5.0
OUTSIDE_MS = 20.0
"""The outside clock compares a run of launches of about this length, 2 to 50 of them."""
OUTSIDE_TOLERANCE, OUTSIDE_SLACK_US = 0.05, 300.0
"""Over such a run the process's clock may exceed the events by 5 % and the cost of one hand-over."""
OUTSIDE_RUNS = 3
FAILURES = (ContestantFault, ContestantHang, CannotReplay, MachineError)
RETRIES = 3
"""Blocks of one workload that may be repeated for the machine's sake before it is given up."""


class Sides(Protocol):
    """Opens contestants on fresh memory; ``expert`` is asked right after ``candidate``, so that both can open
    at the same time. The one opened before on that side may be closed or its
    process reused: it is never used again by the caller."""

    def candidate(self) -> Contestant: ...

    def expert(self) -> Contestant: ...


class Inspector(Protocol):
    """Looks at kept outputs. ``take`` is called right after an instance's blocks while its
    contestant lives; ``judge`` after the look's last block, and raises to end the measurement.
    With ``check_both`` the opponent's samples come as well; ``contestant`` tells the sides apart."""

    def take(self, contestant: Contestant, sample: Sample) -> None: ...

    def judge(self) -> None: ...


Kept = list[tuple[Contestant, Sample]]
Stage = Callable[[str], AbstractContextManager[Any]]


class ExpertFailed(Exception):
    """The expert, not the candidate, faulted, hung or could not start; its cause says how."""


class InvalidMeasurement(Exception):
    """The machine, not the candidate, spoiled the measurement; the message has the numbers."""


@dataclass(frozen=True)
class Block:
    """One ABBA block: the card's readings around it and the throttle time that fell into it."""

    after: Reading
    throttle_ns: dict[str, int]


@dataclass
class Measured:
    """Everything that was seen; times in microseconds."""

    design: Design
    samples: st.Samples
    estimate: st.Estimate
    margin: float
    outcome: st.Outcome
    looks: int
    checked: int
    method: str
    candidate_us: float
    expert_us: float
    solo_us: tuple[float, ...]
    warm_candidate_us: float | None
    warm_expert_us: float | None
    blocks: tuple[Block, ...]
    outside_clock: dict[str, float]
    judge_ms: float
    """The judge's own wall time around all samples; ``samples_ms`` is the part in which they ran."""
    samples_ms: float
    pause_ms: float
    repeated: int
    flags: list[str] = field(default_factory=list)

    @property
    def throttle_ns(self) -> dict[str, int]:
        total: dict[str, int] = {}
        for block in self.blocks:
            for reason, ns in block.throttle_ns.items():
                total[reason] = total.get(reason, 0) + ns
        return total


class Measurement:
    """One workload from the first sample to the rule's answer. Use :func:`measure`."""

    def __init__(
        self,
        sides: Sides,
        inspector: Inspector,
        counters: Counters,
        seed_of: Callable[[int], int],
        secret: int,
        monotonic_ns: Callable[[], int],
        check_both: bool = False,
        stage: Stage = nullcontext,
    ):
        self.stage = stage
        self.sides, self.inspector, self.counters = sides, inspector, counters
        self.check_both = check_both
        self.seed_of, self.monotonic_ns = seed_of, monotonic_ns
        self.random = random.Random(secret)
        self.bootstrap_seed = self.random.getrandbits(63)
        self.next_seed = 0
        self.pause = 0.0
        self.last_reading = Reading()
        self.retries = 0
        self.outside_ns = self.inside_ns = 0
        self.blocks: list[Block] = []
        self.flags: list[str] = []
        self._opened: tuple[Contestant, Contestant] | None = None

    @property
    def candidate(self) -> Contestant:
        return self._both()[0]

    @property
    def expert(self) -> Contestant:
        return self._both()[1]

    def _both(self) -> tuple[Contestant, Contestant]:
        if self._opened is None:
            raise RuntimeError("no instance is open")
        return self._opened

    # --- samples ---------------------------------------------------------------------------------

    def new_seed(self) -> int:
        self.next_seed += 1
        return self.seed_of(self.next_seed)

    def run(self, contestant: Contestant, requests: list[Request]) -> list[Sample]:
        """Samples in one hand-over, each held against the judge's own clock."""
        began = self.monotonic_ns()
        try:
            samples = contestant.batch(requests)
        except FAILURES as error:
            if contestant is self.candidate:
                raise
            raise ExpertFailed(str(error)) from error
        ended = self.monotonic_ns()
        if len(samples) != len(requests) or [s.seed for s in samples] != [r.seed for r in requests]:
            raise InvalidMeasurement("a contestant answered with other samples than were asked for")
        for sample in samples:
            allowed = sample.wall_ns / 1000 * (1 + CLOCK_EXCESS) + CLOCK_EXCESS_US
            if not 0 < sample.microseconds <= allowed:
                raise InvalidMeasurement(
                    f"the events say {sample.microseconds:.1f} us where the process's clock saw "
                    f"{sample.wall_ns / 1000:.1f} us"
                )
            if sample.changed_inputs:
                # For the candidate's kept samples the inspector reports this as a wrong answer.
                self.flag(f"{self.name(contestant)} changed inputs: {', '.join(sample.changed_inputs)}")
            for warning in sample.warnings:
                self.flag(f"{self.name(contestant)}: {warning}")
        inside = sum(s.wall_ns for s in samples) + int(sum(r.pause_ms for r in requests) * 1e6)
        self.outside_ns += ended - began
        self.inside_ns += inside
        if ended - began < 0.98 * inside - 1000 * CLOCK_EXCESS_US:
            raise InvalidMeasurement(
                f"{len(samples)} samples claim {inside / 1e6:.3f} ms; by the judge's clock they took "
                f"{(ended - began) / 1e6:.3f} ms"
            )
        return samples

    def name(self, contestant: Contestant) -> str:
        return "candidate" if contestant is self.candidate else "expert"

    def flag(self, text: str) -> None:
        if text not in self.flags:
            self.flags.append(text)

    def request(
        self, seed: int | None = None, *, cold: bool = True, keep: bool = False, hash_inputs: bool = False
    ) -> Request:
        return Request(
            seed=self.new_seed() if seed is None else seed,
            cold=cold,
            keep=keep,
            hash_inputs=hash_inputs,
            pause_ms=self.pause,
        )

    def times(self, contestant: Contestant, count: int, *, cold: bool = True) -> list[float]:
        """``count`` samples of one side alone."""
        return [s.microseconds for s in self.run(contestant, [self.request(cold=cold) for _ in range(count)])]

    # --- stages ----------------------------------------------------------------------------------

    def open(self) -> None:
        """A new instance: fresh memory on both sides."""
        with self.stage("open"):
            candidate = self.sides.candidate()
            try:
                expert = self.sides.expert()
            except FAILURES as error:
                raise ExpertFailed(str(error)) from error
        self._opened = (candidate, expert)

    def next_instance(self) -> None:
        """Open another instance and discard one sample of each side."""
        self.open()
        self.times(self.candidate, 1)
        self.times(self.expert, 1)

    def probe(self) -> tuple[Design, list[float]]:
        """Open the first instance, take the expert's solo band, choose the design and the pace."""
        self.open()
        candidate, expert = self.candidate, self.expert
        first = self.times(expert, 2)[-1]
        self.pause = pause_ms(first)
        solo = self.times(expert, SOLO_SAMPLES)
        expert_us = float(np.median(solo))
        probed = self.times(candidate, 1)
        if probed[0] <= 2 * SLOW_RATIO * expert_us:  # the first sample of all may pay for warming up
            probed = self.times(candidate, 2)
        candidate_us = min(probed)
        self.pause = pause_ms(max(candidate_us, expert_us))
        return choose_design(candidate_us, expert_us), solo

    def block(self, order: str, kept: set[int]) -> tuple[list[float], list[float], Kept]:
        """One block in ``order`` (``ABBA`` or ``BAAB``): candidate times, expert times (in pair
        order) and the kept samples with their contestants. ``kept`` holds pair numbers 0 and 1.

        Every sample is a hand-over of its own, and the partner of a kept sample hashes its inputs as
        well: what surrounds a sample is the same on both sides."""
        seeds = (self.new_seed(), self.new_seed())
        sides = {"A": self.candidate, "B": self.expert}
        result: dict[str, list[Sample]] = {"A": [], "B": []}
        for side in order:
            pair = len(result[side])
            look = pair in kept
            keep = look and (side == "A" or self.check_both)
            request = self.request(seeds[pair], keep=keep, hash_inputs=look)
            result[side] += self.run(sides[side], [request])
        checked = "AB" if self.check_both else "A"
        keeps = [(sides[side], s) for side in checked for k, s in enumerate(result[side]) if k in kept]
        return [s.microseconds for s in result["A"]], [s.microseconds for s in result["B"]], keeps

    def guarded_block(self, order: str, kept: set[int]) -> tuple[list[float], list[float], Kept]:
        """A block whose machine was well: otherwise it is repeated, RETRIES times a workload."""
        while True:
            before = self.last_reading
            result = self.block(order, kept)
            after = self.last_reading = self.counters.read()
            throttle = grown(before, after)
            trouble = machine_trouble(after, throttle)
            if trouble is None:
                self.blocks.append(Block(after, throttle))
                return result
            for contestant, sample in result[2]:
                contestant.release(sample)
            self.retries += 1
            if after.xids or self.retries > RETRIES:
                raise InvalidMeasurement(f"{trouble}; {self.retries - 1} blocks had been repeated already")

    def instance(self, design: Design, number: int) -> tuple[np.ndarray, np.ndarray]:
        """All blocks of instance ``number``: candidate and expert times of shape (blocks, 2)."""
        chosen = self.random.sample(range(2 * design.blocks), design.keep)
        candidate, expert = [], []
        kept: Kept = []
        self.last_reading = self.counters.read()
        for k in range(design.blocks):
            pairs = {p - 2 * k for p in chosen if p // 2 == k}
            order = "ABBA" if (number + k) % 2 == 0 else "BAAB"
            a, b, samples = self.guarded_block(order, pairs)
            candidate.append(a)
            expert.append(b)
            kept += samples
        for contestant, sample in kept:
            self.inspector.take(contestant, sample)
            contestant.release(sample)
        return np.array(candidate), np.array(expert)

    def check_solo_band(self, before_us: list[float], after_us: list[float], expert_us: float) -> None:
        """Raise InvalidMeasurement unless the expert's median beside the candidate lies in its solo
        band, which spans its medians before and after. Under the software power cap both sides of a
        pair run at a lower clock; that is flagged and no reason to void."""
        solo = sorted((float(np.median(before_us)), float(np.median(after_us))))
        low = solo[0] * (1 - SOLO_BAND) - SOLO_SLACK_US
        high = solo[1] * (1 + SOLO_BAND) + SOLO_SLACK_US
        if low <= expert_us <= high:
            return
        capped = sum(block.throttle_ns.get(POWER_CAP, 0) for block in self.blocks)
        clocks = [b.after.sm_clock_mhz for b in self.blocks if b.after.sm_clock_mhz is not None]
        text = (
            f"the expert took {expert_us:.1f} us beside the candidate and {solo[0]:.1f} to {solo[1]:.1f} us "
            f"alone (power cap for {capped / 1e6:.1f} ms, clock {min(clocks, default=0)} to "
            f"{max(clocks, default=0)} MHz)"
        )
        if capped and expert_us > high:
            self.flag(f"{text}: the candidate's power lowers the clock for both sides")
            return
        raise InvalidMeasurement(f"{text}: something disturbs the card while the candidate runs")

    def warm(self, slow: bool) -> tuple[float, float]:
        """Medians without eviction, in turns: the secondary figure."""
        a: list[float] = []
        b: list[float] = []
        for _ in range(1 if slow else WARM_PAIRS // 2):
            a += self.times(self.candidate, 1 if slow else 2, cold=False)
            b += self.times(self.expert, 1 if slow else 2, cold=False)
        return float(np.median(a)), float(np.median(b))

    def outside_clock(self, contestant: Contestant, sample_us: float) -> float:
        """Events over the process's own clock for a run of launches back to back, near 1.

        Raises InvalidMeasurement where the two do not agree in any of OUTSIDE_RUNS runs: a host that was
        held up for a moment is no disagreement."""
        repeat = int(min(50, max(2, OUTSIDE_MS * 1000 / sample_us)))
        for _ in range(OUTSIDE_RUNS):
            request = self.request(cold=False).model_copy(update={"repeat": repeat})
            sample = self.run(contestant, [request])[0]
            wall_us = sample.wall_ns / 1000
            if wall_us <= sample.microseconds * (1 + OUTSIDE_TOLERANCE) + OUTSIDE_SLACK_US:
                return sample.microseconds / wall_us
        raise InvalidMeasurement(
            f"{repeat} launches of the {self.name(contestant)} took "
            f"{wall_us:.0f} us by an outside clock and {sample.microseconds:.0f} us by events"
        )

    def whole(self) -> Measured:
        with self.stage("probe and solo"):
            design, solo = self.probe()
        candidate: list[np.ndarray] = []
        expert: list[np.ndarray] = []
        for instances, error in zip(design.looks, design.errors, strict=True):
            while len(candidate) < instances:
                if candidate:
                    self.next_instance()
                with self.stage("samples"):
                    a, b = self.instance(design, len(candidate))
                candidate.append(a)
                expert.append(b)
            self.inspector.judge()
            with self.stage("rule"):
                samples = st.Samples(np.array(candidate), np.array(expert))
                expert_us = float(np.median(samples.expert_us))
                delta = st.margin(expert_us)
                interval = st.estimate(samples, error, self.bootstrap_seed)
                outcome = st.decide(interval, delta)
            if outcome != "unresolved":
                break
        with self.stage("probe and solo"):
            self.times(self.expert, SETTLING)
            after = self.times(self.expert, SOLO_SAMPLES)
            self.check_solo_band(solo, after, expert_us)
        return self.result(design, samples, interval, delta, outcome, solo + after)

    def result(
        self,
        design: Design,
        samples: st.Samples,
        interval: st.Estimate,
        delta: float,
        outcome: st.Outcome,
        solo: list[float],
    ) -> Measured:
        """The secondary figures, and everything together."""
        candidate_us, expert_us = float(np.median(samples.candidate_us)), float(np.median(samples.expert_us))
        with self.stage("warm"):
            warm = self.warm(design.name == "slow")
        with self.stage("outside clock"):
            outside = {
                "candidate": self.outside_clock(self.candidate, candidate_us),
                "expert": self.outside_clock(self.expert, expert_us),
            }
        measured = Measured(
            design=design,
            samples=samples,
            estimate=interval,
            margin=delta,
            outcome=outcome,
            looks=design.looks.index(samples.instances) + 1,
            checked=samples.instances * design.keep,
            method="events around one graph, cold L2"
            if self.expert.ready.method == "graph"
            else "events around the expert's host calls (it cannot be captured), cold L2",
            candidate_us=candidate_us,
            expert_us=expert_us,
            solo_us=tuple(solo),
            warm_candidate_us=warm[0],
            warm_expert_us=warm[1],
            blocks=tuple(self.blocks),
            outside_clock=outside,
            judge_ms=self.outside_ns / 1e6,
            samples_ms=self.inside_ns / 1e6,
            pause_ms=self.pause,
            repeated=self.retries,
            flags=self.flags,
        )
        if measured.throttle_ns.get(POWER_CAP):
            self.flag(f"software power cap for {measured.throttle_ns[POWER_CAP] / 1e6:.1f} ms in all")
        if not any(block.after.throttle_ns for block in self.blocks):
            self.flag("throttle counters are not available on this machine")
        return measured


def measure(
    sides: Sides,
    inspector: Inspector,
    counters: Counters,
    seed_of: Callable[[int], int],
    secret: int,
    *,
    monotonic_ns: Callable[[], int] = time.monotonic_ns,
    check_both: bool = False,
    stage: Stage = nullcontext,
) -> Measured:
    """Measure one workload.

    ``seed_of``  sample number -> the seed that fills the operands (secret until it is sent)
    ``secret``   decides which samples are checked and seeds the bootstrap
    ``check_both``  the opponent's samples are kept and shown to ``inspector`` as well: for an opponent
                    that is a candidate itself
    ``stage``    opens a named stage of a timeline

    Raises InvalidMeasurement (the machine), what ``inspector.judge`` raises (a wrong answer), and
    what the contestants raise. The contestants opened last are left to the caller to close.
    """
    measurement = Measurement(
        sides, inspector, counters, seed_of, secret, monotonic_ns, check_both=check_both, stage=stage
    )
    return measurement.whole()


def task_figure(rows: Sequence[Measured], secret: int) -> st.TaskEstimate:
    """Geometric mean over bench workloads with its joint interval and the rule's answer."""
    seed = random.Random(secret).getrandbits(62)
    return st.combine([row.samples for row in rows], [row.margin for row in rows], seed)
