"""Contestants made of numbers: a whole paired measurement in milliseconds, without a GPU.

A :class:`World` is one card: a virtual clock, a slow drift, a placement effect drawn anew for each
instance and side, noise a sample with occasional stray values, and a power budget that lowers the
clock when the card was busy lately. The rule's error rates are proved against it in
``tests/measure`` and ``tests/judge_gpu``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from cudahercules.measure.counters import POWER_CAP, Reading
from cudahercules.replay.interface import Contestant, ContestantFault, KeptOutputs, Ready, Request, Sample

SAMPLE_OVERHEAD_US = 400.0
"""Filling, poisoning and evicting around each sample (measured: 0.3 to 0.6 ms)."""


@dataclass
class World:
    """One simulated card. Effects are standard deviations of log time; 0.01 is 1 %."""

    seed: int
    placement: float = 0.01
    noise: float = 0.004
    stray: float = 0.02  # share of samples that take up to 30 % longer
    drift: float = 0.0  # relative change a second, on both sides alike
    power_w: float = 300.0  # drawn while a sample runs, above idle; over CAP_W the clock falls
    disturbance: Callable[[str, float], float] = lambda _side, _seconds: 1.0
    now_ns: int = 0
    heat_w: float = 0.0
    capped_ns: int = 0
    slowdown_ns: int = 0
    xids: tuple[int, ...] = ()
    strangers: tuple[int, ...] = ()
    rng: np.random.Generator = field(init=False)

    CAP_W = 600.0
    AVERAGING_S = 0.1

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    def monotonic_ns(self) -> int:
        return self.now_ns

    def pass_time(self, microseconds: float, power_w: float) -> None:
        """Let time pass at a power; the cap sees an average over AVERAGING_S."""
        self.now_ns += int(microseconds * 1000)
        weight = 1 - math.exp(-microseconds / 1e6 / self.AVERAGING_S)
        self.heat_w += (power_w - self.heat_w) * weight

    def execute(self, side: str, microseconds: float) -> float:
        """Run something that takes ``microseconds`` at full clock; returns what it took."""
        seconds = self.now_ns / 1e9
        slow = max(1.0, self.heat_w / self.CAP_W)
        stray = 1 + 0.3 * self.rng.random() if self.rng.random() < self.stray else 1.0
        took = microseconds * slow * stray * math.exp(self.rng.normal(0, self.noise))
        took *= (1 + self.drift * seconds) * self.disturbance(side, seconds)
        if slow > 1:
            self.capped_ns += int(took * 1000)
        self.pass_time(took, self.power_w)
        return took

    def read(self) -> Reading:
        xids, self.xids = self.xids, ()
        return Reading(
            sm_clock_mhz=int(1980 / max(1.0, self.heat_w / self.CAP_W)),
            power_w=self.heat_w,
            temperature_c=50,
            throttle_ns={POWER_CAP: self.capped_ns, "hw_thermal_slowdown": self.slowdown_ns},
            memory_used=1 << 30,
            xids=xids,
            strangers=self.strangers,
        )


@dataclass
class Simulated:
    """A contestant of :class:`World` that takes ``microseconds``, times its instance's placement."""

    world: World
    side: Literal["candidate", "expert"]
    microseconds: float
    placement: float
    faults_at: int | None = None  # sample number that ends in a fault
    kept: int = 0
    taken: int = 0
    released: int = 0
    closed: bool = False

    def __post_init__(self) -> None:
        self.ready = Ready(side=self.side, method="graph", device="simulated", driver="0", pid=1)

    def rest(self) -> object:
        return None

    def sample(self, seed: int, *, cold: bool = True, keep: bool = False) -> Sample:
        return self.batch([Request(seed=seed, cold=cold, keep=keep)])[0]

    def batch(self, requests: Sequence[Request]) -> list[Sample]:
        return [self._one(request) for request in requests]

    def _one(self, request: Request) -> Sample:
        if self.faults_at is not None and self.taken >= self.faults_at:
            from cudahercules.emulator.outcome import Fault

            raise ContestantFault(Fault(what="illegal_address", message="simulated fault", kernel="k"))
        self.taken += 1
        self.world.pass_time(request.pause_ms * 1000, 0.0)
        self.world.pass_time(SAMPLE_OVERHEAD_US, 200.0)
        began = self.world.now_ns
        warmth = 1.0 if request.cold else 0.9
        one = self.microseconds * self.placement * warmth
        took = sum(self.world.execute(self.side, one) for _ in range(request.repeat))
        self.world.pass_time(8.0, 0.0)
        if request.keep:
            self.kept += 1
        return Sample(
            seed=request.seed,
            cold=request.cold,
            microseconds=took,
            wall_ns=self.world.now_ns - began,
            began_ns=began,
            repeat=request.repeat,
            kept=self.kept if request.keep else None,
        )

    def outputs(self, sample: Sample) -> KeptOutputs:
        raise NotImplementedError("a simulated contestant computes nothing")

    def release(self, sample: Sample) -> None:
        self.released += 1

    def close(self) -> None:
        self.closed = True

    def __enter__(self) -> Contestant:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


@dataclass
class SimulatedSides:
    """Opens contestants in ``world``; ``ratio`` is the true expert time / candidate time."""

    world: World
    expert_us: float
    ratio: float = 1.0
    faults_at: int | None = None
    opened: list[Simulated] = field(default_factory=list)

    def _open(self, side: Literal["candidate", "expert"], microseconds: float) -> Simulated:
        placement = math.exp(self.world.rng.normal(0, self.world.placement / math.sqrt(2)))
        faults_at = self.faults_at if side == "candidate" else None
        contestant = Simulated(self.world, side, microseconds, placement, faults_at)
        self.world.pass_time(15_000, 0.0)
        self.opened.append(contestant)
        return contestant

    def candidate(self) -> Contestant:
        return self._open("candidate", self.expert_us / self.ratio)

    def expert(self) -> Contestant:
        return self._open("expert", self.expert_us)


@dataclass
class CountingInspector:
    """Accepts every output and counts what it was shown."""

    taken: int = 0
    judged: int = 0

    def take(self, contestant: Contestant, sample: Sample) -> None:
        if sample.kept is None:
            raise ValueError("a sample that was not kept cannot be checked")
        self.taken += 1

    def judge(self) -> None:
        self.judged += 1
