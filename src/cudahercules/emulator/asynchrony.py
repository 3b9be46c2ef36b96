"""When asynchronous work takes effect: the words for it, and which modules have any."""

from __future__ import annotations

from cudahercules.build.artifact import Artifact
from cudahercules.emulator.translation import build_translation
from cudahercules.errors import UsageError
from cudahercules.record.plan import LaunchPlan

EAGER, LATE = "eager", "late"
_MODES = (EAGER, LATE, "random")  # numbered as in state.hpp


def parsed(text: str) -> tuple[int, int]:
    """The mode's number and its seed. Raises UsageError for another word."""
    word, colon, seed = text.partition(":")
    if text in (EAGER, LATE):
        return _MODES.index(text), 0
    if word == "random" and colon and seed.isascii() and seed.isdecimal() and int(seed) < 1 << 64:
        return _MODES.index(word), int(seed)
    raise UsageError(f"asynchrony is eager, late or random:SEED (a number below 2**64), not {text!r}")


def is_asynchronous(plan: LaunchPlan, artifact: Artifact) -> bool:
    """Whether a module that ``plan`` launches kernels of has instructions that complete later: copies,
    ``wgmma``, or the mbarriers that wait for them. Translates what is not in the cache (MachineError)."""
    modules = {launch.module for launch in (*plan.prepare, *plan.solve) if launch.op == "kernel"}
    return any(
        build_translation(artifact.path(module.ptx).read_text()).asynchronous
        for number, module in enumerate(artifact.modules)
        if number in modules
    )
