"""Who is the opponent: every expert of a task's panel, checked and timed on this GPU.

Called by ``lint``. The times are medians of cold samples of each expert alone: good enough to choose
an opponent, and not what a verdict quotes.
"""

from __future__ import annotations

import datetime
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from cudahercules.judge.design import pause_ms
from cudahercules.judge.lint import share as largest_share
from cudahercules.judge.paired import FAILURES
from cudahercules.judge.protocol import new_seed, sample_seed
from cudahercules.judge.station import Station
from cudahercules.judge.verdict import OutputCheck, WrongOutput
from cudahercules.measure import panel as panels
from cudahercules.measure.panel import Standing, TaskPanel
from cudahercules.replay.interface import Contestant, ContestantHang, ExpertDeclined, Request
from cudahercules.task.model import Task, Workload, WorkloadRole
from cudahercules.task.releases import is_release_of

SAMPLES = 9
INSTANCES = 3
"""Fresh memory this many times for those that may be the fastest."""
CONTENDER = 1.15
"""Whose first time is within this factor of the best may be: placement makes 1 to 2 %."""


def rank_panel(
    task: Task,
    at: Station,
    *,
    experts: Sequence[str] | None = None,
    known: Mapping[tuple[str, str], Standing] | None = None,
    directory: Path | None = None,
    save: bool = True,
    notify: Callable[[str], None] = lambda _text: None,
) -> TaskPanel:
    """Check and time every expert on every bench workload, fastest first in each; write the file.

    ``experts`` restricts the panel; standings of the others are kept from an earlier ranking of the
    same release. ``known`` has standings, by expert and workload, that are taken as they are.
    ``directory`` is where the panel file lies (the user's by default).
    """
    seed, usable = new_seed(), at.usable_experts(task)
    wanted = [e for e in task.experts if experts is None or e.name in experts]
    rows: list[Standing] = []
    hung: dict[str, str] = {}  # experts that did not answer: nobody waits for them again
    for workload in task.workloads_of(WorkloadRole.BENCH):
        heat = _Heat(task, at, workload, seed)
        for expert in wanted:
            notify(f"{expert.name} on {workload.name}")
            row = (known or {}).get((expert.name, workload.name))
            if row is None and expert.name not in usable:
                needs = ", ".join(expert.packages) or "another target"
                row = _absent(expert.name, workload, "missing", f"needs {needs}")
            elif row is None and expert.name in hung:
                row = _absent(expert.name, workload, "failed", f"not tried: {hung[expert.name]}")
            if row is not None:
                rows.append(row)
                continue
            heat.run(expert.name)
            hung |= heat.hung
        rows += heat.finals()
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


@dataclass
class _Heat:
    """The experts on one workload. Everybody runs once on fresh memory; who may be the fastest runs again, so
    that placement does not choose the opponent. All answer the same sample, whose reference is computed
    once, and give their memory back after each run."""

    task: Task
    at: Station
    workload: Workload
    seed: str
    rows: dict[str, Standing] = field(default_factory=dict)
    times: dict[str, list[float]] = field(default_factory=dict)
    hung: dict[str, str] = field(default_factory=dict)
    reference: dict[str, Any] | None = None

    def run(self, expert: str) -> None:
        """One instance: the median of its cold samples, its answer checked."""
        start = time.monotonic()
        try:
            row = self._instance(expert)
        except ExpertDeclined as error:
            row = _absent(expert, self.workload, "declined", _first_line(error))
        except FAILURES as error:
            row = _absent(expert, self.workload, "failed", _first_line(error))
            if isinstance(error, ContestantHang):
                self.hung[expert] = _first_line(error)
        except Exception as error:  # the family's reference, most likely: the other experts must not be lost
            row = _absent(expert, self.workload, "failed", f"not checked: {_first_line(error)}")
        earlier = self.rows.get(expert)
        seconds = time.monotonic() - start + (earlier.seconds if earlier else 0.0)
        self.rows[expert] = row.model_copy(update={"seconds": round(seconds, 4)})

    def finals(self) -> list[Standing]:
        """Everybody's standing, after the further runs of those that may be the fastest."""
        ranked = [s for s in self.rows.values() if s.outcome == "ranked"]
        best = min((s.microseconds or 0.0 for s in ranked), default=0.0)
        contenders = [s.expert for s in ranked if (s.microseconds or 0.0) <= CONTENDER * best]
        for _ in range(INSTANCES - 1):
            for expert in contenders:
                if self.rows[expert].outcome == "ranked":
                    self.run(expert)
        self.reference = None
        self.at.answers.close()
        return list(self.rows.values())

    def _instance(self, expert: str) -> Standing:
        times = self.times.setdefault(expert, [])
        seeds = [sample_seed(self.seed, self.workload.name, len(times) * SAMPLES + k) for k in range(SAMPLES)]
        contestant = self.at.open_expert(self.task, expert, self.workload)
        method, versions = contestant.ready.method, contestant.ready.versions
        times.append(_median_us(contestant, seeds))
        checks = self._check(contestant)
        self.at.rest(self.task, expert)
        if isinstance(checks, WrongOutput):
            return _absent(expert, self.workload, "wrong", checks.message)
        earlier = self.rows.get(expert)
        errors = [largest_share(c) for c in checks] + [(earlier and earlier.largest_error) or 0.0]
        return Standing(
            expert=expert,
            workload=self.workload.name,
            outcome="ranked",
            microseconds=round(statistics.median(times), 3),
            method="plan" if panels.is_plan(self.task, expert) else method,
            largest_error=round(max(errors), 4),
            versions=versions,
        )

    def _check(self, contestant: Contestant) -> tuple[OutputCheck, ...] | WrongOutput:
        seed, answers = sample_seed(self.seed, self.workload.name), self.at.answers
        sample = contestant.sample(seed, keep=True)
        kept = answers.copy(self.task, self.workload, contestant, sample)
        contestant.release(sample)
        if self.reference is None:
            self.reference = answers.reference(self.task, self.workload, seed)
        return answers.check(self.task, self.workload, kept, self.reference)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]


def _median_us(contestant: Contestant, seeds: Sequence[int]) -> float:
    """Median of cold samples after two that are thrown away."""
    first = contestant.batch([Request(seed=s) for s in seeds[:2]])
    pause = pause_ms(first[-1].microseconds)
    samples = contestant.batch([Request(seed=s, pause_ms=pause) for s in seeds])
    return statistics.median(s.microseconds for s in samples)


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
