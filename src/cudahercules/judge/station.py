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
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
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
    SAMPLE_S,
    START_S,
    Contestant,
    ContestantHang,
    ExpertDeclined,
    start_expert,
    start_replay,
    warm_process,
)
from cudahercules.task.model import Task, Workload, WorkloadRole

ROOM_PERCENT = 40
"""Of the card's memory, for experts that come up at the same time; references and contexts need some, too."""
DRAIN_S = 0.1
"""What a process that is held still had put on the device has ended after this."""
SPARES = 3 * LANES
"""Processes without a context that wait in a batch: importing takes longer than a short grading."""


@dataclass(frozen=True)
class PlanExpert:
    """An expert that is a CUDA source of ours, built; plans are recorded a workload at a time."""

    artifact: Artifact
    plans: dict[str, LaunchPlan] = field(default_factory=dict)


class Room:
    """Bytes on the card that jobs side by side may fill; who asks for more than is left waits."""

    def __init__(self, size: int):
        self.size, self._taken, self._change = size, 0, threading.Condition()

    @contextmanager
    def of(self, wanted: int) -> Iterator[None]:
        """``wanted`` bytes for a block; the whole room for who wants more than there is."""
        mine = min(wanted, self.size)
        with self._change:
            self._change.wait_for(lambda: self._taken + mine <= self.size)
            self._taken += mine
        try:
            yield
        finally:
            with self._change:
                self._taken -= mine
                self._change.notify_all()


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
    """Use as a context manager, or call :meth:`close`; every process ends with it.

    ``start_s`` and ``sample_s`` are the seconds that an expert gets to come up and for one sample."""

    def __init__(self, gpu: Gpu, *, start_s: float = START_S, sample_s: float = SAMPLE_S):
        self.gpu, self.start_s, self.sample_s = gpu, start_s, sample_s
        self.room = Room(gpu.memory * ROOM_PERCENT // 100)
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
        self._settle_spares()

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """As :meth:`settle` for a block, but experts that still come up are held still meanwhile."""
        await_ends()
        self._settle_spares()
        with self._lock:
            busy = {(k[0].rsplit("/", 1)[0], k[1]) for k, coming in self._coming.items() if not coming.done()}
            lanes = [lane for key in busy if key in self._experts for lane in self._experts[key].lanes]
        held: list[Any] = [
            p for p in (getattr(x.process, "process", x.process) for x in lanes) if p is not None
        ]
        for process in held:
            process.hold_still()
        time.sleep(DRAIN_S if held else 0.0)
        try:
            yield
        finally:
            for process in held:
                process.go_on()

    def _settle_spares(self) -> None:
        with self._spare_lock:
            for process in tuple(self._spares):
                if not process.begun:
                    continue
                try:
                    process.await_alive(time.monotonic() + START_S)
                except (MachineError, ContestantHang):
                    self._spares.remove(process)  # the next candidate gets another

    # --- experts ---------------------------------------------------------------------------------

    def expert_lanes(self, task: Task, expert: str, *, begin: bool = True) -> Lanes:
        """The processes of an expert, kept until :meth:`dismiss`. With ``begin=False`` new ones only import
        what they need, and leave the GPU alone until somebody opens the expert."""
        key = (task.family, expert)
        with self._lock:
            if key not in self._experts:
                plan = panels.is_plan(task, expert)
                side = "candidate" if plan else expert_side(task, expert)
                count = LANES if plan else 1
                lanes = [Lane(warm_process(side, self.gpu.index, begin=begin)) for _ in range(count)]
                self._experts[key] = Lanes(lanes)
            return self._experts[key]

    def open_expert(self, task: Task, expert: str, workload: Workload) -> Contestant:
        """The expert on fresh memory. Raises MachineError, and what ``start_expert`` raises."""
        lanes = self.expert_lanes(task, expert)
        limits = {"start_s": self.start_s, "sample_s": self.sample_s}
        if not panels.is_plan(task, expert):
            return lanes.open(
                lambda p: start_expert(task, expert, workload, self.gpu.index, process=p, **limits)
            )
        built = self.plan_expert(task, expert)
        if workload.name not in built.plans:
            built.plans[workload.name] = self.record_here(built.artifact, task, workload)
        plan = built.plans[workload.name]
        return lanes.open(
            lambda p: start_replay(plan, built.artifact, task, workload, self.gpu.index, process=p, **limits)
        )

    def dismiss(self, family: str, expert: str) -> None:
        """End the processes of an expert, whatever they do, and what was still to be brought up in them."""
        with self._lock:
            lanes = self._experts.pop((family, expert), None)
            mine = [k for k in self._coming if k[0].startswith(f"{family}/") and k[1] == expert]
            for key in mine:
                self._coming.pop(key).cancel()
        if lanes is not None:
            lanes.close(waiting=False)

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
            with self.room.of(2 * sum(task.nbytes(t, workload) for t in task.tensors)):
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
