"""Planted slowdowns of 1, 3 and 5 %: does the rule find them?

The slow variant launches one more kernel that spins for a number of cycles. How many cycles make p %
is calibrated first on its own: a straight line through long runs with few and with many cycles, then
a long run of the chosen variant, whose ratio is the truth that the table quotes.
"""

from __future__ import annotations

import statistics
from functools import partial
from typing import Any

from common import Entry, PlanSides, Section, State, Station, built, in_parallel, table, trial

from cudahercules.replay.interface import Request
from cudahercules.task.load import load_task
from cudahercules.task.model import Task, Workload

LEVELS = ((3, 5), (1,))
"""In percent. 1 % comes last: it is rarely resolved, so that every trial goes through all looks."""
TRIALS = 20
CASES = (
    ("kernel/scale/fp32@general", "us_300"),
    ("kernel/matmul_wmma/bf16@general", "n_4096"),
)
LONG_ROUNDS, LONG_BATCH = 16, 8
FEW_CYCLES, MANY_CYCLES = 100, 60_000
ESTIMATE_S = 2.5


def run(section: Section) -> None:
    at = section.at
    trials, cases = (1, CASES[:1]) if section.rehearsal else (TRIALS, CASES)
    rounds = 3 if section.rehearsal else LONG_ROUNDS
    sides = PlanSides(at)
    try:
        in_parallel([partial(prebuilt, at, c[0], k) for c in cases for k in (FEW_CYCLES, MANY_CYCLES)])
        for task_id, name in cases:
            case = Case(section, sides, task_id, name, rounds)
            for part in LEVELS:
                for number in range(trials):
                    for level in part:
                        if not section.budget.allows(ESTIMATE_S):
                            return
                        case.trial(level, number)
        section.complete = True
    finally:
        sides.close()


def prebuilt(at: Station, task_id: str, cycles: int) -> None:
    task = load_task(task_id)
    built(task, task.directory / "naive.cu", at.gpu.architecture, f"SPIN_CYCLES {cycles}")


class Case:
    """One workload with its slowed variants."""

    def __init__(self, section: Section, sides: PlanSides, task_id: str, name: str, rounds: int):
        self.section, self.at, self.sides, self.rounds = section, section.at, sides, rounds
        self.task: Task = load_task(task_id)
        self.workload: Workload = next(w for w in self.task.workloads if w.name == name)
        artifact = built(self.task, self.task.directory / "naive.cu", self.at.gpu.architecture)
        self.base = Entry(self.at, self.task, self.workload, artifact)
        self.slow: dict[int, Entry | None] = {}

    @property
    def name(self) -> str:
        return f"{self.task.family} {self.workload.name}"

    def trial(self, level: int, number: int) -> None:
        if level not in self.slow:
            self.slow[level] = self.calibrated(level)
        entry = self.slow[level]
        if entry is None:
            return
        self.sides.play(entry, self.base)
        self.section.attempt(
            f"{self.name} {level} % {number}",
            lambda: trial(self.at, self.sides, self.task, self.workload, number, seed=2),
        )

    def variant(self, cycles: int) -> Entry:
        source = self.task.directory / "naive.cu"
        artifact = built(self.task, source, self.at.gpu.architecture, f"SPIN_CYCLES {cycles}")
        return Entry(self.at, self.task, self.workload, artifact)

    def calibrated(self, level: int) -> Entry | None:
        """The variant that takes ``level`` % longer, and its true ratio in the state."""
        line = self.section.attempt(f"line {self.name}", self._line)
        if line is None or "failed" in line:
            return None
        few, many = line["few"], line["many"]
        slope = (many["ratio"] - few["ratio"]) / (MANY_CYCLES - FEW_CYCLES)
        if slope <= 0:
            print(f"planted: {self.name} cannot be calibrated: {line}", flush=True)
            return None
        cycles = max(1, round(FEW_CYCLES + (1 + level / 100 - few["ratio"]) / slope))
        truth = f"truth {self.name} {level} %"
        known = self.section.state.data.get(truth, {})
        entry = self.variant(known.get("cycles", cycles))
        self.section.attempt(truth, lambda: {"cycles": cycles, **self.long_run(entry)})
        return entry

    def _line(self) -> dict[str, Any]:
        return {k: self.long_run(self.variant(c)) for k, c in (("few", FEW_CYCLES), ("many", MANY_CYCLES))}

    def long_run(self, slow: Entry) -> dict[str, float]:
        """Time of ``slow`` over time of the base: the mean over rounds of the ratio of medians, each
        round on fresh memory, sides in turns."""
        self.sides.play(slow, self.base)
        ratios: list[float] = []
        base_us: list[float] = []
        for number in range(self.rounds):
            a, b = self.sides.candidate(), self.sides.expert()
            times: dict[str, list[float]] = {"a": [], "b": []}
            pause = 5.0 if not base_us or base_us[-1] > 500 else 1.0
            for part in range(2):
                seeds = [1000 * number + 100 * part + k for k in range(LONG_BATCH + (part == 0))]
                requests = [Request(seed=s, pause_ms=pause) for s in seeds]
                times["a"] += [s.microseconds for s in a.batch(requests)][part == 0 :]
                times["b"] += [s.microseconds for s in b.batch(requests)][part == 0 :]
            ratios.append(statistics.median(times["a"]) / statistics.median(times["b"]))
            base_us.append(statistics.median(times["b"]))
        return {
            "ratio": round(statistics.fmean(ratios), 5),
            "standard_error": round(statistics.stdev(ratios) / len(ratios) ** 0.5, 5),
            "base_us": round(statistics.median(base_us), 2),
        }


def report(state: State) -> None:
    groups: dict[str, list[dict]] = {}
    for key, row in state.data.items():
        if not key.startswith(("line", "truth")):
            groups.setdefault(key.rsplit(" ", 1)[0], []).append(row)
    rows = []
    for name, trials in groups.items():
        truth = state.data.get(f"truth {name}", {})
        count = {
            o: sum(t.get("outcome") == o for t in trials)
            for o in ("slower", "unresolved", "on_par", "faster")
        }
        others = len(trials) - sum(count.values())
        longer = (
            f"{100 * (truth['ratio'] - 1):.2f} +- {100 * truth['standard_error']:.2f}"
            if "ratio" in truth
            else "-"
        )
        ratios = [t["ratio"] for t in trials if "ratio" in t]
        seen = f"{100 * (1 / statistics.median(ratios) - 1):.2f}" if ratios else "-"
        rows.append([name, longer, seen, len(trials), *count.values(), others])
    header = ["planted", "true %", "seen %", "trials", "slower", "unres", "on_par", "faster", "invalid"]
    table("Planted slowdowns", header, rows)
