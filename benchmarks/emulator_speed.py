"""Speed of the PTX emulator, beside the goals for it.

Each kernel runs in the plain build at -O2, on one core and on all, in the modes of asynchrony that its row
names; a counting build gives the number of dynamic PTX instructions. Times are of the kernels alone (from
the first launch to the last), the best and the median of several runs. ``cpu_s`` is what the emulator's
process used in all, its start included: on a busy machine it says more than the clock on the wall. Also
measured: starting a thread of an empty block, the largest resident memory, translating and compiling, a warm
run of a tiny plan, and what the checking build costs.

    python benchmarks/emulator_speed.py [--json results/emulator_speed.json]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "emulator"))
from emulated import KERNELS, Program, compile_ptx

from cudahercules.emulator import native
from cudahercules.emulator.outcome import Completed
from cudahercules.emulator.run import How, run_plan


def gemm(program: Program, n: int = 256) -> None:
    rng = np.random.default_rng(1)
    program.array("a", rng.standard_normal((n, n), np.float32), "input")
    program.array("b", rng.standard_normal((n, n), np.float32), "input")
    program.array("c", np.zeros((n, n), np.float32))
    size = np.int32(n)
    program.launch("gemm", (n // 64, n // 64), (16, 16), "a", "b", "c", size, size, size)


def gemm_512(program: Program) -> None:
    gemm(program, 512)


def vector_add(program: Program) -> None:
    for name in ("a", "b", "c"):
        program.array(name, np.ones(4 << 20, np.float32))
    program.launch("vadd4", 4096, 256, "a", "b", "c", np.int32(1 << 20))


def reduction(program: Program) -> None:
    program.array("x", np.ones(1 << 20, np.float32), "input")
    program.array("out", np.zeros(1, np.float32))
    program.launch("block_sums", 128, 256, "x", "out", np.int32(1 << 20))


def softmax(program: Program) -> None:
    program.array("x", np.zeros((256, 1024), np.uint16), "input")
    program.array("y", np.zeros((256, 1024), np.uint16))
    program.launch("softmax", 256, 256, "x", "y", np.int32(1024), shared=4096)


def histogram(program: Program) -> None:
    program.array("x", np.random.default_rng(2).integers(0, 256, 1 << 20).astype(np.uint8), "input")
    program.array("out", np.zeros(256, np.uint32))
    program.launch("histogram", 64, 256, "x", "out", np.int32(1 << 20))


def fft(program: Program) -> None:
    program.array("x", np.ones((512, 256), np.complex64), "input")
    program.array("y", np.zeros((512, 256), np.complex64))
    program.launch("fft256", 512, 128, "x", "y")


def _bf16_gemm(program: Program, kernel: str, block: int, rows: int, shared: int) -> None:
    n = 512
    rng = np.random.default_rng(3)
    for name in ("a", "b"):
        values = rng.standard_normal((n, n)).astype(np.float32)
        program.array(name, (values.view(np.uint32) >> 16).astype(np.uint16), "input")
    program.array("c", np.zeros((n, n), np.float32))
    grid = (n // 128, n // rows)
    program.launch(kernel, grid, block, "a", "b", "c", np.int32(n), np.int32(n), shared=shared)


def mma_gemm(program: Program) -> None:
    _bf16_gemm(program, "multiply", 256, 128, 0)


def wgmma_gemm(program: Program) -> None:
    _bf16_gemm(program, "along_128", 128, 64, 32768)


EMPTY_THREADS = 8192 * 256


def empty_blocks(program: Program) -> None:
    for name in ("a", "b", "c"):
        program.array(name, np.ones(4, np.float32))
    program.launch("vadd4", EMPTY_THREADS // 256, 256, "a", "b", "c", np.int32(0))


@dataclass(frozen=True)
class Case:
    """``most_s`` is the goal for all cores, by mode; ``rate`` the goal in million instructions a second and
    core."""

    name: str
    setup: Callable[[Program], None]
    source: str = "basic.cu"
    architecture: str = "80"
    modes: tuple[str, ...] = ("late",)
    most_s: tuple[float, ...] = ()
    rate: float | None = None


CASES = (
    Case("gemm fp32 256^3", gemm),
    Case("gemm fp32 512^3", gemm_512, rate=1500),
    Case("gemm bf16 mma 512^3", mma_gemm, "mma_gemm.cu", modes=("late", "eager"), most_s=(0.15, 0.15)),
    Case("gemm bf16 wgmma 512^3", wgmma_gemm, "wgmma_gemm.cu", "90a", ("late", "eager"), (1.0, 0.4)),
    Case("vector add 4M", vector_add),
    Case("block reduction 1M", reduction),
    Case("softmax 256x1024", softmax),
    Case("histogram 1M", histogram),
    Case("fft 512x256", fft),
)
START_GOAL_NS = 20
MEMORY_GOAL = 1 << 30


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _program(case: Case, directory: str) -> Program:
    program = Program(compile_ptx(KERNELS / case.source, case.architecture), Path(directory))
    case.setup(program)
    return program


def measure(case: Case, mode: str, goal_s: float | None, runs: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as directory:
        program = _program(case, directory)
        instructions = program.complete(counting=True, threads=1, asynchrony=mode).counters.instructions
        assert instructions is not None
        program.complete(asynchrony=mode)  # compiled
        used = _cpu_s()
        one = [program.complete(threads=1, asynchrony=mode).counters.seconds for _ in range(runs)]
        cpu = (_cpu_s() - used) / runs
        every = [program.complete(asynchrony=mode).counters.seconds for _ in range(runs)]
        checked = _checked_s(program, mode)
    return {
        "kernel": case.name,
        "mode": f"plain build, -O2, {mode}",
        "instructions": instructions,
        "seconds_one_core": min(one),
        "median_one_core": statistics.median(one),
        "cpu_s_one_core": round(cpu, 4),
        "seconds_all_cores": min(every),
        "goal_seconds_all_cores": goal_s,
        "million_per_second_core": round(instructions / min(one) / 1e6, 1),
        "million_per_cpu_second": round(instructions / cpu / 1e6, 1),
        "goal_million_per_second_core": case.rate,
        "checked_seconds_one_core": checked,
    }


def _checked_s(program: Program, mode: str) -> float:
    how = How(native.CHECKING, 1, mode)
    outcome = run_plan(program.plan(), program.artifact, program.contents(), 120, how).outcome
    assert isinstance(outcome, Completed), outcome
    return outcome.counters.seconds


def start_of_a_thread(runs: int) -> dict[str, object]:
    """Nanoseconds on one core for each thread of blocks that do nothing but look at their size."""
    with tempfile.TemporaryDirectory() as directory:
        program = _program(Case("empty blocks", empty_blocks), directory)
        program.complete()
        used = _cpu_s()
        seconds = [program.complete(threads=1).counters.seconds for _ in range(runs)]
        cpu = (_cpu_s() - used) / runs
    return {
        "mode": "plain build, -O2, blocks of 256 threads, one core",
        "threads": EMPTY_THREADS,
        "ns_per_thread": round(min(seconds) / EMPTY_THREADS * 1e9, 1),
        "cpu_ns_per_thread": round(cpu / EMPTY_THREADS * 1e9, 1),
        "goal_ns_per_thread": START_GOAL_NS,
    }


def peak_memory() -> dict[str, object]:
    """The largest resident memory of an emulator's process, over all cases (compiled before)."""
    peaks = {}
    for case in CASES:
        command = [sys.executable, __file__, "--memory-of", case.name]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        peaks[case.name] = int(done.stdout)
    return {"bytes": max(peaks.values()), "by_kernel": peaks, "goal_bytes": MEMORY_GOAL}


def _memory_of(name: str) -> int:
    (case,) = [c for c in CASES if c.name == name]
    with tempfile.TemporaryDirectory() as directory:
        _program(case, directory).complete(asynchrony=case.modes[0])
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024


def compile_cost(ptx: str) -> dict[str, float]:
    """Seconds to translate and compile ``ptx`` into an empty cache."""
    from cudahercules.emulator.emit.module import translate
    from cudahercules.emulator.ptx.parse import parse

    with tempfile.TemporaryDirectory() as directory:
        start = time.perf_counter()
        source = Path(directory) / "m.cpp"
        source.write_text(translate(parse(ptx)).source)
        translated = time.perf_counter()
        native.compile_kernels(source, Path(directory) / "m.so")
        return {"translate_s": translated - start, "compile_s": time.perf_counter() - translated}


def warm_run(ptx: str) -> float:
    """Seconds of one ``emulate`` of a tiny plan with a warm cache (median of 7)."""
    with tempfile.TemporaryDirectory() as directory:
        program = Program(ptx, Path(directory))
        for name in ("a", "b", "c"):
            program.array(name, np.ones(1024, np.float32))
        program.launch("vadd4", 1, 256, "a", "b", "c", np.int32(256))
        program.complete()
        times = []
        for _ in range(7):
            start = time.perf_counter()
            program.complete()
            times.append(time.perf_counter() - start)
    return statistics.median(times)


def machine() -> dict[str, object]:
    """``load`` is how many processes wanted to run in the last minute, these included."""
    names = [x for x in Path("/proc/cpuinfo").read_text().splitlines() if x.startswith("model name")]
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    return {
        "processor": names[0].split(":", 1)[1].strip() if names else platform.processor(),
        "cores": cores,
        "python": platform.python_version(),
        "compiler": native.find_host_compiler()[1],
        "load": round(load, 1),
        "busy": load > cores,
    }


def _line(row: dict[str, Any], mode: str) -> str:
    goal = row["goal_seconds_all_cores"]
    parts = (
        f"{row['kernel']:22} {mode:6} {row['instructions'] / 1e6:8.1f} M instructions",
        f"{row['seconds_one_core'] * 1e3:8.1f} ms on one core",
        f"{row['seconds_all_cores'] * 1e3:8.1f} ms on all" + (f" (goal {goal * 1e3:.0f})" if goal else ""),
        f"{row['million_per_second_core']:8.0f} M/s/core",
        f"{row['million_per_cpu_second']:8.0f} M/CPU s",
        f"checked {row['checked_seconds_one_core']:.2f} s",
    )
    return "  ".join(parts)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--json", type=Path)
    arguments.add_argument("--runs", type=int, default=7)
    arguments.add_argument("--memory-of", metavar="KERNEL", help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.memory_of:
        print(_memory_of(options.memory_of))
        return
    result: dict[str, object] = {"machine": machine()}
    rows = []
    for case in CASES:
        for number, mode in enumerate(case.modes):
            goal = case.most_s[number] if case.most_s else None
            row = measure(case, mode, goal, options.runs)
            rows.append(row)
            print(_line(row, mode), flush=True)
    ptx = compile_ptx(KERNELS / "basic.cu")
    result |= {
        "rows": rows,
        "start_of_a_thread": start_of_a_thread(options.runs),
        "peak_memory": peak_memory(),
        "compile": compile_cost(ptx),
        "warm_run_s": warm_run(ptx),
    }
    for name in ("start_of_a_thread", "peak_memory", "compile", "warm_run_s", "machine"):
        print(name, result[name])
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
