"""What the sandbox costs: the same gradings with all that the kernel offers, and without it.

    python benchmarks/sandbox_cost.py [--repeat 15] [--save benchmarks/results/sandbox_cost.json]

One candidate is graded again and again on the CPU judge's smoke workloads in one process, confined and
bare in turns (which is first changes, too). *new*: a candidate that is not in the cache is compiled,
recorded, translated and run; *known*: everything is in the cache, it is recorded and run. "Bare" keeps the
limits, the empty environment and the dropped capabilities, as compilers had them before they were confined;
the programs are the same.

Two figures do not depend on what else the machine does, and are held against the targets (at most 0.3 s a
verdict, and at most a tenth of the time of a new candidate): what one confined start takes more than a bare
one (the fastest of many) times the starts of a verdict, and processor time. Wall times are given beside them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from unittest import mock

from cudahercules import __version__
from cudahercules.build import sandbox
from cudahercules.build.toolchain import find_toolchain
from cudahercules.judge.bundled import demonstration
from cudahercules.judge.grade import grade
from cudahercules.process import Confinement, Limits, run_limited
from cudahercules.task.model import Task, WorkloadRole

TASK = "kernel/gemm/fp32@general"
BARE = "capabilities"
MOST_SECONDS, MOST_SHARE = 0.3, 0.1


@dataclass
class Grading:
    """Wall and processor seconds (children included), and confined starts, of one grading."""

    wall_s: float
    cpu_s: float
    starts: int


def graded(task: Task, file: Path, features: str) -> Grading:
    """One grading under ``features``; the candidate must be right."""
    sandbox.features = lambda: features  # type: ignore[assignment]
    starts = []
    wrap = Confinement.wrap
    with mock.patch.object(Confinement, "wrap", lambda *a: (starts.append(1), wrap(*a))[1]):
        start, cpu = time.perf_counter(), sum(os.times()[:4])
        verdict = grade(task, file, "cpu", roles=(WorkloadRole.SMOKE,))
        ended = Grading(time.perf_counter() - start, sum(os.times()[:4]) - cpu, len(starts))
    if verdict.kind != "correct":
        raise SystemExit(f"{file}: {verdict.kind}: {verdict.message}")
    return ended


def start_s(features: str) -> float:
    """Wall seconds of starting and ending a program that does nothing, the fastest of many."""
    sandbox.features = lambda: features  # type: ignore[assignment]
    confined = sandbox.compiler_confinement(find_toolchain().host_compiler, find_toolchain())
    limits = Limits(wall_s=10)
    return min(
        run_limited(["/bin/true"], limits, cwd=Path("/"), confined=confined).seconds for _ in range(60)
    )


def compared(
    task: Task, text: str, scratch: Path, repeat: int, new: bool, strongest: str, one_start_s: float
) -> dict[str, float]:
    """``repeat`` gradings each: medians, and the two figures of the module's description."""
    runs: dict[str, list[Grading]] = {"confined": [], "bare": []}
    for number in range(repeat):
        order = [("confined", strongest), ("bare", BARE)]
        for name, features in order if number % 2 else reversed(order):
            file = scratch / f"{name}.cu"
            unique = f"__device__ int unique_{name}_{number};\n" if new else ""
            file.write_text(unique + text)
            runs[name].append(graded(task, file, features))
    cpu = {name: statistics.median(r.cpu_s for r in several) for name, several in runs.items()}
    wall = {name: statistics.median(r.wall_s for r in several) for name, several in runs.items()}
    starts = round(statistics.median(r.starts for r in runs["confined"]))
    return {
        "starts": starts,
        "starts_add_s": round(starts * one_start_s, 4),
        "cpu_confined_s": round(cpu["confined"], 4),
        "cpu_bare_s": round(cpu["bare"], 4),
        "share": round(max(starts * one_start_s, cpu["confined"] - cpu["bare"]) / cpu["bare"], 4),
        "wall_confined_s": round(wall["confined"], 4),
        "wall_bare_s": round(wall["bare"], 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    strongest = sandbox.features()
    case = next(c for c in demonstration((TASK,)) if c.file == "naive.cu")
    task, file = case.task, case.path
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["HERCULES_CACHE"] = f"{scratch}/cache"
        text = file.read_text()
        for features in (strongest, BARE):  # what is compiled once, and the first look at everything
            start = Path(scratch) / "start.cu"
            start.write_text(text)
            graded(task, start, features)
        one_start_s = start_s(strongest) - start_s(BARE)
        rows = {
            name: compared(task, text, Path(scratch), options.repeat, name == "new", strongest, one_start_s)
            for name in ("new", "known")
        }
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    result = {
        "what": "seconds of a smoke grading on the CPU judge, confined and bare",
        "task": task.id,
        "candidate": file.name,
        "repeat": options.repeat,
        "one_start_adds_s": round(one_start_s, 5),
        "rows": rows,
        "load": round(os.getloadavg()[0], 1),
        "sandbox": sandbox.phrase(strongest),
        "compiler": find_toolchain().title,
        "cudahercules": __version__,
        "machine": f"{system}, {os.cpu_count()} processors",
        "date": datetime.now(UTC).date().isoformat(),
    }
    print(json.dumps(result, indent=1))
    if options.save:
        options.save.write_text(json.dumps(result, indent=1) + "\n")
    for name, row in rows.items():
        added = max(row["starts_add_s"], row["cpu_confined_s"] - row["cpu_bare_s"])
        if added > MOST_SECONDS or (name == "new" and row["share"] > MOST_SHARE):
            raise SystemExit(f"{name}: the sandbox costs more than {MOST_SECONDS} s or {MOST_SHARE:.0%}")


if __name__ == "__main__":
    main()
