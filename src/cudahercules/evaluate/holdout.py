"""What guides is not what scores.

Feedback comes from guidance: every smoke workload, every second check workload and every second timed one,
with seeds of its own. The final verdict takes all workloads of the task with fresh secret seeds; those that
guidance never showed are held back. Code that only fits what it was shown then loses in the final verdict,
and the score says by how much.
"""

from __future__ import annotations

import hashlib

from cudahercules.task.model import Task, Workload, WorkloadRole


def guidance(task: Task) -> Task:
    """``task`` with the workloads that feedback may come from; the first of each role is among them."""
    shown: list[Workload] = []
    for role in WorkloadRole:
        of_role = task.workloads_of(role)
        shown += of_role if role is WorkloadRole.SMOKE else of_role[::2]
    return task.model_copy(update={"workloads": tuple(w for w in task.workloads if w in shown)})


def held_back(task: Task) -> tuple[str, ...]:
    """The names of the workloads that only the final verdict sees."""
    shown = {w.name for w in guidance(task).workloads}
    return tuple(w.name for w in task.workloads if w.name not in shown)


def guidance_seed(task: Task, epoch: int) -> str:
    """The seed of all feedback on one sample, so that rounds can be compared."""
    return "guidance-" + hashlib.sha256(f"{task.id}\0{epoch}".encode()).hexdigest()[:16]
