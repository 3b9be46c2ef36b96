"""What gradings on one GPU share: its facts, warm processes, PyTorch, the card's counters.

A single grading makes a :class:`Station` before it compiles, so that contexts, PyTorch and opponents come
up meanwhile; a batch keeps one for all its candidates. A candidate never gets a process in which
another candidate ran: spare ones are started ahead. Before anything is timed, :meth:`Station.settle` waits
until nothing of all this still comes up or ends: the GPU is not held until then.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from cudahercules.build.artifact import Artifact
from cudahercules.build.candidate import load_candidate
from cudahercules.build.compile import BuildFailure, build
from cudahercules.build.toolchain import find_toolchain
from cudahercules.errors import MachineError
from cudahercules.judge.answers_gpu import DeviceAnswers, Torch
from cudahercules.judge.device import Gpu
from cudahercules.judge.lanes import LANES, Lane, Lanes, await_ends, end
from cudahercules.measure import panel as panels
from cudahercules.measure.counters import Card, Counters, NoCounters
from cudahercules.measure.profile import DeviceProfile
from cudahercules.measure.profiles import load_profile
from cudahercules.record.plan import LaunchPlan
from cudahercules.record.recorder import RecordFailure, record
from cudahercules.replay.client import expert_side
from cudahercules.replay.interface import (
    START_S,
    Contestant,
    ContestantHang,
    ExpertDeclined,
    start_expert,
    start_replay,
    warm_process,
)
from cudahercules.task.model import Task, Workload, WorkloadRole

SPARES = 3 * LANES
"""Processes without a context that wait in a batch: importing takes longer than a short grading."""


@dataclass(frozen=True)
class PlanExpert:
    """An expert that is a CUDA source of ours, built; plans are recorded a workload at a time."""

    artifact: Artifact
    plans: dict[str, LaunchPlan] = field(default_factory=dict)


class Worker:
    """A thread that does one job after the other. It does not hold up the end of the program."""

    def __init__(self, name: str):
        self._jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def _work(self) -> None:
        while True:
            self._jobs.get()()

    def submit(self, job: Callable[[], None]) -> Future[None]:
        """The future of ``job``; cancelled if the future is before its turn."""
        future: Future[None] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                job()
            except BaseException as error:  # kept for who waits
                future.set_exception(error)
            else:
                future.set_result(None)

        self._jobs.put(run)
        return future


class Station:
    """Use as a context manager, or call :meth:`close`; every process ends with it."""

    def __init__(self, gpu: Gpu):
        self.gpu = gpu
        self.torch = Torch(gpu.index)
        self._spares: deque[Any] = deque()
        self._experts: dict[tuple[str, str], Lanes] = {}
        self._plan_experts: dict[tuple[str, str], PlanExpert] = {}
        self._coming: dict[tuple[str, str, str], Future[None]] = {}
        self._workers: dict[tuple[str, str], Worker] = {}
        self.ahead = False
        """Whether candidates follow each other: set by a batch, and by a second candidate."""
        self._served = 0
        self._own_profile: DeviceProfile | None = None
        self._answers: DeviceAnswers | None = None
        self._lock = threading.RLock()
        self._spare_lock = threading.Lock()
        self.refill()

    # --- candidates ------------------------------------------------------------------------------

    def refill(self, count: int = LANES) -> None:
        """Start fresh candidate processes until ``count`` wait."""
        with self._spare_lock:
            self._refill(count)

    def _refill(self, count: int, begin: bool = True) -> None:
        while len(self._spares) < count:
            self._spares.append(warm_process("candidate", self.gpu.index, begin=begin))

    def candidate_lanes(self) -> Lanes:
        """Fresh processes for one candidate. Where candidates follow each other, the contexts of those for
        the next one come up at once, while this one is checked and nothing is timed; others, without a
        context, import meanwhile."""
        with self._spare_lock:
            self._refill(LANES)
            mine = [self._spares.popleft() for _ in range(LANES)]
            for process in mine:
                process.begin()
            self._served += 1
            if self.ahead or self._served > 1:
                self._refill(SPARES, begin=False)
                for process in list(self._spares)[:LANES]:
                    process.begin()
            return Lanes([Lane(process) for process in mine])

    def settle(self) -> None:
        """Wait until no process of ours still comes up or ends, and PyTorch is ready: a context that is made
        disturbs what is timed."""
        await_ends()
        with self._lock:
            pending = list(self._coming.values())
        wait(pending)  # what failed there says so where it is wanted
        with self._spare_lock:
            for process in tuple(self._spares):
                if not process.begun:
                    continue
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

    def rest(self, task: Task, expert: str) -> None:
        """Let an expert that nobody plays against for now give its memory back: others need room."""
        self.expert_lanes(task, expert).rest()

    def plan_expert(self, task: Task, expert: str) -> PlanExpert:
        key = (task.id, expert)
        if key not in self._plan_experts:
            candidate = load_candidate(task.directory / f"{expert}.cu")
            architecture = task.target.architecture or self.gpu.architecture
            artifact = build(candidate, panels.as_expert(task, expert), architecture)
            if isinstance(artifact, BuildFailure):
                raise MachineError(f"the expert {expert}.cu of {task.id} does not build: {artifact.message}")
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
        """Bring up the opponents that ``task`` will need, and PyTorch for its references, in threads.

        An opponent is opened once on every bench workload that it plays: it is imported, built, compiled and
        tuned by then, and an instance takes a moment. All of it is kept for the life of the station."""
        panel, usable = panels.load_panel(task, self.gpu.slug), self.usable_experts(task)
        for workload in task.workloads_of(WorkloadRole.BENCH):
            name = panels.opponent(task, workload, panel, usable)
            if name is not None:
                self.bring_up(task, name, workload)
        self.warm_answers(task)

    def warm_answers(self, task: Task) -> Future[None]:
        """Let PyTorch load what the references of ``task`` need, in a thread, once."""
        return self._beside((task.id, "", ""), ("", "answers"), lambda: self.answers.warm_up(task))

    def answers_stand(self, task: Task) -> bool:
        """Whether PyTorch has loaded what the references of ``task`` need."""
        with self._lock:
            coming = self._coming.get((task.id, "", ""))
        return coming is not None and coming.done() and not coming.cancelled() and coming.exception() is None

    def bring_up(self, task: Task, expert: str, workload: Workload) -> Future[None]:
        """Open ``expert`` on ``workload`` in a thread, once; those of one process one after the other."""

        def open_it() -> None:
            self.open_expert(task, expert, workload)
            self.rest(task, expert)

        return self._beside((task.id, expert, workload.name), (task.family, expert), open_it)

    def _beside(
        self, key: tuple[str, str, str], worker: tuple[str, str], job: Callable[[], None]
    ) -> Future[None]:
        """``job`` in the thread of that ``worker``, unless ``key`` was done or begun before."""
        with self._lock:
            if key not in self._coming:
                if worker not in self._workers:
                    self._workers[worker] = Worker(f"bring up {worker[1]}")
                self._coming[key] = self._workers[worker].submit(job)
            return self._coming[key]

    def await_expert(self, task: Task, expert: str, workload: Workload) -> None:
        """Wait until ``expert`` can play ``workload``. Raises what :meth:`open_expert` raised; a decline is
        remembered, any other failure is tried again when the next candidate wants the expert."""
        coming = self.bring_up(task, expert, workload)
        try:
            coming.result()
        except ExpertDeclined:
            raise
        except BaseException:
            with self._lock:
                if coming.done():
                    self._coming.pop((task.id, expert, workload.name), None)
            raise

    # --- facts and helpers -----------------------------------------------------------------------

    @cached_property
    def profile(self) -> DeviceProfile:
        """The shipped profile: what candidates are recorded with first."""
        return load_profile(self.gpu.architecture)

    @property
    def own_profile(self) -> DeviceProfile:
        """This GPU's own answers, with what the driver does not tell from the shipped profile."""
        from cudahercules.replay.device import read_profile

        with self._lock:  # several opponents may come up at a time
            if self._own_profile is None:
                own = read_profile(self.gpu.index)
                self._own_profile = own.model_copy(update={"gpc_sms": self.profile.gpc_sms})
            return self._own_profile

    @property
    def answers(self) -> DeviceAnswers:
        from cudahercules.replay.generator import device_code

        with self._lock:
            if self._answers is None:
                cubin: Path = device_code(self.gpu.architecture, find_toolchain().nvcc)
                self._answers = DeviceAnswers(self.torch, cubin)
            return self._answers

    @cached_property
    def card(self) -> Card | None:
        try:
            return Card(self.gpu.bus)
        except MachineError:
            return None

    @property
    def counters(self) -> Counters:
        return self.card or NoCounters()

    def held_by(self, task: Task, expert: str) -> int:
        """Bytes on the card that the expert's last workload holds, and gives back at its next."""
        lanes = self._experts.get((task.family, expert))
        return 0 if lanes is None else lanes.device_bytes

    def free_memory(self) -> int:
        """Bytes free on the card now: NVML's figure, else nine tenths of all of it."""
        if self.card is not None:
            reading = self.card.read()
            if reading.memory_used is not None:
                return self.gpu.memory - reading.memory_used
        return self.gpu.memory * 9 // 10

    def close(self) -> None:
        for coming in self._coming.values():
            coming.cancel()
        lanes = [lane for found in self._experts.values() for lane in found.lanes]
        end([*self._spares, *(lane.take() for lane in lanes)])
        await_ends()
        self._spares.clear()
        self._experts.clear()

    def __enter__(self) -> Station:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
