"""A/A: the same plan against itself in the expert's place. Nothing should be called different.

Kernels of about 20 us to 2 ms, memory-bound (scale) and tensor-bound (matmul_wmma). Asked for: of 200
trials at most 2 called faster or slower, and intervals of half-width at most 1 % from 50 us on.
"""

from __future__ import annotations

import statistics
from pathlib import Path

from common import Budget, Entry, PlanSides, State, Station, built, table, trial

from cudahercules.task.load import load_task
from cudahercules.task.model import WorkloadRole

TRIALS = 200
TASKS = ("kernel/scale/fp32@general", "kernel/matmul_wmma/bf16@general")


def run(at: Station, out: Path, budget: Budget, earlier: Path | None = None) -> None:
    state = State("aa_trials", out, earlier)
    cases = [
        (task, workload)
        for task in map(load_task, TASKS)
        for workload in task.workloads_of(WorkloadRole.BENCH)
    ]
    sides = PlanSides(at)
    entries: dict[str, tuple[Entry, Entry]] = {}
    try:
        # In turns over the kernels, so that a call that ends early has seen all of them.
        for number in range(-(-TRIALS // len(cases))):
            for task, workload in cases:
                key = f"{task.family} {workload.name} {number}"
                if key in state:
                    continue
                if not budget.allows(4.0):
                    report(state)
                    return
                name = f"{task.id} {workload.name}"
                if name not in entries:
                    artifact = built(task, task.directory / "naive.cu", at)
                    entries[name] = tuple(Entry(at, task, workload, artifact) for _ in range(2))  # type: ignore
                sides.play(*entries[name])
                row = budget.timed(lambda t=task, w=workload, n=number: trial(at, sides, t, w, n, seed=1))
                state.put(key, row)
    finally:
        sides.close()
    report(state)


def report(state: State) -> None:
    groups: dict[str, list[dict]] = {}
    for key, row in state.data.items():
        groups.setdefault(key.rsplit(" ", 1)[0], []).append(row)
    rows = []
    for name, trials in groups.items():
        valid = [t for t in trials if t["outcome"] != "invalid"]
        if not valid:
            rows.append([name, len(trials), *["-"] * 7, f"{len(trials)} invalid: {trials[0]['why']}"[:60]])
            continue
        called = sum(t["outcome"] in ("faster", "slower") for t in valid)
        spread = [abs(t["ratio"] - 1) for t in valid]
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
                f"{100 * max(spread):.2f}",
                f"{statistics.median(t['seconds'] for t in valid):.2f}",
            ]
        )
    header = ["kernel", "trials", "us", "called", "on_par", "unres", "invalid", "half %", "max |r-1| %", "s"]
    table(f"A/A trials: {len(state.data)} of {TRIALS}", header, rows)
