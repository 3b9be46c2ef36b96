"""Do memory, processes, descriptors or files grow over a long evaluation? 1,000 answers on the CPU judge.

    python benchmarks/evaluation_scale.py [--samples 1000] [--out results/evaluation_scale.json]

Answers of replay/demo to one task, ten kinds in turn, go the whole way: extraction, build (from the cache
after the first ten), recording, emulation, checks, Inspect's log. Every 25 samples the process is looked at:
resident memory, children, threads, open descriptors, temporary files of ours. The last quarter is compared
with the second.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from pathlib import Path

EVERY = 25
TASK = "kernel/gemm/fp32@general"


def look() -> dict[str, float]:
    """This process now: megabytes, and counts."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    tasks = Path("/proc/self/task")
    children = sum(
        len((t / "children").read_text().split()) for t in tasks.iterdir() if (t / "children").exists()
    )
    return {
        "memory_mb": int(fields["VmRSS"].split()[0]) / 1024,
        "threads": int(fields["Threads"]),
        "children": children,
        "descriptors": len(os.listdir("/proc/self/fd")),
        "temporary_files": len(list(Path(tempfile.gettempdir()).glob("hercules-*"))),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path("results/evaluation_scale.json"))
    options = parser.parse_args()
    from cudahercules.evaluate.run import Call, evaluate

    rows: list[dict[str, float]] = []
    seen = 0
    start = time.monotonic()

    def tell(line: str) -> None:
        nonlocal seen
        done = int(line.split(" of ")[0])
        if done > seen and done % EVERY == 0:
            rows.append({"samples": done, "seconds": round(time.monotonic() - start, 1), **look()})
            print(rows[-1], flush=True)
        seen = done

    with tempfile.TemporaryDirectory(prefix="evaluation-scale-") as directory:
        call = Call(model="replay/demo", options={"tasks": TASK, "device": "cpu", "samples": options.samples})
        outcome = evaluate(call, Path(directory) / "logs", tell=tell)
        log_mb = sum(f.stat().st_size for f in Path(directory).rglob("*")) / 1e6
    quarter = len(rows) // 4
    names = [name for name in rows[0] if name not in ("samples", "seconds")]
    growth = {
        name: round(_median(rows[-quarter:], name) - _median(rows[quarter : 2 * quarter], name), 2)
        for name in names
    }
    counts: dict[str, int] = {}
    for record in outcome.records:
        counts[record.outcome] = counts.get(record.outcome, 0) + 1
    result = {
        "samples": len(outcome.records),
        "task": TASK,
        "seconds": round(time.monotonic() - start, 1),
        "outcomes": counts,
        "log_megabytes": round(log_mb, 1),
        "growth_from_second_to_last_quarter": growth,
        "cores": len(os.sched_getaffinity(0)),
        "load_average_at_the_end": os.getloadavg()[0],
        "python": platform.python_version(),
        "rows": rows,
    }
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({k: v for k, v in result.items() if k != "rows"}, indent=1))


def _median(rows: list[dict[str, float]], name: str) -> float:
    return statistics.median(row[name] for row in rows)


if __name__ == "__main__":
    main()
