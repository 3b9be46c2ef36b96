"""How long a verdict takes, split into its stages: alone from cold, and in a batch.

``alone`` starts `hercules grade` as a user does, with source code that no cache has seen. ``batch``
grades 50 sources that differ (so that each is compiled) with one station.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import HERE, Budget, State, Station, table

from cudahercules.judge.batch import judge_many_on_gpu
from cudahercules.judge.verdict import Verdict
from cudahercules.task.load import load_task
from cudahercules.task.model import Task

ALONE = (
    ("module/layernorm_fwd/fp32_4096@general", "tuned.cu"),
    ("module/layernorm_fwd/fp32_4096@general", "naive.cu"),
    ("kernel/rotary/hd128_halved@general", "vectorised.cu"),
    ("kernel/gemm/fp32@general", "tiled.cu"),
    ("kernel/softmax/fp32@general", "naive.cu"),
)
REPEATS = 2
BATCH_TASK = "module/layernorm_fwd/fp32_4096@general"
BATCH_SOURCES = ("tuned.cu", "registers.cu", "two_kernels.cu", "naive.cu", "mutants/bias_ignored.cu")
BATCH = 50
PEER_SOFTMAX_S = (49.0, 53.0)
"""Seconds a verdict of torch's load_inline with another project's evaluator, same kernel and GPU."""


def run(at: Station, out: Path, budget: Budget, earlier: Path | None = None) -> None:
    state = State("throughput", out, earlier)
    for task_id, source in ALONE:
        for number in range(REPEATS):
            key = f"alone {task_id} {source} {number}"
            if key not in state and budget.allows(25):
                state.put(key, budget.timed(lambda t=task_id, s=source: alone(t, s)))
    key = f"batch {BATCH_TASK} of {BATCH}"
    if key not in state and budget.allows(60):
        state.put(key, batch(at, load_task(BATCH_TASK)))
    report(state)


def fresh_copy(task: Task, source: str, directory: Path, number: int) -> Path:
    """``source`` under a name and with a last line of its own: unknown to every cache."""
    text = (task.directory / source).read_text()
    path = directory / f"{number:02d}_{Path(source).name}"
    path.write_text(f"{text}\n// {number} {time.time_ns()}\n")
    return path


def alone(task_id: str, source: str) -> dict[str, Any]:
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
            timeout=120,
        )
        wall = time.monotonic() - start
    try:
        verdict = json.loads(done.stdout)
    except ValueError:
        return {"kind": "no verdict", "wall": round(wall, 2), "stderr": done.stderr[-800:]}
    return row(verdict, wall)


def row(verdict: dict[str, Any], wall: float) -> dict[str, Any]:
    timing = verdict.get("timing", {})
    return {
        "kind": verdict["kind"],
        "outcome": timing.get("outcome", timing.get("reason", verdict.get("message", ""))),
        "ratio": timing.get("ratio"),
        "bench": len(timing.get("workloads", ())),
        "pairs": [w["pairs"] for w in timing.get("workloads", ())],
        "wall": round(wall, 3),
        **verdict["seconds"],
    }


def batch(at: Station, task: Task) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as directory:
        paths = [
            fresh_copy(task, BATCH_SOURCES[k % len(BATCH_SOURCES)], Path(directory), k) for k in range(BATCH)
        ]
        start = last = time.monotonic()
        rows = []
        for position, verdict in judge_many_on_gpu(task, paths, at):
            now = time.monotonic()
            rows.append({"file": paths[position].name, "gap": round(now - last, 3), **seconds_of(verdict)})
            last = now
        return {"wall": round(last - start, 3), "a_verdict": round((last - start) / BATCH, 3), "rows": rows}


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
            _, task, source, number = key.split(" ")
            rows.append(
                [
                    f"{task} {source} {number}",
                    r["kind"],
                    str(r.get("outcome", r.get("stderr", "")))[:40],
                    r.get("bench", ""),
                    *(r.get(k, "") for k in ("build", "record", "run", "check", "gpu_held", "total", "wall")),
                ]
            )
    header = ["verdict", "kind", "outcome", "bench"]
    header += ["build", "record", "run", "check", "held", "total", "wall"]
    table("Seconds of one verdict from cold", header, rows)
    for key, r in state.data.items():
        if key.startswith("batch"):
            held = [x["gpu_held"] for x in r["rows"]]
            print(
                f"\n{key}: {r['wall']} s, {r['a_verdict']} s a verdict; "
                f"GPU held {statistics.mean(held):.2f} s"
            )
            kinds: dict[str, int] = {}
            for x in r["rows"]:
                name = f"{x['kind']} {x['outcome'] if x['kind'] == 'correct' else ''}".strip()
                kinds[name] = kinds.get(name, 0) + 1
            print(f"  {kinds}")
    print(
        f"\nthe same softmax kernel with a peer's evaluator: {PEER_SOFTMAX_S[0]:g} to {PEER_SOFTMAX_S[1]:g} s"
    )
