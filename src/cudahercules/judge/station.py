"""What gradings on one GPU share: its facts, warm processes, PyTorch, the card's counters.

A single grading makes a :class:`Station` before it compiles, so that contexts and PyTorch come up
meanwhile; a batch keeps one for all its candidates. A candidate never gets a process in which
another candidate ran: spare ones are started ahead.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from cudahercules.build.artifact import Artifact
from cudahercules.build.candidate import load_candidate
from cudahercules.build.compile import BuildFailure, build
from cudahercules.build.toolchain import find_toolchain
from cudahercules.errors import MachineError
from cudahercules.judge.answers_gpu import DeviceAnswers, Torch
from cudahercules.judge.device import Gpu
from cudahercules.measure import panel as panels
from cudahercules.measure.counters import Card, Counters, NoCounters
from cudahercules.measure.profile import DeviceProfile
from cudahercules.measure.profiles import load_profile
from cudahercules.record.plan import LaunchPlan
from cudahercules.record.recorder import RecordFailure, record
from cudahercules.replay.client import expert_side
from cudahercules.replay.interface import (
    START_S,
    AnswersDiffer,
    Contestant,
    ContestantHang,
    start_expert,
    start_replay,
    warm_process,
)
from cudahercules.task.model import Task, Workload

LANES = 2
"""Processes of a contestant that is a plan: instances alternate between them."""


def end(process: Any) -> None:
    """End a warm process or a contestant at once: it holds nothing that is still wanted, and asking
    politely would wait for an import of torch to finish."""
    if process is None:
        return
    forget = getattr(process, "forget", None)
    if forget is not None:
        forget()
    getattr(process, "process", process).kill()


class Lane:
    """One GPU process of a contestant: loads one workload after the other, each on fresh memory."""

    def __init__(self, process: object | None):
        self.process = process

    def open(self, start: Callable[[object | None], Contestant]) -> Contestant:
        """``start(process)`` in this lane's process; a process that dies on the way is forgotten."""
        process, self.process = self.process, None
        try:
            self.process = contestant = start(process)
        except AnswersDiffer:
            self.process = process  # it lives on and takes the plan that is recorded next
            raise
        return contestant

    def close(self) -> None:
        process, self.process = self.process, None
        end(process)


class Lanes:
    """Lanes that are used in turns, and the way to start something in them."""

    def __init__(self, lanes: list[Lane]):
        self.lanes = lanes
        self._turn = 0

    def open(self, start: Callable[[object | None], Contestant]) -> Contestant:
        lane = self.lanes[self._turn % len(self.lanes)]
        self._turn += 1
        return lane.open(start)

    def close(self) -> None:
        for lane in self.lanes:
            lane.close()


@dataclass(frozen=True)
class PlanExpert:
    """An expert that is a CUDA source of ours, built; plans are recorded a workload at a time."""

    artifact: Artifact
    plans: dict[str, LaunchPlan] = field(default_factory=dict)


class Station:
    """Use as a context manager, or call :meth:`close`; every process ends with it."""

    def __init__(self, gpu: Gpu):
        self.gpu = gpu
        self.torch = Torch(gpu.index)
        self._spares: deque[Any] = deque()
        self._experts: dict[tuple[str, str], Lanes] = {}
        self._plan_experts: dict[tuple[str, str], PlanExpert] = {}
        self.ahead = False
        """Whether candidates follow each other: set by a batch."""
        self._lock = threading.Lock()
        self._spare_lock = threading.Lock()
        self.refill()

    # --- candidates ------------------------------------------------------------------------------

    def refill(self, count: int = LANES) -> None:
        """Start fresh candidate processes until ``count`` wait."""
        with self._spare_lock:
            self._refill(count)

    def _refill(self, count: int) -> None:
        while len(self._spares) < count:
            self._spares.append(warm_process("candidate", self.gpu.index))

    def candidate_lanes(self) -> Lanes:
        """Fresh processes for one candidate. In a batch those for the next one start at once."""
        with self._spare_lock:
            self._refill(LANES)
            lanes = Lanes([Lane(self._spares.popleft()) for _ in range(LANES)])
            if self.ahead:
                self._refill(LANES)
            return lanes

    def settle(self) -> None:
        """Wait until no process of ours is still coming up: a context that is being made disturbs what
        is timed."""
        with self._spare_lock:
            for process in tuple(self._spares):
                try:
                    process.await_alive(time.monotonic() + START_S)
                except (MachineError, ContestantHang):
                    self._spares.remove(process)  # the next candidate gets another

    # --- experts ---------------------------------------------------------------------------------

    def expert_lanes(self, task: Task, expert: str) -> Lanes:
        """The processes of an expert, kept for the whole life of the station."""
        key = (task.family, expert)
        with self._lock:
            if key not in self._experts:
                plan = panels.is_plan(task, expert)
                side = "candidate" if plan else expert_side(task, expert)
                count = LANES if plan else 1
                lanes = [Lane(warm_process(side, self.gpu.index)) for _ in range(count)]
                self._experts[key] = Lanes(lanes)
            return self._experts[key]

    def open_expert(self, task: Task, expert: str, workload: Workload) -> Contestant:
        """The expert on fresh memory. Raises MachineError, and what ``start_expert`` raises."""
        lanes = self.expert_lanes(task, expert)
        if not panels.is_plan(task, expert):
            return lanes.open(lambda p: start_expert(task, expert, workload, self.gpu.index, process=p))
        built = self.plan_expert(task, expert)
        if workload.name not in built.plans:
            built.plans[workload.name] = self.record_here(built.artifact, task, workload)
        plan = built.plans[workload.name]
        return lanes.open(
            lambda p: start_replay(plan, built.artifact, task, workload, self.gpu.index, process=p)
        )

    def plan_expert(self, task: Task, expert: str) -> PlanExpert:
        key = (task.id, expert)
        with self._lock:
            if key not in self._plan_experts:
                candidate = load_candidate(task.directory / f"{expert}.cu")
                architecture = task.target.architecture or self.gpu.architecture
                artifact = build(candidate, panels.as_expert(task, expert), architecture)
                if isinstance(artifact, BuildFailure):
                    raise MachineError(
                        f"the expert {expert}.cu of {task.id} does not build: {artifact.message}"
                    )
                self._plan_experts[key] = PlanExpert(artifact)
            return self._plan_experts[key]

    def record_here(self, artifact: Artifact, task: Task, workload: Workload) -> LaunchPlan:
        """A plan of our own code with this GPU's own answers. Raises MachineError if it fails."""
        plan = record(artifact, task, workload, self.own_profile)
        if isinstance(plan, RecordFailure):
            raise MachineError(f"an expert of {task.id} cannot be recorded: {plan.message}")
        return plan

    def usable_experts(self, task: Task) -> tuple[str, ...]:
        return panels.usable_experts(task, panels.installed_packages(task.experts))

    def start_experts(self, task: Task) -> None:
        """Bring up the processes of the opponents that ``task`` will need."""
        panel, usable = panels.load_panel(task, self.gpu.slug), self.usable_experts(task)
        for workload in task.workloads:
            name = panels.opponent(task, workload, panel, usable) if workload.role.value == "bench" else None
            if name is not None:
                self.expert_lanes(task, name)

    # --- facts and helpers -----------------------------------------------------------------------

    @cached_property
    def profile(self) -> DeviceProfile:
        """The shipped profile: what candidates are recorded with first."""
        return load_profile(self.gpu.architecture)

    @cached_property
    def own_profile(self) -> DeviceProfile:
        """This GPU's own answers, with what the driver does not tell from the shipped profile."""
        from cudahercules.replay.device import read_profile

        own = read_profile(self.gpu.index)
        return own.model_copy(update={"gpc_sms": self.profile.gpc_sms})

    @cached_property
    def answers(self) -> DeviceAnswers:
        from cudahercules.replay.generator import device_code

        cubin: Path = device_code(self.gpu.architecture, find_toolchain().nvcc)
        return DeviceAnswers(self.torch, cubin)

    @cached_property
    def card(self) -> Card | None:
        try:
            return Card(self.gpu.index)
        except MachineError:
            return None

    @property
    def counters(self) -> Counters:
        return self.card or NoCounters()

    def free_memory(self) -> int:
        """Bytes free on the card now: NVML's figure, else nine tenths of all of it."""
        if self.card is not None:
            reading = self.card.read()
            if reading.memory_used is not None:
                return self.gpu.memory - reading.memory_used
        return self.gpu.memory * 9 // 10

    def close(self) -> None:
        for lanes in self._experts.values():
            lanes.close()
        while self._spares:
            end(self._spares.popleft())
        self._experts.clear()

    def __enter__(self) -> Station:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
