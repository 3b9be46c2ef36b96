"""NVIDIA's profiler and sanitizer around our own replayer: the candidate's host code is not in the process.

Both run :mod:`cudahercules.replay.once` with a plan that was recorded before, outside of them; only the
candidate's kernels are looked at. What they print is parsed into a dozen lines with units.
"""

from __future__ import annotations

import csv
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from cudahercules.build.artifact import Artifact
from cudahercules.build.candidate import from_text
from cudahercules.build.compile import BuildFailure, build
from cudahercules.build.toolchain import find_toolchain
from cudahercules.evaluate.judging import architecture_of
from cudahercules.measure.profile import DeviceProfile
from cudahercules.measure.profiles import load_profile
from cudahercules.record.recorder import RecordFailure, record
from cudahercules.replay.client import environment_of
from cudahercules.replay.device import read_profile
from cudahercules.replay.generator import device_code
from cudahercules.replay.messages import Load
from cudahercules.replay.once import ANSWERS_DIFFER
from cudahercules.task.model import Task, Workload, WorkloadRole

LIMIT_S = 300
LAUNCHES = 4
"""Launches of the candidate that are profiled; each is replayed for several passes of counters."""
SECTIONS = (
    "SpeedOfLight",
    "MemoryWorkloadAnalysis",
    "ComputeWorkloadAnalysis",
    "Occupancy",
    "SchedulerStats",
    "WarpStateStats",
    "LaunchStats",
)
STALL = "warps an issue"
METRICS: dict[str, tuple[str, float, str]] = {
    "gpu__time_duration.sum": ("time", 1e-3, "us"),  # base units: ns
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": ("SM throughput", 1, "% of peak"),
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": ("device memory throughput", 1, "% of peak"),
    "dram__bytes.sum.per_second": ("device memory traffic", 1e-12, "TB/s"),  # bytes a second
    "lts__t_sector_hit_rate.pct": ("L2 hit rate", 1, "%"),
    "l1tex__t_sector_hit_rate.pct": ("L1 hit rate", 1, "%"),
    "sm__warps_active.avg.pct_of_peak_sustained_active": ("occupancy", 1, "% of warps"),
    "smsp__issue_active.avg.per_cycle_active": ("issued", 1, "instructions a cycle and scheduler"),
    "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio": (
        "stalled on device memory",
        1,
        STALL,
    ),
    "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio": (
        "stalled on barriers",
        1,
        "warps an issue",
    ),
    "smsp__average_warps_issue_stalled_math_pipe_throttle_per_issue_active.ratio": (
        "stalled on arithmetic",
        1,
        STALL,
    ),
    "launch__registers_per_thread": ("registers", 1, "a thread"),
}
"""Nsight Compute's metric -> what it is called here, the factor from its base unit, and the unit."""


def profiled(task: Task, files: Mapping[str, str]) -> str:
    """Nsight Compute's figures of the first timed workload of ``task``."""
    workloads = task.workloads_of(WorkloadRole.BENCH)[:1]
    return _under(task, files, "ncu", workloads, profiler_options, profile_lines)


def sanitized(task: Task, files: Mapping[str, str]) -> str:
    """compute-sanitizer's findings on the small workloads of ``task``, up to the first that fails."""
    small = [w for w in task.workloads if w.role is not WorkloadRole.BENCH]
    return _under(task, files, "compute-sanitizer", small, sanitizer_options, sanitizer_lines)


def profiler_options(kernels: Iterable[str]) -> list[str]:
    """Nsight Compute's arguments: the candidate's kernels only, raw values as CSV."""
    names = "|".join(re.escape(name) for name in kernels)
    return [
        *("--target-processes", "application-only", "--csv", "--page", "raw", "--print-units", "base"),
        *("--kernel-name-base", "mangled", "--kernel-name", f"regex:^({names})$"),
        *("--launch-count", str(LAUNCHES)),
        *(word for section in SECTIONS for word in ("--section", section)),
    ]


def sanitizer_options(kernels: Iterable[str]) -> list[str]:
    return ["--target-processes", "application-only", "--tool", "memcheck", "--print-limit", "5"]


def profile_lines(output: str) -> str:
    """The CSV that Nsight Compute printed, one paragraph a launch. What it does not tell is left out."""
    table = [line for line in output.splitlines() if line.startswith('"')]
    rows = list(csv.DictReader(io.StringIO("\n".join(table))))
    if len(rows) < 2:
        return f"Nsight Compute gave no figures. It said:\n{_last(output)}"
    launches = rows[1 : LAUNCHES + 1]  # the first row has the units
    return "\n".join(line for launch in launches for line in _launch_lines(launch))


def _launch_lines(launch: Mapping[str, str]) -> list[str]:
    name, grid, block = (launch.get(key, "?") for key in ("Kernel Name", "Grid Size", "Block Size"))
    lines = [f"{name} grid {grid} block {block}"]
    for metric, (words, factor, unit) in METRICS.items():
        try:
            value = float((launch.get(metric) or "").replace(",", ""))
        except ValueError:
            continue
        lines.append(f"  {words}: {value * factor:.4g} {unit}")
    return lines


def sanitizer_lines(output: str) -> str:
    """compute-sanitizer's own lines, without its prefix."""
    found = [line.lstrip("= ") for line in output.splitlines() if line.startswith("=========")]
    text = "\n".join(line for line in found if line.strip())
    return text or f"compute-sanitizer gave no findings. It said:\n{_last(output)}"


def _last(output: str) -> str:
    return "\n".join(output.strip().splitlines()[-6:])


def _under(
    task: Task,
    files: Mapping[str, str],
    program: str,
    workloads: Sequence[Workload],
    options: Callable[[Iterable[str]], list[str]],
    parse: Callable[[str], str],
) -> str:
    tool = shutil.which(program) or _in_toolkit(program)
    if tool is None:
        return f"{program} is not installed on this machine."
    made = build(from_text("workspace", dict(files)), task, architecture_of(task, "gpu"))
    if isinstance(made, BuildFailure):
        return f"Does not build: {made.message}"
    command = [tool, *options(k.name for module in made.modules for k in module.kernels)]
    try:
        status, output = _once(command, made, task, workloads, load_profile(made.architecture))
        if status == ANSWERS_DIFFER:
            _, output = _once(command, made, task, workloads, read_profile())
    except _Nothing as nothing:
        return str(nothing)
    return parse(output)


class _Nothing(Exception):
    """There is nothing to look at; the message says why."""


def _once(
    command: Sequence[str],
    made: Artifact,
    task: Task,
    workloads: Sequence[Workload],
    profile: DeviceProfile,
) -> tuple[int, str]:
    """A replay of each workload under ``command``, recorded for ``profile``: exit code and output.
    Raises _Nothing."""
    orders = []
    for workload in workloads:
        plan = record(made, task, workload, profile)
        if isinstance(plan, RecordFailure):
            raise _Nothing(f"No plan for {workload.name}: {plan.message}")
        order = Load(
            task=task.model_dump_json(),
            workload=workload.name,
            kernels=str(device_code(made.architecture, find_toolchain().nvcc)),
            plan=plan.canonical_json(),
            artifact=made.model_dump_json(),
            seed=1,
        )
        orders.append(order.model_dump_json())
    with tempfile.NamedTemporaryFile("w", prefix="hercules-orders-", suffix=".jsonl") as file:
        file.write("\n".join(orders))
        file.flush()
        return _output([*command, sys.executable, "-m", "cudahercules.replay.once", file.name])


def _in_toolkit(program: str) -> str | None:
    home = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))
    found = [home / "bin" / program, *sorted(Path("/opt/nvidia/nsight-compute").glob(f"*/{program}"))]
    return next((str(path) for path in found if path.is_file()), None)


def _output(command: Sequence[str]) -> tuple[int, str]:
    environment = environment_of("candidate")
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, errors="replace"
        )
    except subprocess.TimeoutExpired:
        raise _Nothing(f"{Path(command[0]).name} did not end within {LIMIT_S} s") from None
    return done.returncode, done.stdout + done.stderr
