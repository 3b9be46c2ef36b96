"""The candidates that ship with a family, each with the verdict that it must get."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cudahercules.build.candidate import load_candidate
from cudahercules.build.compile import build
from cudahercules.errors import HerculesError
from cudahercules.judge.grade import grade
from cudahercules.judge.verdict import Verdict
from cudahercules.task.load import all_tasks, load_family, load_task, load_tasks
from cudahercules.task.model import Target, Task

LIMIT_S = 10.0
"""Wall seconds for one workload: an endless kernel must end in a time that people wait for."""

REPRESENTATIVE = ("kernel/gemm", "kernel/softmax", "module/layernorm_fwd", "module/cross_entropy")
"""What ``demo`` shows where nothing is named: two families a class, with hostile candidates among them, so
that it ends in about two minutes on two cores. The other families are no different in kind."""


@dataclass(frozen=True)
class Bundled:
    """``expected`` is a verdict's kind, or several ("incorrect or crash"); ``reason`` says why."""

    task: Task
    file: str
    sort: Literal["honest", "mutant", "hostile"]
    expected: str
    reason: str

    @property
    def path(self) -> Path:
        return self.task.directory / self.file


@dataclass(frozen=True)
class Graded:
    bundled: Bundled
    verdict: Verdict
    seconds: float

    @property
    def as_expected(self) -> bool:
        return self.verdict.kind in self.bundled.expected.split(" or ")


def bundled(task: Task) -> tuple[Bundled, ...]:
    """Honest solutions first (naive.cu before all), then mutants, then hostile ones."""
    honest = [_honest(task, file) for file in task.candidates]
    mutants = [Bundled(task, m.file, "mutant", m.verdict, m.reason) for m in task.mutants]
    hostile = [Bundled(task, m.file, "hostile", m.verdict, m.reason) for m in task.hostile]
    return (*honest, *mutants, *hostile)


def _honest(task: Task, file: str) -> Bundled:
    if file in task.beyond_emulator:
        reason = "an honest solution with instructions that the emulator may not know"
        return Bundled(task, file, "honest", "correct or unsupported_on_cpu", reason)
    return Bundled(task, file, "honest", "correct", "an honest solution")


def grade_bundled(
    cases: Sequence[Bundled],
    device: Literal["gpu", "cpu"],
    *,
    workers: int = 2,
    notify: Callable[[str], None] | None = None,
) -> Iterator[Graded]:
    """Grade candidates and yield each when it is done: on a CPU several at a time, on a GPU as batches, a
    task after the other, while the opponents of later tasks come up.

    A MachineError ends the whole; an infrastructure_error verdict does not.
    """
    graded = _on_the_card(cases) if device == "gpu" else _side_by_side(cases, workers)
    for done, each in enumerate(graded, 1):
        if notify is not None:
            notify(f"{done} of {len(cases)} candidates graded")
        yield each


def _side_by_side(cases: Sequence[Bundled], workers: int) -> Iterator[Graded]:
    pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="bundled")
    try:
        for future in as_completed([pool.submit(_grade_one, case) for case in cases]):
            yield future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _on_the_card(cases: Sequence[Bundled]) -> Iterator[Graded]:
    from cudahercules.judge.batch import judge_many_on_gpu
    from cudahercules.judge.gpu import station

    at = station()
    by_task: dict[str, list[Bundled]] = {}
    for case in cases:
        by_task.setdefault(case.task.id, []).append(case)
    for mine in by_task.values():
        at.start_experts(mine[0].task)
    _compile(cases, at.gpu.architecture)
    for mine in by_task.values():
        paths = [case.path for case in mine]
        for position, verdict in judge_many_on_gpu(mine[0].task, paths, at, limit_s=LIMIT_S):
            yield Graded(mine[position], verdict, verdict.seconds.total)


def _compile(cases: Sequence[Bundled], architecture: str) -> None:
    """Compile all cases on all cores, for the build cache, while opponents come up and nothing is timed. What
    fails says so when it is graded."""

    def compile_one(case: Bundled) -> None:
        with suppress(HerculesError):
            build(load_candidate(case.path), case.task, case.task.target.architecture or architecture)

    with ThreadPoolExecutor(os.cpu_count() or 2, "compile") as pool:
        list(pool.map(compile_one, cases))


def _grade_one(case: Bundled) -> Graded:
    start = time.monotonic()
    verdict = grade(case.task, case.path, "cpu", limit_s=LIMIT_S)
    return Graded(case, verdict, time.monotonic() - start)


def demonstration(names: Sequence[str] = ()) -> tuple[Bundled, ...]:
    """Everything that is bundled with the tasks of these names; without names, with the simplest task of each
    family in :data:`REPRESENTATIVE`. Raises UsageError for an unknown name."""
    tasks = [load_task(n) for n in names] or [simplest(load_tasks(family)) for family in REPRESENTATIVE]
    return tuple(case for task in tasks for case in bundled(task))


def whole_demonstration() -> tuple[Bundled, ...]:
    """Everything that is bundled with the simplest task of every family, ``$HERCULES_TASKS`` included."""
    directories = dict.fromkeys(t.directory for t in all_tasks())
    return tuple(case for directory in directories for case in bundled(simplest(load_family(directory))))


def simplest(family: tuple[Task, ...]) -> Task:
    """The member that a family declares first, for the target ``general`` where it has one."""
    first = [t for t in family if t.member == family[0].member]
    return next((t for t in first if t.target is Target.GENERAL), first[0])
