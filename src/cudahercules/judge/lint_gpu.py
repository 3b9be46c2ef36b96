"""``lint`` on a GPU, many tasks in little time: all candidates at their small sizes, all experts ranked.

Tasks go in waves. While nothing is timed, the experts of a wave come up side by side on every bench
workload, and its candidates are graded on smoke and check workloads, several at a time. Then the panels are
ranked, one task after the other, with nothing else on the card. nvcc works ahead all the time at low
priority; the next wave's processes import PyTorch while this one is ranked. Experts that compile when
they are called (10 s a shape) begin waves ahead, and are held still while others are timed.

An expert that is not up ``UP_S`` after its wave began is ended and noted as failed: nothing waits for it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any

from cudahercules.build.artifact import Artifact
from cudahercules.build.candidate import load_candidate
from cudahercules.build.compile import BuildFailure, build
from cudahercules.errors import MachineError
from cudahercules.judge.batch import build_verdict, give_way
from cudahercules.judge.bundled import Bundled, Graded, bundled
from cudahercules.judge.evidence import Evidence
from cudahercules.judge.gpu import judge_on_gpu
from cudahercules.judge.lanes import LANES, Lane, Lanes
from cudahercules.judge.protocol import Case, fault_of_ours, new_seed
from cudahercules.judge.ranking import rank_panel
from cudahercules.judge.station import Station
from cudahercules.judge.verdict import Verdict
from cudahercules.measure import panel as panels
from cudahercules.measure.panel import Standing, TaskPanel
from cudahercules.replay.interface import ExpertDeclined, OutOfMemory, warm_process
from cudahercules.task.model import Task, WorkloadRole

UP_S = 60.0
"""Seconds within which all experts of a wave must be up; torch.compile takes 10 s a shape."""
SAMPLE_S = 5.0
"""Seconds that one sample of a candidate or an expert may take, its inputs and eviction included."""
GRADINGS = 6
"""Candidates graded at a time: each is milliseconds on the card and a process's start or two."""
FIRST_UP_S = 100.0
"""The same for the first wave: PyTorch comes off the disk."""
START_S = 300.0
"""Seconds within which an expert must be up on one workload, what it is held still included."""
WAVE_TASKS, WAVE_PROCESSES = 12, 24
"""A wave ends with the task that reaches either; a process is an import of PyTorch and a context."""
FIRST_WAVE_TASKS = 4
"""Few, so that the card is not idle for long."""
COMPILING = frozenset({"triton", "liger-kernel", "tokenspeed-deepgemm", "quack-kernels", "flashinfer-python"})
"""Packages whose experts compile when they are called."""
COMPILING_AT_ONCE = 20
"""Processes that compile ahead: each takes about a gigabyte of the host's memory."""
LAST_S = 30.0
"""No wave begins with fewer seconds left."""
CPU_SHARE = 4
"""Processors that compilers leave to what is timed."""
SHARED = ("workloads", "tensors", "scalars", "constants", "tolerance")
"""What must be the same of two targets of a member for an expert's standing to hold for both."""
CHECKED = (WorkloadRole.SMOKE, WorkloadRole.CHECK)


@dataclass
class Proven:
    """What this card says about a task. ``seconds``: ``grading`` is summed over candidates (they run side by
    side), ``ranking`` is the time in which nothing else ran."""

    task: Task
    graded: list[Graded]
    panel: TaskPanel
    seconds: dict[str, float] = field(default_factory=dict)


def prove_on_card(
    tasks: Sequence[Task],
    at: Station,
    *,
    cases: Callable[[Task], Sequence[Bundled]] = bundled,
    deadline: float = float("inf"),
    notify: Callable[[str], None] = lambda _text: None,
) -> Iterator[Proven]:
    """Each task as soon as it is done, in waves. Ends early when ``deadline`` (of ``time.monotonic``) comes.
    ``cases`` are the candidates of a task to grade.

    ``at`` should be made with the limits of this module (``start_s=START_S, sample_s=SAMPLE_S``)."""
    groups = waves(tasks, at)
    shared = _Shared(at, [case for task in tasks for case in cases(task)])
    done: dict[tuple[str, str], tuple[Task, TaskPanel]] = {}
    try:
        for number, group in enumerate(groups):
            if deadline - time.monotonic() < LAST_S:
                return
            notify(f"{len(group)} tasks come up: {', '.join(dict.fromkeys(t.family for t in group))}")
            _compile_ahead(groups[number:], at)
            wave = _Wave(group, [case for task in group for case in cases(task)], at, shared, deadline)
            known, graded = wave.bring_up(), wave.grade()
            following = groups[number + 1] if number + 1 < len(groups) else []
            for task in following:
                for expert in _processes(task, at):
                    at.expert_lanes(task, expert, begin=False)
            with at.quiet():
                for task in group:
                    if task.id not in graded or time.monotonic() > deadline:
                        return
                    notify(f"{task.id}: ranking the panel")
                    start = time.monotonic()
                    settled = {**known.get(task.id, {}), **_twins(task, done)}
                    panel = rank_panel(task, at, known=settled)
                    done[task.family, task.member] = task, panel
                    seconds = {
                        "coming up": round(wave.seconds, 2),
                        "grading": round(sum(g.seconds for g in graded[task.id]), 2),
                        "ranking": round(time.monotonic() - start, 2),
                    }
                    yield Proven(task, graded[task.id], panel, seconds)
            staying = {t.family for t in following}
            for task in group:
                if task.family not in staying:
                    for entry in task.experts:
                        at.dismiss(task.family, entry.name)
    finally:
        shared.close()


def waves(tasks: Sequence[Task], at: Station) -> list[list[Task]]:
    """The tasks in their order, in groups that come up together."""
    groups: list[list[Task]] = [[]]
    processes: set[tuple[str, str]] = set()
    for task in tasks:
        mine = {(task.family, expert) for expert in _processes(task, at)}
        most = FIRST_WAVE_TASKS if len(groups) == 1 else WAVE_TASKS
        full = len(groups[-1]) >= most or len(processes | mine) > WAVE_PROCESSES
        if groups[-1] and full:
            groups.append([])
            processes = set()
        groups[-1].append(task)
        processes |= mine
    return [group for group in groups if group]


def _processes(task: Task, at: Station) -> list[str]:
    """The experts that run in processes of their own which import a framework."""
    return [e for e in at.usable_experts(task) if not panels.is_plan(task, e)]


def _compile_ahead(groups: Sequence[Sequence[Task]], at: Station) -> None:
    """Begin the experts that compile, of these waves in their order, as far as there is room for processes.
    A family that comes again in a later wave begins there anew: its processes are in use until then."""
    begun: set[tuple[str, str]] = set()
    before: set[str] = set()
    for group in groups:
        for task in _members(t for t in group if t.family not in before):
            compiling = {e.name for e in task.experts if COMPILING & set(map(panels.normal, e.packages))}
            for expert in compiling & set(_processes(task, at)):
                begun.add((task.family, expert))
                if len(begun) > COMPILING_AT_ONCE:
                    return
                for workload in task.workloads_of(WorkloadRole.BENCH):
                    at.bring_up(task, expert, workload)
        before |= {t.family for t in group}


def _members(tasks: Iterable[Task]) -> list[Task]:
    """The first task of each member: targets share their experts."""
    return list({(t.family, t.member): t for t in reversed(list(tasks))}.values())[::-1]


def _twins(
    task: Task, done: dict[tuple[str, str], tuple[Task, TaskPanel]]
) -> dict[tuple[str, str], Standing]:
    """What is known of the same experts on the same member for another target: the same code on the same
    workloads. A plan is built for its target."""
    twin, panel = done.get((task.family, task.member), (None, None))
    if twin is None or panel is None or any(getattr(twin, f) != getattr(task, f) for f in SHARED):
        return {}
    return {
        (s.expert, s.workload): s
        for s in panel.standings
        if s.outcome != "missing" and not panels.is_plan(task, s.expert)
    }


@dataclass
class _Wave:
    tasks: list[Task]
    cases: list[Bundled]
    at: Station
    shared: _Shared
    deadline: float
    began: float = field(default_factory=time.monotonic)
    seconds: float = 0.0

    def __post_init__(self) -> None:
        """Begin everything."""
        self.coming: dict[tuple[str, str, str], Future[None]] = {}
        members: set[tuple[str, str, str]] = set()
        for task in self.tasks:
            for expert in self.at.usable_experts(task):
                own = (task.family, task.member if not panels.is_plan(task, expert) else task.id, expert)
                if own not in members:  # targets share it
                    members.add(own)
                    for workload in task.workloads_of(WorkloadRole.BENCH):
                        coming = self.at.bring_up(task, expert, workload)
                        self.coming[task.id, expert, workload.name] = coming
        self.gradings = [(case, self.shared.pool.submit(self._grade, case)) for case in self.cases]

    def bring_up(self) -> dict[str, dict[tuple[str, str], Standing]]:
        """Wait for the experts; those that failed or were given up, by task, expert and workload. What lacked
        memory beside the others is tried again when it is ranked."""
        end = min(self.began + (UP_S if self.at.torch.ready else FIRST_UP_S), self.deadline)
        wait(list(self.coming.values()), max(0.0, end - time.monotonic()))
        late = {(task, expert) for (task, expert, _), f in self.coming.items() if not f.done()}
        families = {t.id: t.family for t in self.tasks}
        for family, expert in {(families[task], expert) for task, expert in late}:
            self.at.dismiss(family, expert)
        known: dict[str, dict[tuple[str, str], Standing]] = {}
        for (task, expert, workload), future in self.coming.items():
            error = None if (task, expert) in late else future.exception()
            if (task, expert) in late:
                why = f"not up after {time.monotonic() - self.began:.0f} s"
            elif error is not None and not isinstance(error, (ExpertDeclined, OutOfMemory)):
                why = (str(error).splitlines() or [type(error).__name__])[0][:300]
            else:
                continue
            row = Standing(expert=expert, workload=workload, outcome="failed", why=why)
            known.setdefault(task, {})[expert, workload] = row
        return known

    def grade(self) -> dict[str, list[Graded]]:
        """The tasks whose candidates were all graded before the deadline."""
        futures = [future for _, future in self.gradings]
        left = self.deadline - time.monotonic()
        wait(futures, None if left == float("inf") else max(0.0, left))
        self.seconds = time.monotonic() - self.began
        missing = {case.task.id for case, future in self.gradings if not future.done()}
        found: dict[str, list[Graded]] = {t.id: [] for t in self.tasks if t.id not in missing}
        for case, future in self.gradings:
            if case.task.id not in missing:
                found[case.task.id].append(future.result())
        return found

    def _grade(self, case: Bundled) -> Graded:
        with suppress(Exception):  # without it NumPy answers
            self.at.warm_answers(case.task).result()
        built = self.shared.builds.of(case)
        start = time.monotonic()
        verdict = _verdict(self.shared.lent, case, built)
        if verdict.kind == "infrastructure_error":  # memory that others took for a moment, most likely
            verdict = _verdict(self.shared.lent, case, built)
        return Graded(case, verdict, time.monotonic() - start)


def _verdict(at: Any, case: Bundled, built: Artifact | BuildFailure | Exception) -> Verdict:
    """The verdict on smoke and check workloads; what goes wrong with us is one, too."""
    start = time.monotonic()
    candidate = load_candidate(case.path)
    judged = Case(
        task=case.task,
        candidate=candidate.name,
        candidate_sha256=candidate.sha256,
        seed=new_seed(),
        clock=lambda: time.monotonic() - start,
    )
    if isinstance(built, BuildFailure):
        return build_verdict(judged, built)
    if isinstance(built, Exception):
        return judged.infrastructure_error(str(built) or fault_of_ours(built))
    judged.use_artifact(built)
    evidence = Evidence(task=case.task, candidate=candidate, artifact=built)
    where = at if case.sort != "hostile" else at.alone
    try:
        return judge_on_gpu(judged, built, evidence, roles=CHECKED, limit_s=SAMPLE_S, at=where)
    except MachineError as error:
        return judged.infrastructure_error(str(error))
    except Exception as error:
        return judged.infrastructure_error(fault_of_ours(error))


class _Shared:
    """What waves share: builds, processes for gradings, and threads that grade."""

    def __init__(self, at: Station, cases: Sequence[Bundled]):
        self.builds = _Builds(cases, at.gpu.architecture)
        self.lent = _Untimed(at)
        self.pool = ThreadPoolExecutor(GRADINGS, "grade")

    def close(self) -> None:
        self.pool.shutdown(wait=False, cancel_futures=True)
        self.builds.close()
        self.lent.close()


class _Builds:
    """All candidates, compiled ahead in their order on most cores at low priority."""

    def __init__(self, cases: Sequence[Bundled], architecture: str):
        self._architecture = architecture
        workers = max(1, (os.cpu_count() or 2) - CPU_SHARE)
        self._pool = ThreadPoolExecutor(workers, "compile", initializer=give_way)
        self._coming = {(c.task.id, c.file): self._pool.submit(self._build, c) for c in cases}

    def _build(self, case: Bundled) -> Artifact | BuildFailure:
        architecture = case.task.target.architecture or self._architecture
        return build(load_candidate(case.path), case.task, architecture)

    def of(self, case: Bundled) -> Artifact | BuildFailure | Exception:
        """The artifact, once; it is not kept."""
        try:
            return self._coming.pop((case.task.id, case.file)).result()
        except Exception as error:
            return error

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


class _Untimed:
    """A station for gradings without a clock. Our own candidates take turns in processes that live on: they
    are honest or mistaken, not hostile."""

    def __init__(self, at: Station):
        self._at, self._free = at, SimpleQueue[Lanes]()
        self.alone = _Alone(at)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._at, name)

    def candidate_lanes(self) -> Lanes:
        try:
            return self._free.get_nowait()
        except Empty:
            return _Returning(self._fresh(), self._free)

    def _fresh(self) -> list[Lane]:
        return [Lane(warm_process("candidate", self._at.gpu.index)) for _ in range(LANES)]

    def close(self) -> None:
        with suppress(Empty):
            while True:
                lanes = self._free.get_nowait()
                Lanes.close(lanes, waiting=False)


class _Alone(_Untimed):
    """The same with processes for one candidate only."""

    def __init__(self, at: Station):
        self._at = at

    def candidate_lanes(self) -> Lanes:
        return Lanes(self._fresh())


class _Returning(Lanes):
    """Lanes that give their memory back and wait for the next candidate when they are closed."""

    def __init__(self, lanes: list[Lane], free: SimpleQueue[Lanes]):
        super().__init__(lanes)
        self._free = free

    def close(self, *, waiting: bool = True) -> None:
        for lane in self.lanes:
            if getattr(getattr(lane.process, "process", lane.process), "dead", False):
                lane.process = None
        self.rest()
        self._free.put(self)
