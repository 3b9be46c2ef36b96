"""What a recording says it was told about the device must be what this recorder tells.

A replay asks the real device again and has the plan recorded anew where it answers otherwise. If a forged
answer got that far, a candidate could disagree with every card and so choose an infrastructure error, which
counts against nobody. Occupancy is not computed again here: the replay checks those answers, and what the
device then says is told to the next recording, whose answers must be these.
"""

from __future__ import annotations

from cudahercules.build.artifact import Artifact
from cudahercules.errors import PlanError
from cudahercules.measure.profile import DeviceProfile
from cudahercules.record.plan import DeviceAnswer, LaunchPlan

COMPUTED = ("occupancy", "dynamic_shared", "clusters", "cluster_size")


def is_computed(question: str) -> bool:
    """Whether the stand-in computes the answer, unless it was told it."""
    return question.partition(" ")[0] in COMPUTED


def check_answers(plan: LaunchPlan, artifact: Artifact, profile: DeviceProfile) -> None:
    """Raise PlanError for the first answer that the stand-in does not give for ``profile``."""
    for index, given in enumerate(plan.answers):
        if given.answer != _told(given, artifact, profile):
            raise PlanError(
                f"answers {index}: {given.question[:200]!r} was answered {given.answer[:200]!r}, says the "
                "recording; the recorder says something else"
            )


def _told(given: DeviceAnswer, artifact: Artifact, profile: DeviceProfile) -> str | None:
    """The stand-in's answer; None where there is none."""
    kind, _, rest = given.question.partition(" ")
    if kind == "attribute" and rest.isdecimal() and len(rest) < 10:
        value = profile.attributes.get(int(rest))
        return None if value is None else str(value)
    if kind == "properties":
        facts = {f"{number}={value}" for number, value in profile.attributes.items()}
        return given.answer if set(given.answer.split(" ")) <= facts else None
    if kind == "memory":
        return f"{profile.free_memory} {profile.total_memory}"
    if given.question == "stream priorities":
        return "0 -5"
    if kind == "function":
        return _function(rest, artifact)
    return profile.told.get(given.question, given.answer) if is_computed(kind) else None


def _function(name: str, artifact: Artifact) -> str | None:
    for kernel in (k for m in artifact.modules for k in m.kernels):
        if kernel.name == name:
            return (
                f"registers={kernel.registers} shared={kernel.static_shared} local={kernel.local} "
                f"constant={kernel.constant} threads={kernel.max_threads}"
            )
    return None
