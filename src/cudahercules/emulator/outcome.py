"""How an emulated plan can end. One type a kind; no field that has no meaning for its kind."""

from __future__ import annotations

from typing import Literal

from cudahercules.task.model import Model

Dim3 = tuple[int, int, int]


class Counters(Model):
    """Totals over the plan. ``instructions`` is None unless the counting build was asked for."""

    instructions: int | None = None
    threads: int
    blocks: int
    seconds: float


class Completed(Model):
    """Outputs lie in the buffers that were passed in. ``printed`` is what device printf wrote."""

    kind: Literal["completed"] = "completed"
    counters: Counters
    printed: str = ""


class Fault(Model):
    """A kernel did what hardware would punish.

    ``what`` is one of out_of_bounds, misaligned, deadlock, barrier_divergence, mismatched_mask,
    trap, assertion, invalid_function, stack_overflow, illegal_instruction, mbarrier_misuse,
    cluster_misuse, bulk_copy (alignment, size or tensor map of a bulk copy), missing_wait (an
    asynchronous copy was never waited for). ``message`` is one
    sentence for a person (buffer, offset and distance included), ``cause`` one on the likely cause;
    ``callers`` are the call sites through which code of the line was inlined (``file:line``, inside out);
    ``threads`` groups the threads concerned by line in deadlock reports.
    """

    kind: Literal["fault"] = "fault"
    what: str
    message: str
    cause: str = ""
    kernel: str
    block: Dim3 | None = None
    thread: Dim3 | None = None
    file: str = ""
    line: int = 0
    callers: tuple[str, ...] = ()
    instruction: str = ""
    threads: tuple[str, ...] = ()
    printed: str = ""


class OutOfFuel(Model):
    """The kernels ran longer than allowed. ``limit`` says which limit ended them (``wall S s``)."""

    kind: Literal["out_of_fuel"] = "out_of_fuel"
    kernel: str
    limit: str
    file: str = ""
    line: int = 0
    printed: str = ""


class UnsupportedInstruction(Model):
    """One PTX instruction (opcode with all modifiers) that the emulator does not know."""

    instruction: str
    kernel: str
    file: str = ""
    line: int = 0
    count: int = 1


class Unsupported(Model):
    """Nothing was run: the modules use instructions outside the emulator's table."""

    kind: Literal["unsupported"] = "unsupported"
    instructions: tuple[UnsupportedInstruction, ...]


Outcome = Completed | Fault | OutOfFuel | Unsupported
