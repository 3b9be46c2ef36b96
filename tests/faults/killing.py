"""kill -9 at random moments of a batch on the CPU judge: what must hold afterwards, and a table of it.

    python tests/faults/killing.py [--moments 200] [--workers 1] [--most-seconds S] [--seed 1] [--save FILE]

Each worker is a process with a seed of its own, and takes its share of the moments.
Each moment is a batch of its own: two candidates that are not in the cache, ``hercules grade --resume``.
After a random time one process of it is killed: the judge, or the next process that compiles, records or
emulates. Then:

* nothing that the batch started is alive within ten seconds of its end (this process adopts orphans, so that
  none can hide);
* the same command, called again, ends well and gives one verdict for each candidate, and the file holds
  exactly one final verdict for each: none lost, none doubled;
* every entry of the cache is whole, and no half-built one is left;
* the directory for temporary files is empty.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from itertools import repeat
from pathlib import Path

from cudahercules import cache

ROOT = Path(__file__).parents[2]
TASKS = ROOT / "benchmarks/gpu/tasks"
TASK = "kernel/scale/fp32@general"
SOURCE = TASKS / "kernel/scale/naive.cu"
COMPILERS = {"nvcc", "cudafe++", "cicc", "ptxas", "fatbinary", "g++", "cc1plus", "as", "collect2", "ld"}
STAGES = {"judge": set[str](), "compiler": COMPILERS, "recorder": {"launcher"}, "emulator": {"host"}}
_PR_SET_CHILD_SUBREAPER = 36
CANDIDATES = 2
ONCE = ("confine", "standin", "emulator-host")
PATIENCE_S = 10.0


class Broken(AssertionError):
    """Something did not hold after a kill."""


def descendants(of: int) -> dict[int, str]:
    """Number and name of every living process below ``of``."""
    parents, names = {}, {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            text = (entry / "stat").read_text()
        except OSError:
            continue
        head, _, rest = text.rpartition(")")
        state, parent = rest.split()[:2]
        if state not in "ZX":
            names[int(entry.name)] = head.partition("(")[2]
        parents[int(entry.name)] = int(parent)
    found = {}
    for process, name in names.items():
        up = process
        while up in parents and up != of:
            up = parents[up]
        if up == of and process != of:
            found[process] = name
    return found


def reap() -> None:
    """Take the ends of adopted processes."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


class Batches:
    """Batches of new candidates in one folder, with a cache of their own."""

    def __init__(self, folder: Path, seed: int):
        self.folder, self.random, self.number = folder, random.Random(seed), 0
        self.environment = {
            **os.environ,
            "HERCULES_CACHE": str(folder / "cache"),
            "TMPDIR": str(folder / "tmp"),
            "HERCULES_TASKS": str(TASKS),
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]),
        }
        self.length_s = 0.0
        (folder / "tmp").mkdir()
        if known := os.environ.get("HERCULES_CACHE"):  # what is built once for all candidates may be there
            for kind in ONCE:
                if (Path(known) / kind).is_dir():
                    shutil.copytree(Path(known) / kind, folder / "cache" / kind)

    def warm_up(self) -> None:
        """Build what is built once, and see how long a batch takes."""
        self._run(self._candidates())
        start = time.monotonic()
        self._run(self._candidates())
        self.length_s = time.monotonic() - start

    def one(self) -> tuple[str, str]:
        """Kill once; the stage that was hit (``none`` if the batch was over) and what came of it."""
        stage = self.random.choice(list(STAGES))
        files = self._candidates()
        batch = self._start(files)
        # A child that is looked for is the next one of its kind: late moments would often find none.
        time.sleep(self.random.uniform(0, self.length_s * (0.9 if stage == "judge" else 0.6)))
        victim = self._victim(batch, stage)
        if victim is not None:
            try:
                os.kill(victim, signal.SIGKILL)
            except ProcessLookupError:
                victim = None
        said = batch.communicate(timeout=120)[0]
        kinds = sorted(json.loads(line)["kind"] for line in said.splitlines() if line.endswith(b"}"))
        if set(kinds) - {"correct", "infrastructure_error"}:
            raise Broken(f"{stage} killed: a right candidate got {kinds}")
        self._nobody_is_left()
        self._run(files)
        self._one_final_verdict_each(files)
        self._cache_is_whole()
        if left := list((self.folder / "tmp").iterdir()):
            raise Broken(f"left behind: {left}")
        if victim is None:
            return "none", "finished"
        if stage == "judge":
            return stage, "ended"
        return stage, "verdict unharmed" if kinds == ["correct"] * CANDIDATES else "infrastructure_error"

    def _candidates(self) -> list[Path]:
        self.number += 1
        place = self.folder / f"batch{self.number}"
        place.mkdir()
        files = []
        for name in range(CANDIDATES):
            # In every fifth batch the PTX is new, too, and is translated.
            new = f"__device__ int unique{self.number}_{name};\n" if self.number % 5 == 0 else ""
            files.append(place / f"{name}.cu")
            files[-1].write_text(f"{SOURCE.read_text()}{new}// {self.number} {name} {self.random.random()}\n")
        return files

    def _start(self, files: list[Path]) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "cudahercules", "grade", TASK, *map(str, files)]
        return subprocess.Popen(
            [*command, "--device", "cpu", "--json", "--resume", str(files[0].parent / "verdicts")],
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def _victim(self, batch: subprocess.Popen[bytes], stage: str) -> int | None:
        if stage == "judge":
            return batch.pid if batch.poll() is None else None
        while batch.poll() is None:
            for process, name in descendants(batch.pid).items():
                if name in STAGES[stage]:
                    return process
            time.sleep(0.002)
        return None

    def _run(self, files: list[Path]) -> None:
        """The command to its end; it must be all right."""
        batch = self._start(files)
        said = batch.communicate(timeout=300)[0].splitlines()
        kinds = [json.loads(line)["kind"] for line in said]
        if batch.returncode != 0 or kinds != ["correct"] * len(files):
            raise Broken(f"called again, the batch ended with {batch.returncode}: {kinds}")

    def _nobody_is_left(self) -> None:
        end = time.monotonic() + PATIENCE_S
        while left := descendants(os.getpid()):
            reap()
            if time.monotonic() > end:
                raise Broken(f"orphans: {left}")
            time.sleep(0.01)
        reap()

    def _one_final_verdict_each(self, files: list[Path]) -> None:
        lines = (files[0].parent / "verdicts").read_text().splitlines()
        final = Counter(v["candidate"] for v in map(json.loads, lines) if v["kind"] == "correct")
        if final != Counter({file.name: 1 for file in files}):
            raise Broken(f"final verdicts: {dict(final)}")

    def _cache_is_whole(self) -> None:
        root = self.folder / "cache"
        if left := list(root.rglob("*.part")):
            raise Broken(f"half-built entries: {left}")
        for manifest in root.rglob(cache.MANIFEST):
            for name, value in json.loads(manifest.read_text()).items():
                if cache.file_digest(manifest.parent / name) != value:
                    raise Broken(f"{manifest.parent}/{name} is damaged")


def kill(moments: int, seed: int, folder: Path, most_s: float = 1e9) -> dict[str, dict[str, int]]:
    """How often each stage was hit, and what came of it. A batch in which nothing was hit (``none``) does not
    count, but there are at most twice as many batches as moments; none is begun after ``most_s`` seconds.
    Raises Broken at the first thing that does not hold."""
    end = time.monotonic() + most_s
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    batches = Batches(folder, seed)
    batches.warm_up()
    table: dict[str, dict[str, int]] = {}
    hits = 0
    for _ in range(2 * moments):
        if hits == moments or time.monotonic() > end:
            break
        stage, outcome = batches.one()
        row = table.setdefault(stage, {})
        row[outcome] = row.get(outcome, 0) + 1
        hits += stage != "none"
    return table


def _worker(moments: int, seed: int, most_s: float) -> dict[str, dict[str, int]]:
    with tempfile.TemporaryDirectory(prefix="killing.") as folder:
        return kill(moments, seed, Path(folder), most_s)


def together(parts: Iterable[dict[str, dict[str, int]]]) -> dict[str, dict[str, int]]:
    """The tables of several workers as one."""
    total: dict[str, Counter[str]] = {}
    for part in parts:
        for stage, outcomes in part.items():
            total.setdefault(stage, Counter()).update(outcomes)
    return {stage: dict(total[stage]) for stage in sorted(total)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--moments", type=int, default=200)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--most-seconds", type=float, default=1e9)
    parser.add_argument("--save", type=Path)
    options = parser.parse_args()
    start = time.monotonic()
    share = -(-options.moments // options.workers)
    seeds = range(options.seed, options.seed + options.workers)
    with ProcessPoolExecutor(options.workers) as pool:
        table = together(pool.map(_worker, repeat(share), seeds, repeat(options.most_seconds)))
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    result = {
        "what": "kill -9 at random moments of a CPU batch; rows: what was hit, and what came of it",
        "batches": sum(sum(row.values()) for row in table.values()),
        "moments": sum(sum(row.values()) for stage, row in table.items() if stage != "none"),
        "seeds": list(seeds),
        "held": "no orphan, no verdict lost or doubled, cache whole, nothing left in temporary places",
        "table": table,
        "seconds": round(time.monotonic() - start),
        "machine": f"{system}, {os.cpu_count()} processors",
        "date": datetime.now(UTC).date().isoformat(),
    }
    print(json.dumps(result, indent=1))
    if options.save:
        options.save.parent.mkdir(parents=True, exist_ok=True)
        options.save.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
