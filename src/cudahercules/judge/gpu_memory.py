"""Device memory that timing a workload needs, computed before anything is allocated."""

from __future__ import annotations

from cudahercules.judge.answers_gpu import reference_bytes
from cudahercules.judge.design import DESIGNS
from cudahercules.judge.lanes import LANES
from cudahercules.record.plan import PAGE, LaunchPlan
from cudahercules.task.model import Task, Workload

CONTEXT_BYTES = 600 << 20
"""Memory of one context with its module code (measured on an H200: 0.5 GiB)."""


def memory_needed(task: Task, workload: Workload, plan: LaunchPlan, expert: bool, l2_bytes: int) -> int:
    """Bytes of device memory for timing one workload, worst case."""
    arena = _arena_bytes(plan)
    operands = sum(task.nbytes(t, workload) for t in task.tensors)
    outputs = sum(task.nbytes(t, workload) for t in task.outputs)
    kept = max(d.kept_at_once for d in DESIGNS.values()) * outputs
    process = CONTEXT_BYTES + 4 * l2_bytes
    candidate = LANES * (arena + outputs + process)
    opponent = LANES * (2 * operands + process) if expert else 0
    return candidate + opponent + CONTEXT_BYTES + reference_bytes(task, workload) + kept


def too_much_scratch(plan: LaunchPlan, gpu_bytes: int) -> str | None:
    """Why a plan's scratch is more than a candidate may have on a GPU of this size, or None.

    Half of the card is for the candidate's instances. What does not fit is the candidate's doing: else it
    could choose an infrastructure error, which counts against nobody."""
    scratch = sum(b.size for b in plan.buffers if b.kind == "scratch")
    most = gpu_bytes // (2 * LANES)
    if scratch <= most:
        return None
    return (
        f"{scratch / 2**30:.1f} GiB of scratch memory: a GPU of {gpu_bytes / 2**30:.0f} GiB has to hold "
        f"{LANES} instances of a candidate beside its opponent, at most {most / 2**30:.1f} GiB are "
        "allowed here"
    )


def rivals_memory(task: Task, workload: Workload, plan: LaunchPlan) -> int:
    """What a candidate in the expert's place needs beyond an expert: its own arena and kept outputs."""
    outputs = sum(task.nbytes(t, workload) for t in task.outputs)
    kept = max(d.kept_at_once for d in DESIGNS.values())
    return LANES * _arena_bytes(plan) + kept * outputs


def _arena_bytes(plan: LaunchPlan) -> int:
    return sum(-(-(b.size + PAGE - 1) // PAGE) * PAGE for b in plan.buffers)
