"""Planted slowdowns of 1, 3 and 5 %: does the rule find them?

The slow variant launches one more kernel that spins for a number of cycles. How many cycles make p %
is calibrated first on its own: a straight line through long runs with few and with many cycles, then
a long run of the chosen variant, whose ratio is the truth that the table quotes.
"""

from __future__ import annotations

import statistics
from pathlib import Path

from common import Budget, Entry, PlanSides, State, Station, built, table, trial

from cudahercules.replay.interface import Request
from cudahercules.task.load import load_task
from cudahercules.task.model import Task, Workload

LEVELS = (1, 3, 5)
TRIALS = 20
CASES = (
    ("kernel/scale/fp32@general", "us_300"),
    ("kernel/matmul_wmma/bf16@general", "n_4096"),
)
LONG_ROUNDS, LONG_BATCH = 12, 8
FEW_CYCLES, MANY_CYCLES = 100, 60_000


def run(at: Station, out: Path, budget: Budget, earlier: Path | None = None) -> None:
    state = State("planted_slowdowns", out, earlier)
    sides = PlanSides(at)
    try:
        for task_id, name in CASES:
            task = load_task(task_id)
            workload = next(w for w in task.workloads if w.name == name)
            base = Entry(at, task, workload, built(task, task.directory / "naive.cu", at))
            slow = {level: calibrated(at, state, sides, base, level) for level in LEVELS}
            for number in range(TRIALS):
                for level in LEVELS:
                    key = f"{task.family} {name} {level} % {number}"
                    if key in state:
                        continue
                    if not budget.allows(4.0):
                        report(state)
                        return
                    sides.play(slow[level], base)
                    row = budget.timed(lambda n=number: trial(at, sides, task, workload, n, seed=2))  # noqa: B023
                    state.put(key, row)
    finally:
        sides.close()
    report(state)


def variant(at: Station, task: Task, workload: Workload, cycles: int) -> Entry:
    artifact = built(task, task.directory / "naive.cu", at, f"SPIN_CYCLES {cycles}")
    return Entry(at, task, workload, artifact)


def calibrated(at: Station, state: State, sides: PlanSides, base: Entry, level: int) -> Entry:
    """The variant of ``base`` that takes ``level`` % longer, and its true ratio in ``state``."""
    task, workload = base.task, base.workload
    line = f"line {task.family} {workload.name}"
    if line not in state:
        few = long_run(sides, variant(at, task, workload, FEW_CYCLES), base)
        many = long_run(sides, variant(at, task, workload, MANY_CYCLES), base)
        state.put(line, {"few": few, "many": many})
    few, many = state.data[line]["few"], state.data[line]["many"]
    slope = (many["ratio"] - few["ratio"]) / (MANY_CYCLES - FEW_CYCLES)
    cycles = max(1, round(FEW_CYCLES + (1 + level / 100 - few["ratio"]) / slope))
    entry = variant(at, task, workload, cycles)
    truth = f"truth {task.family} {workload.name} {level} %"
    if truth not in state:
        state.put(truth, {"cycles": cycles, **long_run(sides, entry, base)})
    return entry


def long_run(sides: PlanSides, slow: Entry, base: Entry) -> dict[str, float]:
    """Time of ``slow`` over time of ``base``: the mean over rounds of the ratio of medians, each round
    on fresh memory, sides in turns."""
    sides.play(slow, base)
    ratios, base_us = [], []
    for number in range(LONG_ROUNDS):
        a, b = sides.candidate(), sides.expert()
        times: dict[str, list[float]] = {"a": [], "b": []}
        for part in range(2):
            requests = [
                Request(
                    seed=1000 * number + 100 * part + k, pause_ms=5 if workload_is_heavy(base_us) else 0.5
                )
                for k in range(LONG_BATCH + (part == 0))
            ]
            times["a"] += [s.microseconds for s in a.batch(requests)][part == 0 :]
            times["b"] += [s.microseconds for s in b.batch(requests)][part == 0 :]
        ratios.append(statistics.median(times["a"]) / statistics.median(times["b"]))
        base_us.append(statistics.median(times["b"]))
    error = statistics.stdev(ratios) / LONG_ROUNDS**0.5
    return {
        "ratio": round(statistics.fmean(ratios), 5),
        "standard_error": round(error, 5),
        "base_us": round(statistics.median(base_us), 2),
    }


def workload_is_heavy(base_us: list[float]) -> bool:
    return not base_us or base_us[-1] > 500


def report(state: State) -> None:
    groups: dict[str, list[dict]] = {}
    for key, row in state.data.items():
        if not key.startswith(("line", "truth")):
            groups.setdefault(key.rsplit(" ", 1)[0], []).append(row)
    rows = []
    for name, trials in groups.items():
        truth = state.data[f"truth {name}"]
        count = {
            o: sum(t["outcome"] == o for t in trials) for o in ("slower", "unresolved", "on_par", "faster")
        }
        invalid = len(trials) - sum(count.values())
        longer = f"{100 * (truth['ratio'] - 1):.2f} +- {100 * truth['standard_error']:.2f}"
        ratios = [t["ratio"] for t in trials if "ratio" in t]
        seen = f"{100 * (1 / statistics.median(ratios) - 1):.2f}" if ratios else "-"
        rows.append([name, longer, seen, len(trials), *count.values(), invalid])
    header = ["planted", "true %", "seen %", "trials", "slower", "unres", "on_par", "faster", "invalid"]
    table("Planted slowdowns", header, rows)
