"""Device memory that timing a workload needs, computed before anything is allocated."""

from __future__ import annotations

from cudahercules.build.artifact import Artifact
from cudahercules.judge.answers_gpu import reference_bytes
from cudahercules.judge.design import DESIGNS
from cudahercules.judge.lanes import LANES
from cudahercules.measure.profile import DeviceProfile
from cudahercules.record.plan import PAGE, LaunchPlan, local_bytes
from cudahercules.task.model import Task, Workload

CONTEXT_BYTES = 600 << 20
"""Memory of one context with its module code (measured on an H200: 0.5 GiB)."""
MULTIPROCESSORS, THREADS_PER_MULTIPROCESSOR = 16, 39
"""Numbers of these two in CUdevice_attribute."""


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


def too_much_memory(
    plan: LaunchPlan, artifact: Artifact, profile: DeviceProfile, gpu_bytes: int
) -> str | None:
    """Why a plan needs more scratch and local memory than a GPU of ``gpu_bytes`` has for it, or None.

    Half of the card is for the candidate's instances. What does not fit is the candidate's doing: else it
    could choose an infrastructure error, which counts against nobody. Local memory (stacks and spills) is
    reserved by the driver for every thread that the GPU can hold at once."""
    scratch = sum(b.size for b in plan.buffers if b.kind == "scratch")
    threads = profile.attributes[MULTIPROCESSORS] * profile.attributes[THREADS_PER_MULTIPROCESSOR]
    local = threads * local_bytes(plan, artifact)
    most = gpu_bytes // (2 * LANES)
    if scratch + local <= most:
        return None
    return (
        f"{scratch / 2**30:.1f} GiB of scratch memory and {local / 2**30:.1f} GiB of local memory (stacks): "
        f"a GPU of {gpu_bytes / 2**30:.0f} GiB has to hold {LANES} instances of a candidate beside its "
        f"opponent, at most {most / 2**30:.1f} GiB are allowed here"
    )


def rivals_memory(task: Task, workload: Workload, plan: LaunchPlan) -> int:
    """What a candidate in the expert's place needs beyond an expert: its own arena and kept outputs."""
    outputs = sum(task.nbytes(t, workload) for t in task.outputs)
    kept = max(d.kept_at_once for d in DESIGNS.values())
    return LANES * _arena_bytes(plan) + kept * outputs


def _arena_bytes(plan: LaunchPlan) -> int:
    return sum(-(-(b.size + PAGE - 1) // PAGE) * PAGE for b in plan.buffers)
