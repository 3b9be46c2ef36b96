"""Who is the opponent: every expert of a task's panel, checked and timed on this GPU.

Called by ``lint``. The times are medians of cold samples of each expert alone: good enough to choose
an opponent, and not what a verdict quotes.
"""

from __future__ import annotations

import datetime
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from cudahercules.judge.design import pause_ms
from cudahercules.judge.lint import share as largest_share
from cudahercules.judge.paired import FAILURES
from cudahercules.judge.protocol import new_seed, sample_seed
from cudahercules.judge.station import Station
from cudahercules.judge.verdict import OutputCheck, WrongOutput
from cudahercules.measure import panel as panels
from cudahercules.measure.panel import Standing, TaskPanel
from cudahercules.replay.interface import Contestant, ExpertDeclined, Request
from cudahercules.task.model import Task, Workload, WorkloadRole
from cudahercules.task.releases import is_release_of

SAMPLES = 9
INSTANCES = 3
"""Fresh memory this many times, so that placement does not choose the opponent."""


def rank_panel(
    task: Task,
    at: Station,
    *,
    experts: Sequence[str] | None = None,
    directory: Path | None = None,
    save: bool = True,
    notify: Callable[[str], None] = lambda _text: None,
) -> TaskPanel:
    """Check and time every expert on every bench workload, fastest first in each; write the file.

    ``experts`` restricts the panel; standings of the others are kept from an earlier ranking of the
    same release. ``directory`` is where the panel file lies (the user's by default).
    """
    seed, usable = new_seed(), at.usable_experts(task)
    rows: list[Standing] = []
    for expert in task.experts:
        if experts is not None and expert.name not in experts:
            continue
        for workload in task.workloads_of(WorkloadRole.BENCH):
            notify(f"{expert.name} on {workload.name}")
            if expert.name not in usable:
                needs = ", ".join(expert.packages) or "another target"
                rows.append(_absent(expert.name, workload, "missing", f"needs {needs}"))
            else:
                rows.append(stand(task, at, expert.name, workload, seed))
        if expert.name in usable:
            at.rest(task, expert.name)
    earlier = panels.load_panel(task, at.gpu.slug)
    if experts is not None and earlier is not None and is_release_of(earlier.release, task):
        rows += [s for s in earlier.standings if s.expert not in experts]
    panel = TaskPanel(
        task=task.id,
        release=task.release,
        date=datetime.date.today().isoformat(),
        driver=at.gpu.driver,
        standings=tuple(sorted(rows, key=lambda s: (s.workload, s.microseconds or float("inf"), s.expert))),
    )
    if save:
        panels.save_panel(panel, at.gpu.slug, directory)
    return panel


def stand(task: Task, at: Station, expert: str, workload: Workload, seed: str) -> Standing:
    """One expert on one workload: medians over instances, and its outputs checked in each."""
    times: list[float] = []
    largest = 0.0
    method, versions = "", {}
    try:
        for instance in range(INSTANCES):
            contestant = at.open_expert(task, expert, workload)
            method, versions = contestant.ready.method, contestant.ready.versions
            seeds = [sample_seed(seed, workload.name, instance * SAMPLES + k) for k in range(SAMPLES)]
            times.append(_median_us(contestant, seeds))
            checks = _check(task, at, contestant, workload, seeds[0])
            if isinstance(checks, WrongOutput):
                return _absent(expert, workload, "wrong", checks.message)
            largest = max(largest, *(largest_share(c) for c in checks))
    except ExpertDeclined as error:
        return _absent(expert, workload, "declined", str(error).splitlines()[0][:300])
    except FAILURES as error:
        return _absent(expert, workload, "failed", str(error).splitlines()[0][:300])
    return Standing(
        expert=expert,
        workload=workload.name,
        outcome="ranked",
        microseconds=round(statistics.median(times), 3),
        method="plan" if panels.is_plan(task, expert) else method,
        largest_error=round(largest, 4),
        versions=versions,
    )


def _median_us(contestant: Contestant, seeds: Sequence[int]) -> float:
    """Median of cold samples after two that are thrown away."""
    first = contestant.batch([Request(seed=s) for s in seeds[:2]])
    pause = pause_ms(first[-1].microseconds)
    samples = contestant.batch([Request(seed=s, pause_ms=pause) for s in seeds])
    return statistics.median(s.microseconds for s in samples)


def _check(
    task: Task, at: Station, contestant: Contestant, workload: Workload, seed: int
) -> tuple[OutputCheck, ...] | WrongOutput:
    sample = contestant.sample(seed, keep=True)
    kept = at.answers.copy(task, workload, contestant, sample)
    contestant.release(sample)
    return at.answers.check(task, workload, kept)


def _absent(
    expert: str, workload: Workload, outcome: Literal["wrong", "missing", "failed", "declined"], why: str
) -> Standing:
    return Standing(expert=expert, workload=workload.name, outcome=outcome, why=why)


def require_margin(panel: TaskPanel, margin: float = 2.0) -> list[str]:
    """Sentences about experts whose errors come within ``margin`` of their bounds (none is right)."""
    return [
        f"{s.expert} on {s.workload}: errors up to {s.largest_error:.0%} of the bounds"
        for s in panel.standings
        if s.largest_error is not None and s.largest_error > 1 / margin
    ]
