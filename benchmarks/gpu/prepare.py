"""Compile what the sections will need, on all cores, before anything is timed: our own kernels, the
benchmark kernels with their variants, the first families' candidates. In the meantime Python
packages come off the disk once."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from aa_trials import TASKS
from common import Section, built, find_gpu, in_parallel
from hot_cold import CASES as HOT
from panel_and_families import FIRST, REHEARSED, ordered_tasks
from planted_slowdowns import FEW_CYCLES, MANY_CYCLES

from cudahercules.build.toolchain import find_toolchain
from cudahercules.judge.bundled import bundled
from cudahercules.replay.generator import device_code
from cudahercules.task.load import load_task
from cudahercules.task.model import Task

IMPORTS = "import torch, triton, numpy, pydantic; torch.compile"


def run(section: Section) -> None:
    # No context in this process: what follows may be a grading that must be alone on the card.
    reading = subprocess.Popen([sys.executable, "-c", IMPORTS], stderr=subprocess.DEVNULL)
    architecture = find_gpu().architecture
    start = time.monotonic()
    jobs = list(_jobs(section, architecture))
    failed = in_parallel(jobs, deadline=section.budget.end - 1)
    for error in failed:
        print(f"prepare: {type(error).__name__}: {str(error)[:300]}", flush=True)
    seconds = time.monotonic() - start
    try:
        reading.wait(max(0.1, section.budget.left - 0.5))
    except subprocess.TimeoutExpired:
        reading.kill()
    print(f"prepare: {len(jobs)} builds, {len(failed)} failed or late, {seconds:.1f} s", flush=True)
    section.complete = True


def _jobs(section: Section, architecture: str) -> Iterator[Callable[[], object]]:
    yield lambda: device_code(architecture, find_toolchain().nvcc)
    for task in map(load_task, TASKS):
        yield _job(task, "naive.cu", architecture)
        for cycles in (FEW_CYCLES, MANY_CYCLES):
            yield _job(task, "naive.cu", architecture, f"SPIN_CYCLES {cycles}")
    for task_id, _, define in HOT:
        if define:
            yield _job(load_task(task_id), "naive.cu", architecture, define)
    names = REHEARSED if section.rehearsal else FIRST
    tasks = [t for t in ordered_tasks() if t.id in names]
    limit = 3 if section.rehearsal else None
    for sort in ("honest", "mutant", "hostile"):
        for task in tasks:
            # What is not meant to build (no_solve.cu) is left out: there is nothing to keep.
            wanted = [c for c in bundled(task) if c.sort == sort and "build_error" not in c.expected]
            for case in wanted[:limit]:
                yield _job(task, case.file, architecture)


def _job(task: Task, file: str, architecture: str, define: str = "") -> Callable[[], object]:
    return lambda: built(task, task.directory / file, architecture, define)
