"""What the tools find out about a set of sources: plain functions that run in a judging thread."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from cudahercules.build.artifact import Artifact
from cudahercules.build.candidate import from_text
from cudahercules.build.compile import BuildFailure, build
from cudahercules.build.sass import instruction_mix
from cudahercules.evaluate.feedback import feature_text, feedback
from cudahercules.evaluate.judging import Device, architecture_of, write_candidate
from cudahercules.judge.cpu import count_instructions
from cudahercules.judge.grade import Grading
from cudahercules.names import demangled
from cudahercules.report.text import diagnostics, sizes
from cudahercules.task.model import Task, WorkloadRole

MOST_OPCODES = 16
"""Opcodes a kernel that `sass` lists, the most frequent first."""


def build_text(task: Task, files: Mapping[str, str], device: Device) -> str:
    """Whether the sources compile, with the compiler's messages or each kernel's resources."""
    made = _build(task, files, device)
    if isinstance(made, BuildFailure):
        return f"Does not build: {made.message}\n" + "\n".join(diagnostics(made.diagnostics))
    lines = [
        f"{demangled(k.name)}: {k.registers} registers a thread, {k.static_shared} bytes of static shared "
        f"memory, spills {k.spill_stores + k.spill_loads} bytes, at most {k.max_threads} threads a block"
        for module in made.modules
        for k in module.kernels
    ]
    return f"Builds for sm_{made.architecture}.\n" + "\n".join(lines)


def sass_text(task: Task, files: Mapping[str, str], device: Device) -> str:
    """What each kernel's machine code shows, and its most frequent instructions (counted as they stand in the
    code, not as they run)."""
    made = _build(task, files, device)
    if isinstance(made, BuildFailure):
        return f"Does not build: {made.message}"
    mixes = instruction_mix(made)
    if not mixes:
        return "The machine code cannot be listed: nvdisasm is not installed on this machine."
    lines = []
    for name, mix in mixes.items():
        ordered = sorted(mix.items(), key=lambda item: -item[1])
        lines.append(f"{demangled(name)}: {sum(mix.values())} instructions; {feature_text(mix)}")
        lines.append("  " + ", ".join(f"{opcode} {count}" for opcode, count in ordered[:MOST_OPCODES]))
    return "\n".join(lines)


def emulated_profile(task: Task, files: Mapping[str, str], seed: str, limit_s: float) -> str:
    """Instructions that the emulator executes in each workload: a count, not a time."""
    roles = (WorkloadRole.SMOKE, WorkloadRole.CHECK)
    with tempfile.TemporaryDirectory(prefix="hercules-profile-") as directory:
        path = write_candidate(files, Path(directory))
        grading = Grading(task, path, "cpu", seed=seed, roles=roles, limit_s=limit_s)
        verdict = grading.verdict()
        if verdict.kind != "correct":
            return f"Only right code can be profiled.\n{feedback(task, verdict, '')}"
        counts = count_instructions(grading.case, grading.evidence, limit_s)
    launches = {check.workload: check.launches for check in verdict.checks}
    lines = ["Counts of the emulator (PTX instructions of all threads; counts, not times):"]
    for workload in task.workloads_of(*roles):
        if workload.name in counts:
            elements = sum(task.nbytes(t, workload) // t.dtype.size for t in task.outputs)
            lines.append(
                f"* {workload.name} ({sizes(workload.dimensions)}): {counts[workload.name]} instructions in "
                f"{launches.get(workload.name, 0)} launches, {counts[workload.name] / elements:.1f} for each "
                "element of output"
            )
    return "\n".join(lines)


def _build(task: Task, files: Mapping[str, str], device: Device) -> Artifact | BuildFailure:
    return build(from_text("workspace", dict(files)), task, architecture_of(task, device))
