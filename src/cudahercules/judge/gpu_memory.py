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


def rivals_memory(task: Task, workload: Workload, plan: LaunchPlan) -> int:
    """What a candidate in the expert's place needs beyond an expert: its own arena and kept outputs."""
    outputs = sum(task.nbytes(t, workload) for t in task.outputs)
    kept = max(d.kept_at_once for d in DESIGNS.values())
    return LANES * _arena_bytes(plan) + kept * outputs


def _arena_bytes(plan: LaunchPlan) -> int:
    return sum(-(-(b.size + PAGE - 1) // PAGE) * PAGE for b in plan.buffers)
