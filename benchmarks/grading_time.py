"""How long the program takes: grading naive.cu from a cold and a warm cache, --help, tasks.

    python benchmarks/grading_time.py [--repeat 5] [--save benchmarks/results/grading_time.json]

Each figure is the wall time of a whole process, interpreter start included. "Cold" uses an empty cache
directory (the recorder's runtime and the emulator are compiled in it too, once: ``first``, then only
what a new candidate needs: ``cold``). "Warm" repeats the same command. Targets: smoke grading cold
<= 4 s and warm <= 0.5 s, --help <= 0.3 s, tasks <= 1 s.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from cudahercules import __version__
from cudahercules.judge.bundled import whole_demonstration
from cudahercules.task.model import Task

TARGETS = {"help": 0.3, "tasks": 1.0, "smoke cold": 4.0, "smoke warm": 0.5}


def seconds(arguments: list[str], cache: str) -> float:
    """Wall seconds of one run of the program; its exit code must be 0."""
    environment = {**os.environ, "HERCULES_CACHE": cache}
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "cudahercules", *arguments], capture_output=True, text=True, env=environment
    )
    elapsed = time.perf_counter() - start
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(arguments)} ended with {done.returncode}: {done.stderr or done.stdout}")
    return elapsed


def measure(task: Task, file: Path, repeat: int, scratch: Path) -> dict[str, float | list[float]]:
    """Cold and warm seconds of one candidate. A comment makes it a new candidate for each cold run."""
    cache = tempfile.mkdtemp(prefix="cache.", dir=scratch)
    smoke = ["grade", task.id, "--device", "cpu", "--smoke"]
    first = seconds([*smoke, str(file)], cache)
    cold = []
    for number in range(repeat):
        fresh = scratch / f"fresh{number}.cu"
        fresh.write_text(
            f"// {time.time_ns()} makes this another candidate\n__device__ int unique{number};\n"
            + file.read_text()
        )
        cold.append(seconds([*smoke, str(fresh)], cache))
    warm = [seconds([*smoke, str(file)], cache) for _ in range(repeat)]
    whole = [
        seconds(["grade", task.id, "--device", "cpu", str(file)], cache) for _ in range(max(1, repeat // 2))
    ]
    return {"first": first, "smoke cold": cold, "smoke warm": warm, "all workloads warm": whole}


def machine() -> dict[str, object]:
    """The facts that these figures depend on."""
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.processor(),
    )
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "load_1min": round(os.getloadavg()[0], 2),
        "system": platform.platform(),
        "python": platform.python_version(),
        "cudahercules": __version__,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    figures: dict[str, dict[str, float | list[float]]] = {}
    with tempfile.TemporaryDirectory(prefix="hercules.") as scratch:
        program: dict[str, float | list[float]] = {
            name: [seconds(arguments, scratch) for _ in range(options.repeat)]
            for name, arguments in (("help", ["--help"]), ("tasks", ["tasks"]))
        }
        figures["program"] = program
        for case in whole_demonstration():
            if case.file == case.task.candidates[0]:
                figures[case.task.id] = measure(case.task, case.path, options.repeat, Path(scratch))
    for subject, row in figures.items():
        for name, value in row.items():
            samples = value if isinstance(value, list) else [value]
            middle = statistics.median(samples)
            target = TARGETS.get(name)
            mark = (
                ""
                if target is None
                else f"   target {target:.1f} s: {'met' if middle <= target else 'MISSED'}"
            )
            print(
                f"{subject:<40} {name:<20} {middle:7.3f} s  (of {len(samples)}, max {max(samples):.3f}){mark}"
            )
    if options.save:
        options.save.parent.mkdir(parents=True, exist_ok=True)
        options.save.write_text(json.dumps({"machine": machine(), "seconds": figures}, indent=1) + "\n")


if __name__ == "__main__":
    main()
