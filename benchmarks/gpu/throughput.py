"""How long a verdict takes, split into its stages: alone from cold, and in a batch.

``alone`` starts `hercules grade` as a user does, with source code that no cache has seen. ``batch``
grades sources that differ (so that each is compiled) with one station; it ends with its budget and
says how many verdicts came.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from common import HERE, Section, State, table

from cudahercules.judge.batch import judge_many_on_gpu
from cudahercules.judge.verdict import Verdict
from cudahercules.task.load import load_task
from cudahercules.task.model import Task

ALONE = (
    ("kernel/softmax/fp32@general", "naive.cu"),
    ("module/layernorm_fwd/fp32_4096@general", "tuned.cu"),
    ("kernel/rotary/hd128_halved@general", "vectorised.cu"),
    ("kernel/gemm/fp32@general", "tiled.cu"),
    ("module/layernorm_fwd/fp32_4096@general", "naive.cu"),
)
ALONE_S = 12.0
"""Seconds that one grading alone may be expected to take."""
BATCH_TASK = "module/layernorm_fwd/fp32_4096@general"
BATCH_SOURCES = ("tuned.cu", "registers.cu", "two_kernels.cu", "naive.cu", "mutants/bias_ignored.cu")
BATCH = 50
PEER_SOFTMAX_S = (49.0, 53.0)
"""Seconds a verdict of torch's load_inline with another project's evaluator, same kernel and GPU."""


def run(section: Section) -> None:
    """Alone first, while this process has no context: the grading would call it a stranger."""
    reserve = 0.5 * section.budget.left  # for the batch
    alone_s = 5 if section.rehearsal else ALONE_S
    for task_id, source in ALONE[1:2] if section.rehearsal else ALONE:
        if section.budget.left - reserve > alone_s:
            limit = section.budget.left - 3
            section.attempt(f"alone {task_id} {source}", partial(alone, task_id, source, limit))
    count = 3 if section.rehearsal else BATCH
    if section.budget.left > 5:
        section.attempt(
            f"batch {BATCH_TASK} of {count}", partial(batch, section, load_task(BATCH_TASK), count)
        )
    section.complete = True


def fresh_copy(task: Task, source: str, directory: Path, number: int) -> Path:
    """``source`` under a name and with a last line of its own: unknown to every cache."""
    text = (task.directory / source).read_text()
    path = directory / f"{number:02d}_{Path(source).name}"
    path.write_text(f"{text}\n// {number} {time.time_ns()}\n")
    return path


def alone(task_id: str, source: str, limit_s: float) -> dict[str, Any]:
    """One grading in a process of its own, by the program that users call."""
    task = load_task(task_id)
    with tempfile.TemporaryDirectory() as directory:
        path = fresh_copy(task, source, Path(directory), 0)
        environment = {
            **os.environ,
            "PYTHONPATH": f"{HERE.parents[1] / 'src'}:{os.environ.get('PYTHONPATH', '')}",
        }
        start = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "cudahercules", "grade", task_id, str(path), "--device", "gpu", "--json"],
            capture_output=True,
            text=True,
            env=environment,
            timeout=limit_s,
            check=False,
        )
        wall = time.monotonic() - start
    try:
        verdict = json.loads(done.stdout)
    except ValueError:
        return {"failed": f"no verdict (status {done.returncode}) in {wall:.1f} s: {done.stderr[-800:]}"}
    return row(verdict, wall)


def row(verdict: dict[str, Any], wall: float) -> dict[str, Any]:
    timing = verdict.get("timing", {})
    workloads = timing.get("workloads", ())
    return {
        "kind": verdict["kind"],
        "outcome": timing.get("outcome", timing.get("reason", verdict.get("message", ""))),
        "ratio": timing.get("ratio"),
        "opponents": [w["expert"] for w in workloads],
        "pairs": [w["pairs"] for w in workloads],
        "looks": [w["looks"] for w in workloads],
        "wall": round(wall, 3),
        **verdict["seconds"],
    }


def batch(section: Section, task: Task, count: int) -> dict[str, Any]:
    """As many verdicts as the budget allows. ``opponents_up`` are the seconds until the panel's winners and
    PyTorch stand, once a batch; ``wall`` begins then, when the first source is handed in."""
    with tempfile.TemporaryDirectory() as directory:
        paths = [
            fresh_copy(task, BATCH_SOURCES[k % len(BATCH_SOURCES)], Path(directory), k) for k in range(count)
        ]
        began = time.monotonic()
        section.at.start_experts(task)
        section.at.settle()
        start = last = time.monotonic()
        rows: list[dict[str, Any]] = []
        verdicts = judge_many_on_gpu(task, paths, section.at)
        try:
            for position, verdict in verdicts:
                now = time.monotonic()
                rows.append(
                    {"file": paths[position].name, "gap": round(now - last, 3), **seconds_of(verdict)}
                )
                last = now
                if section.budget.left < 4:
                    break
        finally:
            verdicts.close()  # type: ignore[attr-defined]
        return {
            "opponents_up": round(start - began, 3),
            "wall": round(last - start, 3),
            "verdicts": len(rows),
            "a_verdict": round((last - start) / max(1, len(rows)), 3),
            "rows": rows,
        }


def seconds_of(verdict: Verdict) -> dict[str, Any]:
    timing = getattr(verdict, "timing", None)
    return {
        "kind": verdict.kind,
        "outcome": getattr(timing, "outcome", getattr(verdict, "message", "")),
        **verdict.seconds.model_dump(),
    }


def report(state: State) -> None:
    rows = []
    for key, r in state.data.items():
        if key.startswith("alone"):
            shown = str(r.get("outcome", r.get("failed", "")))[:40]
            rest = [r.get(k, "") for k in ("build", "record", "run", "check", "gpu_held", "total", "wall")]
            rows.append([key[6:], r.get("kind", "failed"), shown, len(r.get("opponents", ())), *rest])
    header = ["verdict", "kind", "outcome", "bench"]
    header += ["build", "record", "run", "check", "held", "total", "wall"]
    peer = f"the softmax by a peer's evaluator: {PEER_SOFTMAX_S[0]:g} to {PEER_SOFTMAX_S[1]:g} s"
    table(f"Seconds of one verdict from cold ({peer})", header, rows)
    for key, r in state.data.items():
        if key.startswith("batch") and r.get("rows"):
            held = [x["gpu_held"] for x in r["rows"]]
            kinds: dict[str, int] = {}
            for x in r["rows"]:
                name = f"{x['kind']} {x['outcome'] if x['kind'] == 'correct' else ''}".strip()
                kinds[name] = kinds.get(name, 0) + 1
            print(
                f"  {key}: opponents up after {r.get('opponents_up', '?')} s, then {r['verdicts']} verdicts "
                f"in {r['wall']} s, {r['a_verdict']} s a verdict; GPU held {statistics.mean(held):.2f} s "
                f"on average; {kinds}"
            )
    _report_stages(state)


def _report_stages(state: State) -> None:
    """Seconds by stage: of each grading alone, and on average over the batch's verdicts."""
    columns: dict[str, dict[str, float]] = {}
    for key, r in state.data.items():
        if r.get("stages"):
            columns[key] = {**r["stages"], "outside of the grading": r["wall"] - r["total"]}
        found = [x["stages"] for x in r.get("rows", ()) if x.get("stages")]
        if found:
            names = dict.fromkeys(name for stages in found for name in stages)
            columns[key] = {n: statistics.mean(s.get(n, 0.0) for s in found) for n in names}
    stages = list(dict.fromkeys(name for column in columns.values() for name in column))
    rows = [[stage, *(f"{column.get(stage, 0.0):.3f}" for column in columns.values())] for stage in stages]
    for number, key in enumerate(columns, 1):
        print(f"  ({number}) {key}")
    table("Seconds by stage", ["stage", *(f"({n})" for n in range(1, len(columns) + 1))], rows)
