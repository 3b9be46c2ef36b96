"""Speed of the PTX emulator: dynamic PTX instructions a second and core.

Each kernel runs twice: a counting build gives the number of instructions, the ordinary build the
time (the best of several runs on one core, kernels only). Also measured: what translating and
compiling costs, and a warm run of a tiny plan from the call to the outcome.

    python benchmarks/emulator_speed.py [--json results/emulator_speed.json]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "emulator"))
from emulated import KERNELS, Program, compile_ptx

TARGET = 1000  # million PTX instructions a second and core, for the fp32 GEMM


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


CASES: dict[str, Callable[[Program], None]] = {
    "gemm fp32 256^3": gemm,
    "gemm fp32 512^3": gemm_512,
    "vector add 4M": vector_add,
    "block reduction 1M": reduction,
    "softmax 256x1024": softmax,
    "histogram 1M": histogram,
    "fft 512x256": fft,
}


def measure(name: str, setup: Callable[[Program], None], ptx: str, runs: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as directory:
        program = Program(ptx, Path(directory))
        setup(program)
        instructions = program.complete(counting=True, threads=1).counters.instructions
        assert instructions is not None
        one = [program.complete(threads=1).counters.seconds for _ in range(runs)]
        every = [program.complete().counters.seconds for _ in range(runs)]
    return {
        "kernel": name,
        "instructions": instructions,
        "seconds_one_core": min(one),
        "median_one_core": statistics.median(one),
        "seconds_all_cores": min(every),
        "million_per_second_core": round(instructions / min(one) / 1e6, 1),
    }


def compile_cost(ptx: str) -> dict[str, float]:
    """Seconds to translate and compile ``ptx`` into an empty cache."""
    from cudahercules.emulator import native
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


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--json", type=Path)
    arguments.add_argument("--runs", type=int, default=7)
    options = arguments.parse_args()
    ptx = compile_ptx(KERNELS / "basic.cu")
    rows = [measure(name, setup, ptx, options.runs) for name, setup in CASES.items()]
    result = {
        "machine": {
            "processor": processor(),
            "cores": len(os.sched_getaffinity(0)),
            "python": platform.python_version(),
        },
        "target_million_per_second_core": TARGET,
        "rows": rows,
        "compile": compile_cost(ptx),
        "warm_run_s": warm_run(ptx),
    }
    for row in rows:
        print(
            f"{row['kernel']:22} {row['instructions'] / 1e6:9.1f} M instructions"
            f" {row['seconds_one_core'] * 1e3:9.1f} ms {row['million_per_second_core']:8.0f} M/s/core"
        )
    print("compile", result["compile"], "warm run", round(result["warm_run_s"], 4), "s")
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
