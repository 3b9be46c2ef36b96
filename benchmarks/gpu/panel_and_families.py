"""The families on this GPU: the panel ranked, honest candidates timed, mutants rejected, and our tuned
kernels against the best *library* of the panel."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from common import Budget, State, Station, table

from cudahercules.build.candidate import load_candidate
from cudahercules.build.compile import BuildFailure, build
from cudahercules.judge.batch import build_verdict
from cudahercules.judge.bundled import Bundled, bundled
from cudahercules.judge.evidence import Evidence
from cudahercules.judge.gpu import ORDER, judge_on_gpu
from cudahercules.judge.protocol import Case, new_seed
from cudahercules.judge.ranking import rank_panel
from cudahercules.judge.verdict import Verdict
from cudahercules.measure import panel as panels
from cudahercules.task.load import all_tasks
from cudahercules.task.model import Task, WorkloadRole

SLOW_TO_COMPILE = ("torch_compile_max_autotune",)
HOSTILE_S = 10.0
FIRST = ("kernel/gemm", "kernel/rotary", "module/layernorm_fwd")
"""Families that come before the others, in case the time ends."""


def tasks() -> list[Task]:
    """Every bundled task for ``general``; the other targets have the same members here."""
    found = [t for t in all_tasks() if t.target.value == "general" and "benchmark" not in t.domain]
    return sorted(found, key=lambda t: (t.family not in FIRST, t.id))


def run(at: Station, out: Path, budget: Budget, earlier: Path | None = None) -> None:
    state = State("panel_and_families", out, earlier)
    for task in tasks():
        key = f"panel {task.id}"
        if key in state:
            panels.save_panel(panels.TaskPanel.model_validate(state.data[key]), at.gpu.slug)
        elif budget.allows(12):
            names = [e.name for e in task.experts if e.name not in SLOW_TO_COMPILE or budget.left > 240]
            panel = budget.timed(lambda t=task, n=names: rank_panel(t, at, experts=n))
            state.put(key, panel.model_dump(mode="json"))
            panels.save_panel(panel, at.gpu.slug, out / "panels")
    for task in tasks():
        panel = panels.load_panel(task, at.gpu.slug)
        for case in bundled(task):
            _grade_case(at, state, budget, task, case, None)
            if case.file == "tuned.cu":
                library = best_library(task, panel)
                if library is not None:
                    _grade_case(at, state, budget, task, case, library)
    report(state)


def best_library(task: Task, panel: panels.TaskPanel | None) -> str | None:
    """The fastest expert that is not a kernel of ours, by its time summed over bench workloads."""
    totals: dict[str, float] = {}
    for standing in panel.standings if panel else ():
        if standing.outcome == "ranked" and not panels.is_plan(task, standing.expert):
            totals[standing.expert] = totals.get(standing.expert, 0.0) + (standing.microseconds or 0.0)
    return min(totals, key=totals.__getitem__, default=None)


def _grade_case(
    at: Station, state: State, budget: Budget, task: Task, case: Bundled, against: str | None
) -> None:
    key = f"{case.sort} {task.id} {case.file}" + (f" against {against}" if against else "")
    if key in state or not budget.allows(6):
        return
    start = time.monotonic()
    verdict = budget.timed(lambda: grade(at, task, case, against))
    state.put(key, row(case, verdict, time.monotonic() - start))


def grade(at: Station, task: Task, case: Bundled, against: str | None) -> Verdict:
    """Mutants and hostile candidates on smoke and check workloads only: none may reach the clock."""
    candidate = load_candidate(case.path)
    start = time.monotonic()
    judged = Case(
        task=task,
        candidate=candidate.name,
        candidate_sha256=candidate.sha256,
        seed=new_seed(),
        clock=lambda: time.monotonic() - start,
    )
    artifact = build(candidate, task, task.target.architecture or at.gpu.architecture)
    judged.watch.build = time.monotonic() - start
    if isinstance(artifact, BuildFailure):
        return build_verdict(judged, artifact)
    judged.use_artifact(artifact)
    roles = ORDER if case.sort == "honest" else (WorkloadRole.SMOKE, WorkloadRole.CHECK)
    limit_s = 60.0 if case.sort == "honest" else HOSTILE_S
    evidence = Evidence(task=task, candidate=candidate, artifact=artifact)
    return judge_on_gpu(judged, artifact, evidence, roles=roles, limit_s=limit_s, at=at, against=against)


def row(case: Bundled, verdict: Verdict, seconds: float) -> dict[str, Any]:
    timing = getattr(verdict, "timing", None)
    workloads = getattr(timing, "workloads", ())
    return {
        "expected": case.expected,
        "kind": verdict.kind,
        "message": getattr(verdict, "message", ""),
        "outcome": getattr(timing, "outcome", ""),
        "ratio": [getattr(timing, k, None) for k in ("low", "ratio", "high")],
        "workloads": [w.model_dump(mode="json") for w in workloads],
        "reason": getattr(timing, "reason", ""),
        "kernels": [
            {"name": k.name, "registers": k.registers, "mix": k.instruction_mix}
            for k in getattr(verdict, "kernels", ())
        ],
        "seconds": verdict.seconds.model_dump(),
        "wall": round(seconds, 2),
    }


def report(state: State) -> None:
    rows = []
    for key, value in state.data.items():
        if key.startswith("panel "):
            for s in value["standings"]:
                error = s["largest_error"]
                shown = f"{s['microseconds']:.1f} us" if s["microseconds"] else s["why"][:60]
                rows.append(
                    [
                        key[6:],
                        s["workload"],
                        s["expert"],
                        shown,
                        s["method"],
                        "" if error is None else f"{error:.0%}",
                    ]
                )
    table("Panels", ["task", "workload", "expert", "time", "method", "error/bound"], rows)
    honest, others = [], []
    for key, value in state.data.items():
        if key.startswith("honest "):
            ratio = "/".join("-" if r is None else f"{r:.3f}" for r in value["ratio"])
            each = " ".join(
                f"{w['workload']} {w['outcome']} {w['ratio']:.3f} vs {w['expert']} "
                f"({w['ceiling_fraction']:.0%} of the ceiling)"
                for w in value["workloads"]
            )
            said = value["outcome"] or value["message"] or value["reason"]
            held = f"{value['seconds']['gpu_held']:.1f}"
            honest.append([key[7:], value["kind"], said[:60], ratio, held, each])
        elif not key.startswith("panel "):
            good = value["kind"] in value["expected"].split(" or ")
            if not good:
                others.append([key, value["expected"], value["kind"], value["message"][:80]])
    table(
        "Honest candidates", ["candidate", "kind", "outcome", "low/ratio/high", "held s", "workloads"], honest
    )
    count = sum(k.startswith(("mutant ", "hostile ")) for k in state.data)
    table(
        f"Mutants and hostile: {count} graded; not as expected:",
        ["case", "expected", "got", "message"],
        others,
    )
