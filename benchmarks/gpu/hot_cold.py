"""The same verdicts on a cold card and on one that has been under load: do they agree?"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from common import Entry, PlanSides, Section, State, Station, built, in_parallel, table, trial

from cudahercules.task.load import load_task
from cudahercules.task.model import Task

CASES = (
    ("kernel/matmul_wmma/bf16@general", "n_4096", ""),
    ("kernel/scale/fp32@general", "us_300", ""),
    ("kernel/matmul_wmma/bf16@general", "n_4096", "SPIN_CYCLES 120000"),
    ("kernel/scale/fp32@general", "us_300", "SPIN_CYCLES 30000"),
)
"""Each against itself (A/A), then with a spin of 60 and 15 us behind it (about 5 to 8 % slower)."""
REST_S, LOAD_S = 2.0, 5.0


def run(section: Section) -> None:
    """All cases on the cold card first, then all on the hot one: one load serves several trials, and
    is renewed before each."""
    at = section.at
    cases = CASES[:1] if section.rehearsal else CASES
    load_s = 1.5 if section.rehearsal else LOAD_S
    entries: dict[tuple[str, str, str], Entry] = {}

    def enter(task_id: str, name: str, define: str) -> None:
        task = load_task(task_id)
        artifact = built(task, task.directory / "naive.cu", at.gpu.architecture, define)
        entries[task_id, name, define] = Entry(at, task, workload_of(task, name), artifact)

    needed = {*cases, *((task_id, name, "") for task_id, name, _ in cases)}
    for error in in_parallel([partial(enter, *c) for c in needed]):
        print(f"hot: {error}", flush=True)
    sides = PlanSides(at)
    try:
        for card in ("cold", "hot"):
            for task_id, name, define in cases:
                base = entries.get((task_id, name, ""))
                other = entries.get((task_id, name, define))
                if base is None or other is None:
                    continue
                if not section.budget.allows(load_s + 2 if card == "hot" else 3):
                    return
                sides.play(other, base)
                section.attempt(
                    f"{base.task.family} {name} {define or 'A/A'} {card}",
                    partial(under, at, sides, base, card, load_s),
                )
        section.complete = True
    finally:
        sides.close()


def under(at: Station, sides: PlanSides, base: Entry, card: str, load_s: float) -> dict[str, Any]:
    before = load(at, load_s) if card == "hot" else rest(at)
    return {**trial(at, sides, base.task, base.workload, 0, seed=3), "before": before}


def workload_of(task: Task, name: str) -> Any:
    return next(w for w in task.workloads if w.name == name)


def rest(at: Station) -> dict[str, Any]:
    time.sleep(REST_S)
    return reading(at)


def load(at: Station, seconds: float) -> dict[str, Any]:
    """Matrix products back to back until the card is hot and under its power cap."""
    torch = at.torch.module()
    a = torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda")
    b = torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda")
    end = time.monotonic() + seconds
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
    for key, row in sorted(state.data.items()):
        before = row.get("before", {})
        rows.append(
            [
                key,
                " ".join(str(before.get(k)) for k in ("temperature_c", "power_w", "clock_mhz")),
                row.get("outcome", "failed"),
                row.get("ratio", str(row.get("why", row.get("failed")))[:60]),
                row.get("expert_us", ""),
                row.get("power_w", ""),
                row.get("clock_mhz", ""),
            ]
        )
    header = ["case", "before: C W MHz", "outcome", "ratio", "base us", "W", "MHz"]
    table("Cold and hot card", header, rows)
