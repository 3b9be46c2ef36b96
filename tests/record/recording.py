"""One artifact with many small solves for the recorder's tests.

Each snippet becomes a case of one ``solve``; a workload's dimension ``which`` selects it. So all
features and refusals cost one compilation.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path

from cudahercules.build.artifact import Artifact
from cudahercules.build.candidate import from_text
from cudahercules.build.compile import compile_candidate
from cudahercules.measure.profiles import load_profile
from cudahercules.record.plan import LaunchPlan
from cudahercules.record.recorder import LIMITS, RecordFailure, record
from cudahercules.task.model import (
    DType,
    LibraryPolicy,
    Role,
    Scalar,
    Target,
    Task,
    TaskClass,
    Tensor,
    Workload,
    WorkloadRole,
)

HERE = Path(__file__).parent

HEADER = """#pragma once
#include <cuda_runtime.h>
#include <cuda.h>
#include <cstdint>
extern "C" void solve(const float* a, const float* w, float* c, float* d, int64_t n, int64_t which,
                      int32_t count, float alpha, double beta, cudaStream_t stream);
extern "C" void prepare(const float* w, int64_t n, int64_t which, int32_t count, float alpha, double beta,
                        cudaStream_t stream);
"""
SIGNATURE = re.sub(r"\s+", " ", re.search(r"void solve\((.*?)\);", HEADER, re.DOTALL)[1])
PREPARE_SIGNATURE = re.sub(r"\s+", " ", re.search(r"void prepare\((.*?)\);", HEADER, re.DOTALL)[1])


def make_task(cases: tuple[str, ...]) -> Task:
    """A task with one workload a case; a, w inputs, c output, d inout, all of n floats."""

    def tensor(name: str, role: Role) -> Tensor:
        return Tensor(name=name, role=role, dtype=DType.FP32, shape=("n",))

    return Task(
        id="kernel/recorder/cases@hopper",
        family="kernel/recorder",
        member="cases",
        task_class=TaskClass.KERNEL,
        target=Target.HOPPER,
        title="",
        domain="",
        directory=Path("."),
        prompt_text="",
        constants={},
        dimensions=("n", "which"),
        tensors=(
            tensor("a", Role.IN),
            tensor("w", Role.WEIGHT),
            tensor("c", Role.OUT),
            tensor("d", Role.INOUT),
        ),
        scalars=(
            Scalar(name="count", type="int32"),
            Scalar(name="alpha", type="float"),
            Scalar(name="beta", type="double"),
        ),
        workloads=tuple(
            Workload(
                name=name,
                role=WorkloadRole.SMOKE,
                dimensions={"n": 1000, "which": number},
                scalars={"count": -7, "alpha": 1.5, "beta": 0.25},
            )
            for number, name in enumerate(cases, 1)
        ),
        tolerance={},
        release="0",
    )


def source_of(common: str, cases: dict[str, str], prepare: str = "") -> str:
    """One translation unit: ``common`` text, a function a case, and the ``solve`` that selects."""
    functions = "\n".join(
        f"static void case_{name}({SIGNATURE}) {{\n{code}\n}}" for name, code in cases.items()
    )
    selected = "\n".join(
        f"  case {number}: return case_{name}(a, w, c, d, n, which, count, alpha, beta, stream);"
        for number, name in enumerate(cases, 1)
    )
    text = f'#include "solve.h"\n{common}\n{functions}\n'
    text += f"void solve({SIGNATURE}) {{\n  switch (which) {{\n{selected}\n  }}\n}}\n"
    if prepare:
        text += f"void prepare({PREPARE_SIGNATURE}) {{\n{prepare}\n}}\n"
    return text


class Bench:
    """The compiled cases and their recordings."""

    def __init__(
        self,
        common: str,
        cases: dict[str, str],
        prepare: str = "",
        architecture: str = "90a",
        policy: LibraryPolicy = LibraryPolicy.RUNTIME,
    ):
        self.task = make_task(tuple(cases))
        candidate = from_text("cases.cu", {"cases.cu": source_of(common, cases, prepare)})
        built = compile_candidate(candidate, HEADER, policy, architecture)
        assert isinstance(built, Artifact), built
        self.artifact: Artifact = built
        self.profile = load_profile(architecture)
        self._plans: dict[str, LaunchPlan | RecordFailure] = {}

    def record(self, name: str, **changes) -> LaunchPlan | RecordFailure:
        """A fresh recording of case ``name``; ``changes`` replace fields of the limits."""
        workload = next(w for w in self.task.workloads if w.name == name)
        return record(self.artifact, self.task, workload, self.profile, replace(LIMITS, **changes))

    def plan(self, name: str) -> LaunchPlan:
        if name not in self._plans:
            self._plans[name] = self.record(name)
        plan = self._plans[name]
        assert isinstance(plan, LaunchPlan), plan
        return plan

    def failure(self, name: str, **changes) -> RecordFailure:
        failure = self.record(name, **changes)
        assert isinstance(failure, RecordFailure), failure
        return failure


@cache
def bench(
    common: str, cases: tuple[tuple[str, str], ...], prepare: str = "", architecture: str = "90a"
) -> Bench:
    return Bench(common, dict(cases), prepare, architecture)


COMMON = (HERE / "common.cuh").read_text()


def read_cases(name: str) -> dict[str, tuple[str, str]]:
    """{case: (body, expected sentence)} of a ``.cases`` file beside this one."""
    cases = {}
    for block in re.split(r"^//! ", (HERE / name).read_text(), flags=re.MULTILINE)[1:]:
        title, body = block.split("\n", 1)
        case, _, sentence = title.partition(" | ")
        cases[case.strip()] = (body, sentence.strip())
    return cases
