"""The families on this GPU: the panel ranked, honest candidates timed, mutants rejected, and our tuned
kernels against the best *library* of the panel.

A member of each family comes first in everything: all their experts come up side by side while mutants
are rejected, then the panels are ranked and the tuned candidates timed, one at a time. The other members
follow, family by family: their panels, what is tuned for them, and their mutants. Other honest candidates
are graded by ``hercules demo``.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, wait
from functools import partial
from itertools import groupby
from pathlib import Path
from threading import Thread
from typing import Any

from common import Section, State, Station, in_parallel, table

from cudahercules.build.candidate import load_candidate
from cudahercules.build.compile import BuildFailure, build
from cudahercules.judge.batch import build_verdict
from cudahercules.judge.bundled import Bundled, bundled
from cudahercules.judge.evidence import Evidence
from cudahercules.judge.gpu import ORDER, judge_on_gpu
from cudahercules.judge.lanes import Lane, Lanes
from cudahercules.judge.protocol import Case, new_seed
from cudahercules.judge.ranking import rank_panel
from cudahercules.judge.verdict import Verdict
from cudahercules.measure import panel as panels
from cudahercules.replay.interface import warm_process
from cudahercules.task.load import all_tasks
from cudahercules.task.model import Target, Task, WorkloadRole

FIRST = (
    "module/layernorm_fwd/bf16_4096@general",
    "module/layernorm_fwd/fp32_4096@general",
    "kernel/rotary/hd128_halved@general",
    "kernel/softmax/bf16@general",
    "module/fft_c2c_1d/fp32_1024@general",
    "module/attention_fwd/hdim128_bf16_causal@hopper",
    "kernel/gemm/bf16@hopper",
    "kernel/sort_keys/general@general",
    "module/cross_entropy/bf16@general",
    "kernel/gemm_softmax/fp16@hopper",
    "kernel/gemm/fp32@general",
)
REHEARSED = ("module/layernorm_fwd/fp32_4096@general", "kernel/gemm/fp32@general")
AUTOTUNED = ("torch_compile_max_autotune",)
COMPILED = ("torch_compile", *AUTOTUNED)
"""Experts that take 10 s a shape (20 to 60 s) to come up."""
WARM_UP_S, COMPILE_S = 75.0, 25.0
HOSTILE_S = 5.0
SIDE_BY_SIDE = 4
"""Untimed gradings at a time: each is a second of process start and a millisecond of GPU."""


def ordered_tasks() -> list[Task]:
    """Every bundled task, those of FIRST before all, then family by family."""
    found = [t for t in all_tasks() if "benchmark" not in t.domain]
    rank = {name: k for k, name in enumerate(FIRST)}
    return sorted(found, key=lambda t: (rank.get(t.id, len(rank)), t.id))


def run(section: Section) -> None:
    tasks = [t for t in ordered_tasks() if not section.rehearsal or t.id in REHEARSED]
    first = [t for t in tasks if t.id in FIRST]
    at = section.at
    _ = section.state, at.profile, at.own_profile  # read once, before there are threads
    ready = come_up(section, first, AUTOTUNED if not section.rehearsal else COMPILED)
    for task in first:
        rank(section, task, ready)
    for task in first:
        honest(section, task, only="tuned")
    must_fail(section, first, "hostile")
    if section.rehearsal:
        section.complete = True
        return
    for _family, members in groupby((t for t in tasks if t not in first), key=lambda t: t.family):
        group = list(members)
        if not section.budget.allows(COMPILE_S):
            return
        ready = come_up(section, group, AUTOTUNED)
        for task in group:
            rank(section, task, ready)
        for task in group:
            honest(section, task, only="tuned")
    section.complete = section.budget.left > 5


def come_up(section: Section, tasks: list[Task], without: tuple[str, ...]) -> set[tuple[str, str]]:
    """``warm_up``, and the tasks' mutants meanwhile: they need a moment of the GPU each, and nobody
    measures."""
    mutants = Thread(target=must_fail, args=(section, tasks, "mutant"))
    mutants.start()
    ready = warm_up(section, tasks, without)
    mutants.join()
    return ready


def warm_up(section: Section, tasks: list[Task], without: tuple[str, ...]) -> set[tuple[str, str]]:
    """Bring up every expert on every bench workload, side by side: torch is imported and kernels are
    compiled on all cores; nothing of this is timed. The (task, expert) pairs that came up: an expert whose
    process is still busy with any of its tasks has not."""
    at = section.at
    coming: dict[tuple[str, str], list[Future[None]]] = {}  # by family and expert, who share a process
    members: set[tuple[str, str]] = set()  # twins need it once
    for task in tasks:
        for expert in at.usable_experts(task):
            own = task.id if panels.is_plan(task, expert) else f"{task.family}/{task.member}"
            known = f"panel {task.id} {expert}" in section.state or (own, expert) in members
            if expert not in without and not known and not twins_standings(section.state, task, expert):
                members.add((own, expert))
                futures = coming.setdefault((task.family, expert), [])
                futures += [at.bring_up(task, expert, w) for w in task.workloads_of(WorkloadRole.BENCH)]
    deadline = min(time.monotonic() + WARM_UP_S, section.budget.end - 5)
    wait([f for futures in coming.values() for f in futures], max(0.0, deadline - time.monotonic()))
    for (family, expert), futures in coming.items():
        for error in filter(None, (f.exception() for f in futures if f.done())):
            print(f"families: {expert} of {family}: {type(error).__name__}: {str(error)[:300]}", flush=True)
    done = {key for key, futures in coming.items() if all(f.done() for f in futures)}
    return {(task.id, expert) for task in tasks for family, expert in done if family == task.family}


def rank(section: Section, task: Task, ready: set[tuple[str, str]]) -> None:
    """Rank the experts that came up, and note those that this machine lacks; each is saved at once."""
    at = section.at
    usable = at.usable_experts(task)
    for expert in task.experts:
        key = f"panel {task.id} {expert.name}"
        if key not in section.state:
            twin = twins_standings(section.state, task, expert.name)
            if expert.name in usable and twin is None and (task.id, expert.name) not in ready:
                print(f"families: {key}: not ready in time", flush=True)
                continue
            if not section.budget.allows(3):
                return
        found = section.attempt(key, partial(standings, section, task, expert.name))
        if found is not None and "failed" not in found:
            save(at, task, found, section.out)


def standings(section: Section, task: Task, expert: str) -> dict[str, Any]:
    if twin := twins_standings(section.state, task, expert):
        return twin
    panel = rank_panel(task, section.at, experts=(expert,), save=False)
    mine = tuple(s for s in panel.standings if s.expert == expert)
    return panel.model_copy(update={"standings": mine}).model_dump(mode="json")


def twins_standings(state: State, task: Task, expert: str) -> dict[str, Any] | None:
    """What is known of the same expert on the same member for another target: the same code on the same
    workloads. A plan is built for its target and measured for each."""
    if panels.is_plan(task, expert):
        return None
    for target in Target:
        known = state.data.get(f"panel {task.family}/{task.member}@{target.value} {expert}")
        if known is not None and "standings" in known:
            return {**known, "task": task.id, "release": task.release}
    return None


def save(at: Station, task: Task, found: dict[str, Any], out: Path) -> None:
    """Add an expert's standings to the user's panel file, which gradings read, and to ``out``."""
    new = panels.TaskPanel.model_validate(found)
    mine = {s.expert for s in new.standings}
    known = panels.load_panel(task, at.gpu.slug)
    if known is not None and known.release == task.release:
        others = tuple(s for s in known.standings if s.expert not in mine)
        new = new.model_copy(update={"standings": (*new.standings, *others)})
    order = sorted(new.standings, key=lambda s: (s.workload, s.microseconds or float("inf"), s.expert))
    new = new.model_copy(update={"standings": tuple(order)})
    panels.save_panel(new, at.gpu.slug)
    panels.save_panel(new, at.gpu.slug, out)
    (out / f"{at.gpu.slug}.lock").unlink(missing_ok=True)


def honest(section: Section, task: Task, only: str = "") -> None:
    """Honest candidates whose names begin with ``only`` against the panel's winner; the tuned ones
    against the best library as well."""
    cases = [c for c in bundled(task) if c.sort == "honest" and c.file.startswith(only)]
    if section.rehearsal:
        cases = [c for c in cases if c.file.startswith("tuned")] or cases[:1]
    for case in cases:
        rivals: list[str | None] = [None]
        if case.file.startswith("tuned"):
            library = best_library(task, panels.load_panel(task, section.at.gpu.slug))
            rivals += [library] if library else []
        for rival in rivals:
            key = f"honest {task.id} {case.file}" + (f" against {rival}" if rival else "")
            if section.budget.allows(5):
                section.attempt(key, partial(graded, section.at, task, case, rival))


def best_library(task: Task, panel: panels.TaskPanel | None) -> str | None:
    """The fastest expert that is not a kernel of ours, by its time summed over bench workloads."""
    totals: dict[str, float] = {}
    for standing in panel.standings if panel else ():
        if standing.outcome == "ranked" and not panels.is_plan(task, standing.expert):
            totals[standing.expert] = totals.get(standing.expert, 0.0) + (standing.microseconds or 0.0)
    return min(totals, key=totals.__getitem__, default=None)


class Untimed:
    """A station for gradings without a clock, several at a time: one fresh process each."""

    def __init__(self, at: Station):
        self._at = at

    def __getattr__(self, name: str) -> Any:
        return getattr(self._at, name)

    def candidate_lanes(self) -> Lanes:
        return Lanes([Lane(warm_process("candidate", self._at.gpu.index))])


def must_fail(section: Section, tasks: list[Task], sort: str) -> None:
    """Mutants or hostile candidates on smoke and check workloads only: none may reach the clock."""
    cases = [(t, c) for t in tasks for c in bundled(t) if c.sort == sort]
    if section.rehearsal:
        cases = cases[:3]
    untimed = Untimed(section.at)
    jobs = [partial(_must_fail_one, section, untimed, task, case) for task, case in cases]
    for error in in_parallel(jobs, SIDE_BY_SIDE, section.budget.end - 2):
        print(f"families: {type(error).__name__}: {error}", flush=True)


def _must_fail_one(section: Section, untimed: Untimed, task: Task, case: Bundled) -> None:
    if section.budget.left > 5:
        section.attempt(f"{case.sort} {task.id} {case.file}", partial(graded, untimed, task, case, None))


def graded(at: Any, task: Task, case: Bundled, against: str | None) -> dict[str, Any]:
    start = time.monotonic()
    verdict = grade(at, task, case, against)
    return row(case, verdict, time.monotonic() - start)


def grade(at: Any, task: Task, case: Bundled, against: str | None) -> Verdict:
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
    limit_s = 30.0 if case.sort == "honest" else HOSTILE_S
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
            for k in (getattr(verdict, "kernels", ()) if case.sort == "honest" else ())
        ],
        "seconds": verdict.seconds.model_dump(),
        "wall": round(seconds, 2),
    }


def report(state: State) -> None:
    _report_panels(state)
    _report_honest(state)
    bad, counts = [], {"mutant": 0, "hostile": 0}
    for key, value in state.data.items():
        sort = key.split(" ")[0]
        if sort in counts and "kind" in value:
            counts[sort] += 1
            if value["kind"] not in value["expected"].split(" or "):
                bad.append([key, value["expected"], value["kind"], value["message"][:80]])
    title = f"{counts['mutant']} mutants and {counts['hostile']} hostile candidates graded; not as expected: "
    table(title + str(len(bad)), ["case", "expected", "got", "message"], bad)


def _report_panels(state: State) -> None:
    """A line a workload: the experts by time, then those that did not run."""
    standings: dict[str, list[dict[str, Any]]] = {}
    for key, value in state.data.items():
        if key.startswith("panel "):
            task, expert = key.split(" ")[1:]
            for s in value.get("standings", [{"expert": expert, "workload": "-", "outcome": "failed"}]):
                standings.setdefault(f"{task} {s['workload']}", []).append(s)
    rows = []
    for name, found in standings.items():
        ranked = sorted((s for s in found if s.get("microseconds")), key=lambda s: s["microseconds"])
        others = [f"{s['expert']} {s['outcome']}" for s in found if not s.get("microseconds")]
        shown = [
            f"{s['expert']} {s['microseconds']:.1f} ({s['method']}, {s['largest_error']:.0%})" for s in ranked
        ]
        rows.append([name, ", ".join(shown + others)])
    table("Panels: us (method, largest error of its bound)", ["workload", "experts"], rows)


def _report_honest(state: State) -> None:
    rows = []
    for key, value in state.data.items():
        if not key.startswith("honest "):
            continue
        if "kind" not in value:
            rows.append([key[7:], "failed", value["failed"][:60], "", "", ""])
            continue
        ratio = "/".join("-" if r is None else f"{r:.3f}" for r in value["ratio"])
        each = " ".join(
            f"{w['workload']} {w['ratio']:.3f} vs {w['expert']} ({w['ceiling_fraction']:.0%} of ceiling)"
            for w in value["workloads"]
        )
        said = value["outcome"] or value["message"] or value["reason"]
        rows.append(
            [key[7:], value["kind"], said[:60], ratio, f"{value['seconds']['gpu_held']:.1f}", each[:150]]
        )
    header = ["candidate", "kind", "outcome", "low/ratio/high", "held s", "workloads"]
    table("Honest candidates", header, rows)
