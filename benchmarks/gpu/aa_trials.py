"""A/A: the same kernel on both sides. Nothing should be called different.

Kernels of about 20 us to 2 ms, memory-bound (scale) and tensor-bound (matmul_wmma). The candidate is a
plan; the opponent in ``adapter`` trials is the same code under the expert's adapter (torch tensors,
the launch captured by torch), in ``plan`` trials a plan, as our own experts are. Asked for: of 200 trials
at most 2 called faster or slower, and intervals of half-width at most 1 % from 50 us on.
"""

from __future__ import annotations

import statistics
from functools import partial
from typing import Any

from common import Entry, PlanSides, Section, State, built, in_parallel, table, trial

from cudahercules.task.load import load_task
from cudahercules.task.model import WorkloadRole

TRIALS = 200
TASKS = ("kernel/scale/fp32@general", "kernel/matmul_wmma/bf16@general")
SAME = "same_kernel"
"""The expert of both tasks that launches naive.cu's kernel."""
PLAN_EVERY = 4
"""One trial in this many has a plan as opponent."""
ESTIMATE_S = 2.5


def run(section: Section) -> None:
    at = section.at
    cases = [(t, w) for t in map(load_task, TASKS) for w in t.workloads_of(WorkloadRole.BENCH)]
    rounds = -(-TRIALS // len(cases))
    if section.rehearsal:
        cases, rounds = [cases[1], cases[-2]], 1
    entries: dict[str, Entry] = {}

    def enter(task: Any, workload: Any) -> None:
        artifact = built(task, task.directory / "naive.cu", at.gpu.architecture)
        entries[f"{task.id} {workload.name}"] = Entry(at, task, workload, artifact)

    sides = PlanSides(at)
    try:
        for task in {t.id: t for t, _ in cases}.values():
            at.expert_lanes(task, SAME)  # torch comes up meanwhile
        for error in in_parallel([partial(enter, t, w) for t, w in cases]):
            print(f"aa: {error}", flush=True)
        # In turns over the kernels, so that a call that ends early has seen all of them.
        for number in range(rounds):
            for task, workload in cases:
                entry = entries.get(f"{task.id} {workload.name}")
                if entry is None:
                    continue
                if not section.budget.allows(ESTIMATE_S):
                    return
                plan = number % PLAN_EVERY == PLAN_EVERY - 1
                how = "plan" if plan else "adapter"
                sides.play(entry, entry if plan else SAME)
                section.attempt(
                    f"{task.family} {workload.name} {how} {number}",
                    partial(trial, at, sides, task, workload, number, seed=1),
                )
        section.complete = True
    finally:
        sides.close()


def report(state: State) -> None:
    groups: dict[str, list[dict]] = {}
    opponents: dict[str, list[float]] = {}  # microseconds that the candidate takes longer
    for key, row in state.data.items():
        family, workload, how, _ = key.split(" ")
        groups.setdefault(f"{family} {workload}", []).append(row)
        if "ratio" in row:
            opponents.setdefault(how, []).append((1 / row["ratio"] - 1) * row["expert_us"])
    rows, called_of_all = [], 0
    for name, trials in groups.items():
        valid = [t for t in trials if "ratio" in t]
        if not valid:
            first = trials[0]
            rows.append([name, len(trials), *"------", str(first.get("why", first.get("failed")))[:60]])
            continue
        called = sum(t["outcome"] in ("faster", "slower") for t in valid)
        called_of_all += called
        rows.append(
            [
                name,
                len(trials),
                f"{statistics.median(t['expert_us'] for t in valid):.1f}",
                called,
                sum(t["outcome"] == "on_par" for t in valid),
                sum(t["outcome"] == "unresolved" for t in valid),
                len(trials) - len(valid),
                f"{100 * statistics.median(t['half_width'] for t in valid):.2f}",
                f"{100 * (statistics.median(t['ratio'] for t in valid) - 1):+.2f} "
                f"{100 * max(abs(t['ratio'] - 1) for t in valid):.2f} "
                f"{statistics.median(t['seconds'] for t in valid):.2f}",
            ]
        )
    header = ["kernel", "trials", "us", "called", "on_par", "unres", "invalid", "half %", "bias % max % s"]
    table(f"A/A: {len(state.data)} of {TRIALS} trials, {called_of_all} called different", header, rows)
    for how, longer in opponents.items():
        low, middle, high = statistics.quantiles(longer, n=4) if len(longer) > 1 else longer * 3
        said = f"{middle:+.2f} us longer (quartiles {low:+.2f}, {high:+.2f}; {len(longer)} trials)"
        print(f"  against the {how}: the candidate takes {said}")
