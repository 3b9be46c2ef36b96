"""Device errors in the words of :class:`cudahercules.emulator.outcome.Fault`."""

from __future__ import annotations

from cudahercules.emulator.outcome import Fault
from cudahercules.record.plan import KernelLaunch, LaunchPlan
from cudahercules.replay.messages import At

WHAT = {
    700: ("out_of_bounds", "accessed memory that is not mapped, or wrote to a read-only input"),
    702: ("deadlock", "ran longer than the driver allows"),
    710: ("assertion", "failed an assertion"),
    714: ("stack_overflow", "overran its stack"),
    715: ("illegal_instruction", "met an illegal instruction"),
    716: ("misaligned", "accessed memory at an address that the access size does not divide"),
    717: ("out_of_bounds", "accessed an address of another memory space than the instruction takes"),
    718: ("illegal_instruction", "jumped to an address that holds no code"),
    719: ("trap", "was stopped by a trap or another exception"),
    720: ("invalid_function", "is a cooperative launch with more blocks than fit at once"),
}
"""CUresult -> (``what``, what the kernel did)."""


def from_code(code: int, message: str) -> Fault:
    """The fault behind CUresult ``code``, without a place yet."""
    what, did = WHAT.get(code, ("trap", "ended in a device error"))
    return Fault(what=what, message=f"a launch {did} ({message})", kernel="")


def hang(limit_s: float) -> Fault:
    return Fault(what="deadlock", message=f"a launch did not end within {limit_s:g} s", kernel="")


def located(fault: Fault, plan: LaunchPlan, at: At | None) -> Fault:
    """``fault`` with kernel and launch number, when it is known which operation ran."""
    if at is None:
        return fault
    operations = plan.prepare if at.part == "prepare" else plan.solve
    if not 0 <= at.position < len(operations):
        return fault
    operation = operations[at.position]
    if not isinstance(operation, KernelLaunch):
        place = f"operation {at.position + 1} of {at.part} ({operation.op})"
        return fault.model_copy(update={"message": f"{place}: {fault.message}"})
    number = sum(isinstance(o, KernelLaunch) for o in operations[: at.position + 1])
    total = sum(isinstance(o, KernelLaunch) for o in operations)
    grid, block = "x".join(map(str, operation.grid)), "x".join(map(str, operation.block))
    place = f"launch {number} of {total} of {at.part}, kernel {operation.kernel} <<<{grid}, {block}>>>"
    return fault.model_copy(update={"message": f"{place}: {fault.message}", "kernel": operation.kernel})
