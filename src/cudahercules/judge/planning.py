"""A candidate's launch plan by itself, for looking at."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path

from cudahercules.build.artifact import Artifact
from cudahercules.build.candidate import load_candidate
from cudahercules.build.compile import BuildFailure, build
from cudahercules.build.toolchain import resolve_architecture
from cudahercules.errors import HerculesError, UsageError
from cudahercules.measure.profiles import load_profile
from cudahercules.record.plan import LaunchPlan
from cudahercules.record.recorder import record
from cudahercules.task.load import load_task
from cudahercules.task.model import Task, Workload, WorkloadRole


class NoPlan(HerculesError):
    """The candidate does not compile, or recording it gave no plan (exit code 1)."""

    exit_code = 1


def plan_candidate(
    task: Task | str, path: Path, workload: str | None = None, notify: Callable[[str], None] | None = None
) -> tuple[LaunchPlan, Artifact]:
    """Build the candidate at ``path`` and record one workload (the first smoke one by default).

    Raises NoPlan for a candidate that has none, UsageError for a wrong task, file or workload.
    """
    notify = notify or (lambda _stage: None)
    task = load_task(task) if isinstance(task, str) else task
    chosen = find_workload(task, workload)
    candidate = load_candidate(path)
    architecture = resolve_architecture(task.target)
    notify("compiling")
    artifact = build(candidate, task, architecture)
    if isinstance(artifact, BuildFailure):
        lines = [f"{candidate.name} does not build: {artifact.message}"]
        lines += [f"  {d.file}:{d.line}: {d.severity}: {d.text}" for d in artifact.diagnostics[:8]]
        raise NoPlan("\n".join(lines))
    notify(f"recording {chosen.name}")
    plan = record(artifact, task, chosen, load_profile(architecture))
    if not isinstance(plan, LaunchPlan):
        raise NoPlan(f"{candidate.name} has no plan for {chosen.name} ({plan.kind}): {plan.message}")
    return plan, artifact


def find_workload(task: Task, name: str | None) -> Workload:
    """A workload by name; the first smoke workload, or else the first of all, without one."""
    if name is None:
        return next(iter(task.workloads_of(WorkloadRole.SMOKE)), task.workloads[0])
    names = [w.name for w in task.workloads]
    if name in names:
        return task.workloads[names.index(name)]
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"Did you mean {close[0]}?" if close else f"It has {', '.join(names)}."
    raise UsageError(f"{task.id} has no workload {name!r}. {hint}")
