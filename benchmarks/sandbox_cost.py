"""What the sandbox costs: the same gradings with all that the kernel offers, and without it.

    python benchmarks/sandbox_cost.py [--repeat 15] [--save benchmarks/results/sandbox_cost.json]

One candidate is graded again and again on the CPU judge's smoke workloads in one process, confined and
bare in turns (which is first changes, too). *new*: a candidate that is not in the cache is compiled,
recorded, translated and run; *known*: everything is in the cache, it is recorded and run. "Bare" keeps the
limits, the empty environment and the dropped capabilities, as compilers had them before they were confined;
the programs are the same. Targets: at most 0.3 s a verdict, and at most a
tenth of the throughput of new candidates.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from cudahercules import __version__
from cudahercules.build import sandbox
from cudahercules.build.toolchain import find_toolchain
from cudahercules.judge.bundled import demonstration
from cudahercules.judge.grade import grade
from cudahercules.task.model import Task, WorkloadRole

TASK = "kernel/gemm/fp32@general"
BARE = "capabilities"
MOST_SECONDS, MOST_SHARE = 0.3, 0.1


def graded(task: Task, file: Path, features: str) -> float:
    """Wall seconds of one grading under ``features``; the candidate must be right."""
    sandbox.features = lambda: features  # type: ignore[assignment]
    start = time.perf_counter()
    verdict = grade(task, file, "cpu", roles=(WorkloadRole.SMOKE,))
    elapsed = time.perf_counter() - start
    if verdict.kind != "correct":
        raise SystemExit(f"{file}: {verdict.kind}: {verdict.message}")
    return elapsed


def compared(
    task: Task, text: str, scratch: Path, repeat: int, new: bool, strongest: str
) -> dict[str, float]:
    """Medians of ``repeat`` gradings each, and of their differences, in seconds."""
    times: dict[str, list[float]] = {"confined": [], "bare": []}
    for number in range(repeat):
        order = [("confined", strongest), ("bare", BARE)]
        for name, features in order if number % 2 else reversed(order):
            file = scratch / f"{name}.cu"
            unique = f"__device__ int unique_{name}_{number};\n" if new else ""
            file.write_text(unique + text)
            times[name].append(graded(task, file, features))
    confined, bare = (statistics.median(times[name]) for name in ("confined", "bare"))
    added = statistics.median(a - b for a, b in zip(times["confined"], times["bare"], strict=True))
    return {
        "confined_s": round(confined, 4),
        "bare_s": round(bare, 4),
        "added_s": round(added, 4),
        "share_of_throughput": round(1 - bare / (bare + added), 4),
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
        rows = {
            name: compared(task, text, Path(scratch), options.repeat, name == "new", strongest)
            for name in ("new", "known")
        }
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    result = {
        "what": "seconds of a smoke grading on the CPU judge, confined and bare",
        "task": task.id,
        "candidate": file.name,
        "repeat": options.repeat,
        "rows": rows,
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
        slower = name == "new" and row["share_of_throughput"] > MOST_SHARE
        if row["added_s"] > MOST_SECONDS or slower:
            raise SystemExit(f"{name}: the sandbox costs more than {MOST_SECONDS} s or {MOST_SHARE:.0%}")


if __name__ == "__main__":
    main()
