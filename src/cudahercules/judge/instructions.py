"""Instruction evidence: SASS by class, for the kernels that plans launch."""

from __future__ import annotations

from collections import Counter

from cudahercules.build.artifact import Artifact
from cudahercules.errors import MachineError
from cudahercules.record.plan import LaunchPlan


def instruction_mixes(artifact: Artifact) -> dict[str, dict[str, int]]:
    """SASS instructions by class for each kernel; empty where cuobjdump is not at hand."""
    from cudahercules.build.sass import instruction_mix

    try:
        return instruction_mix(artifact)
    except MachineError:
        return {}


def mix_of_plan(artifact: Artifact, plan: LaunchPlan) -> dict[str, int]:
    """SASS instructions by class, summed over the kernels that ``plan`` launches in ``solve``."""
    mixes, total = instruction_mixes(artifact), Counter[str]()
    for kernel in {op.kernel for op in plan.solve if op.op == "kernel"}:
        total.update(mixes.get(kernel, {}))
    return dict(total)
