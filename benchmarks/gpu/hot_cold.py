"""The same verdicts on a cold card and on one that has been under load: do they agree?"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from common import Budget, Entry, PlanSides, State, Station, built, table, trial

from cudahercules.task.load import load_task

CASES = (
    ("kernel/matmul_wmma/bf16@general", "n_4096", ""),
    ("kernel/matmul_wmma/bf16@general", "n_4096", "SPIN_CYCLES 120000"),
    ("kernel/scale/fp32@general", "us_300", ""),
    ("kernel/scale/fp32@general", "us_300", "SPIN_CYCLES 30000"),
)
REST_S, LOAD_S = 4.0, 8.0
ROUNDS = 2


def run(at: Station, out: Path, budget: Budget, earlier: Path | None = None) -> None:
    state = State("hot_cold", out, earlier)
    sides = PlanSides(at)
    try:
        for task_id, name, define in CASES:
            task = load_task(task_id)
            workload = next(w for w in task.workloads if w.name == name)
            base = Entry(at, task, workload, built(task, task.directory / "naive.cu", at))
            other = Entry(at, task, workload, built(task, task.directory / "naive.cu", at, define))
            for number in range(ROUNDS):
                for card in ("cold", "hot"):
                    key = f"{task.family} {name} {define or 'A/A'} {number} {card}"
                    if key in state:
                        continue
                    if not budget.allows(LOAD_S + 5):
                        report(state)
                        return
                    before = load(at) if card == "hot" else rest(at)
                    sides.play(other, base)
                    row = budget.timed(lambda n=number: trial(at, sides, task, workload, n, seed=3))  # noqa: B023
                    state.put(key, {**row, "before": before})
    finally:
        sides.close()
    report(state)


def rest(at: Station) -> dict[str, Any]:
    time.sleep(REST_S)
    return reading(at)


def load(at: Station) -> dict[str, Any]:
    """Matrix products back to back until the card is hot and under its power cap."""
    torch = at.torch.module()
    a = torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda")
    b = torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda")
    end = time.monotonic() + LOAD_S
    last: dict[str, Any] = {}
    while time.monotonic() < end:
        for _ in range(200):
            torch.mm(a, b)
        last = reading(at)
        torch.cuda.synchronize()
    del a, b
    torch.cuda.empty_cache()
    return last


def reading(at: Station) -> dict[str, Any]:
    r = at.counters.read()
    return {"clock_mhz": r.sm_clock_mhz, "power_w": r.power_w, "temperature_c": r.temperature_c}


def report(state: State) -> None:
    rows = []
    for key, row in state.data.items():
        before = row["before"]
        rows.append(
            [
                key,
                f"{before['temperature_c']} C {before['power_w']} W {before['clock_mhz']} MHz",
                row["outcome"],
                row.get("ratio", row.get("why", "")),
                f"{row.get('expert_us', 0)}",
                row.get("power_w", ""),
                row.get("clock_mhz", ""),
            ]
        )
    header = ["case", "card before", "outcome", "ratio", "base us", "W", "MHz"]
    table("Cold and hot card", header, rows)
