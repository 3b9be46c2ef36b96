"""The orders in which asynchronous work takes effect when the CPU judge runs a plan.

A correct program cannot tell them apart. The judge runs a plan that has asynchronous work ``late`` (as late
as the rules allow) and in one random legal order; where one gives the right answer and the other does not,
something that orders the work is missing.
"""

from __future__ import annotations

import hashlib

from cudahercules.build.artifact import Artifact
from cudahercules.emulator.asynchrony import EAGER, LATE, is_asynchronous
from cudahercules.record.plan import LaunchPlan


def random_order(seed: str, workload: str) -> str:
    """``random:N`` of a grading and a workload: N is made of the grading's seed."""
    text = f"cudahercules order\0{seed}\0{workload}".encode()
    return f"random:{int.from_bytes(hashlib.sha256(text).digest()[:4], 'little')}"


def orders_of(plan: LaunchPlan, artifact: Artifact, seed: str, workload: str) -> tuple[str, ...]:
    """The orders in which ``plan`` is to be run; none where nothing in it is asynchronous."""
    return (LATE, random_order(seed, workload)) if is_asynchronous(plan, artifact) else ()


def other_order(order: str) -> str:
    """An order that is likely to hide what ``order`` has shown."""
    return LATE if order == EAGER else EAGER


def missing_order(wrong: str, right: str) -> str:
    """The sentence for an answer that depends on the order."""
    return (
        f"The answer is right when asynchronous work takes effect in the order {right}, and wrong in the "
        f"order {wrong}, both of which are legal: a wait, a fence or a commit is missing for an asynchronous "
        "copy or a wgmma"
    )
