"""What it costs to make experts' PTX runnable on a CPU: seconds and memory of translating and compiling.

Files of the corpus (``hercules emulator coverage``) are translated and compiled into an empty cache, each in
a process of its own: wall seconds, processor seconds and the largest resident memory of this process and of
g++. Their PTX comes from the corpus's cache, where an earlier ``coverage`` call has put it.

    python benchmarks/emulator_translation.py [--only 'own/*' ...] [--json results/emulator_translation.json]
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

LIMITS_S = {"own": 2.0, "other": 20.0}
"""Processor seconds, which are wall seconds on an idle machine, that a tuned example of ours and any other
file may take."""
MEMORY_LIMIT = 1 << 30


def one(ptx: Path) -> dict[str, float]:
    """Measured in this process, whose cache is empty."""
    from cudahercules.emulator import native
    from cudahercules.emulator.translation import build_translation

    text = ptx.read_text()
    native.toolchain_digest()  # asking g++ for its version is no part of it
    start, before = time.perf_counter(), _processor_seconds()
    built = build_translation(text)
    wall, used = time.perf_counter() - start, _processor_seconds() - before
    assert not built.unsupported, built.unsupported[0]
    peaks = [
        resource.getrusage(who).ru_maxrss * 1024 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    ]
    return {"wall_s": round(wall, 2), "processor_s": round(used, 2), "peak_bytes": max(peaks)}


def _processor_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def measure(patterns: list[str]) -> list[dict[str, object]]:
    from cudahercules.emulator.corpus.manifest import manifest
    from cudahercules.emulator.corpus.survey import examine, ptx_of

    rows: list[dict[str, object]] = []
    for file in manifest().files:
        if not any(fnmatch.fnmatch(file.name, p) for p in patterns):
            continue
        for target in file.targets:
            row = examine(file, target)
            ptx = ptx_of(file, target)
            if row.status != "supported" or ptx is None:
                continue
            with tempfile.TemporaryDirectory() as cache:
                done = subprocess.run(
                    [sys.executable, __file__, "--one", ptx],
                    env={**os.environ, "HERCULES_CACHE": cache},
                    capture_output=True,
                    text=True,
                    check=True,
                )
            found = {"file": file.name, "target": target, "instructions": row.instructions}
            rows.append(found | json.loads(done.stdout))
            print(rows[-1], flush=True)
    return rows


def _over(row: dict[str, object]) -> bool:
    limit = LIMITS_S["own" if str(row["file"]).startswith("own/") else "other"]
    return float(str(row["processor_s"])) > limit or int(str(row["peak_bytes"])) > MEMORY_LIMIT


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--json", type=Path)
    arguments.add_argument("--only", nargs="*", default=["own/*", "cutlass/*", "cute/*", "deepgemm/*"])
    arguments.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.one:
        print(json.dumps(one(options.one)))
        return
    rows = measure(options.only)
    if options.json and options.json.exists():  # other files' figures stay
        before = json.loads(options.json.read_text())["rows"]
        new = {(r["file"], r["target"]) for r in rows}
        rows = [*(r for r in before if (r["file"], r["target"]) not in new), *rows]
    result = {
        "date": date.today().isoformat(),
        "cores": len(os.sched_getaffinity(0)),
        "load_average": os.getloadavg()[0],
        "python": platform.python_version(),
        "limits_s": LIMITS_S,
        "over_a_limit": [f"{r['file']} for {r['target']}" for r in rows if _over(r)],
        "rows": rows,
    }
    print(f"{len(rows)} files; over a limit: {', '.join(result['over_a_limit']) or 'none'}")
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
