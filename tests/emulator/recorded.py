"""Real host code: built as a candidate is, recorded, and its plan run in the emulator."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from cudahercules.build.artifact import Artifact
from cudahercules.build.candidate import from_text
from cudahercules.build.compile import compile_candidate
from cudahercules.build.toolchain import find_cutlass
from cudahercules.emulator.corpus.manifest import manifest
from cudahercules.emulator.corpus.wheels import unpacked
from cudahercules.emulator.examine import Examination, examine
from cudahercules.emulator.findings import Finding
from cudahercules.emulator.outcome import Completed
from cudahercules.emulator.run import emulate
from cudahercules.errors import MachineError
from cudahercules.measure.profiles import load_profile
from cudahercules.record.plan import LaunchPlan
from cudahercules.record.recorder import record
from cudahercules.task.header import solve_header
from cudahercules.task.model import (
    DType,
    LibraryPolicy,
    Role,
    Target,
    Task,
    TaskClass,
    Tensor,
    Workload,
    WorkloadRole,
)

_TARGET_OF = {"80": Target.AMPERE, "90a": Target.HOPPER}


def tensor(name: str, role: str, dtype: str, *shape: str | int) -> Tensor:
    return Tensor(name=name, role=Role(role), dtype=DType(dtype), shape=shape)


def cutlass() -> Path:
    """CUTLASS's include directory: installed, or fetched by pip into the cache; skips where neither is."""
    try:
        return find_cutlass()
    except MachineError:
        pass
    try:
        sys.path.append(str(unpacked(manifest().wheels["cutlass"])))
    except MachineError as error:
        pytest.skip(str(error))
    return find_cutlass()


class Recorded:
    """A compiled source file that defines ``solve`` over ``tensors``, whose extents name dimensions."""

    def __init__(
        self,
        source: str,
        tensors: Sequence[Tensor],
        dimensions: Sequence[str],
        policy: LibraryPolicy = LibraryPolicy.RUNTIME,
        architecture: str = "90a",
    ):
        self.architecture = architecture
        self.task = Task(
            id=f"kernel/emulator/real@{_TARGET_OF[architecture].value}",
            family="kernel/emulator",
            member="real",
            task_class=TaskClass.KERNEL,
            target=_TARGET_OF[architecture],
            title="",
            domain="",
            directory=Path("."),
            prompt_text="",
            constants={},
            dimensions=tuple(dimensions),
            tensors=tuple(tensors),
            workloads=(),
            tolerance={},
            release="0",
        )
        candidate = from_text("real.cu", {"real.cu": source})
        built = compile_candidate(candidate, solve_header(self.task), policy, architecture)
        assert isinstance(built, Artifact), built
        self.artifact: Artifact = built

    def plan(self, **dimensions: int) -> LaunchPlan:
        workload = Workload(name="w", role=WorkloadRole.SMOKE, dimensions=dimensions)
        task = self.task.model_copy(update={"workloads": (workload,)})
        plan = record(self.artifact, task, workload, load_profile(self.architecture))
        assert isinstance(plan, LaunchPlan), plan
        return plan

    def run(
        self, plan: LaunchPlan, arrays: Mapping[str, np.ndarray], asynchrony: str = "late", wall_s: float = 60
    ) -> Completed:
        """Arrays of the tensors' dtypes, by name; outputs are written in place."""
        contents = {name: array.reshape(-1).view(np.uint8) for name, array in arrays.items()}
        outcome = emulate(plan, self.artifact, contents, wall_s, asynchrony=asynchrony)
        assert isinstance(outcome, Completed), outcome
        return outcome

    def findings(self, plan: LaunchPlan, arrays: Mapping[str, np.ndarray]) -> list[Finding]:
        """What the checking build reports: races, missing waits, undefined reads. Outputs that a call does
        not write are none of these."""
        contents = {name: array.reshape(-1).view(np.uint8) for name, array in arrays.items()}
        found = examine(plan, self.artifact, contents, 120)
        assert isinstance(found, Examination) and found.ending == "completed", found
        return [f for f in found.findings if f.kind != "unwritten"]
