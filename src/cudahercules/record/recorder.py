"""Record: run a candidate's host code against the stand-in runtime and get its launch plan.

The host code runs in a process of its own: no environment, limits on time and memory, and the strongest
sandbox that this machine has (:func:`sandbox_level`). It reads the system's libraries, the stand-in and
its own object, and writes to three files in memory; no GPU is needed, and the stand-in never opens one.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from cudahercules.build import sandbox
from cudahercules.build.artifact import Artifact
from cudahercules.errors import MachineError, PlanError
from cudahercules.measure.profile import DeviceProfile
from cudahercules.names import readable
from cudahercules.process import Finished, Limits, run_limited
from cudahercules.record import layout
from cudahercules.record.answers import check_answers
from cudahercules.record.extract import AddressBook
from cudahercules.record.library import LAUNCHER, standin
from cudahercules.record.parse import plan_from_recording
from cudahercules.record.plan import Buffer, LaunchPlan, Symbol
from cudahercules.record.request import request_text
from cudahercules.task.model import Model, Task, Workload

LIMITS = Limits(wall_s=20, cpu_s=10, memory=4 << 30, file_size=256 << 20, output=64 << 10)
OUT_OF_MEMORY, LOST_FILES = 70, 72
"""Exit statuses of the launcher. Host code can end with them, too: only before it has begun do they (and
all others) speak of this machine."""
_UNCAUGHT = re.compile(
    rb"terminate called after throwing an instance of '([^'\n]{1,200})'(?:\s+what\(\):  ([^\n]{1,300}))?"
)
"""What the C++ library says of an exception that nobody catches."""


class RecordFailure(Model):
    """Why there is no plan. ``message`` is one sentence for the candidate's author."""

    kind: Literal["contract", "timeout", "crash"]
    message: str
    seconds: float


def record(
    artifact: Artifact,
    task: Task,
    workload: Workload,
    profile: DeviceProfile,
    limits: Limits = LIMITS,
) -> LaunchPlan | RecordFailure:
    """Run prepare (if the artifact has it) and solve once for ``workload`` and return the plan.

    Device questions are answered from ``profile`` and kept in the plan. Raises MachineError if this
    machine cannot build or run the recorder.
    """
    first = _record(artifact, task, workload, profile, limits, again=False)
    if first is not None:
        return first
    # Killed: from outside, or by its own hand, which it would raise again.
    second = _record(artifact, task, workload, profile, limits, again=True)
    assert second is not None
    return second


def _record(
    artifact: Artifact, task: Task, workload: Workload, profile: DeviceProfile, limits: Limits, again: bool
) -> LaunchPlan | RecordFailure | None:
    """:func:`record`, once; None where the process was killed by no limit of ours, unless ``again``."""
    start = time.monotonic()
    buffers = layout.arena(task, workload)
    symbols = layout.symbols(artifact.modules)
    request = request_text(artifact, task, workload, profile, buffers, symbols)

    def failed(kind: Literal["contract", "timeout", "crash"], message: str) -> RecordFailure:
        return RecordFailure(kind=kind, message=readable(message), seconds=time.monotonic() - start)

    with _channels() as to:
        done = _run(artifact, limits, request, to)
        begun = to.has_begun()
        if done.status == -signal.SIGKILL and not again and not _out_of_time(done, limits):
            return None
        if not begun:
            raise MachineError(_before_host_code(done, limits))
        lines = _read(to.recording, limits).splitlines()
        if done.status != 0 or done.timed_out or not lines or not lines[-1].startswith(b'{"end"'):
            return failed(*_explain(done, limits, _read(to.fault, limits), buffers, symbols))
        try:
            contract = _contract(lines)
            if contract is not None:
                return failed("contract", contract)
            blob = _read(to.blob, limits)
            plan = plan_from_recording(
                lines, blob, artifact, task, workload.name, profile.slug, buffers, symbols
            )
            check_answers(plan, artifact, profile)
            return plan
        except PlanError as error:
            return failed("contract", str(error))


def sandbox_level() -> str:
    """What host code is cut off from on this machine, as a short phrase; what the kernel does not offer
    is said in it. Raises MachineError if there is no compiler for the sandbox's launcher."""
    return sandbox.level()


@dataclass(frozen=True)
class _Channels:
    """Descriptors that the launcher gets: three files in memory, and the pipe that tells whether host
    code has begun (this end of it, and the launcher's)."""

    recording: int
    blob: int
    fault: int
    begun: int
    begin: int

    @property
    def passed(self) -> tuple[int, ...]:
        """In the order of the launcher's arguments."""
        return (self.recording, self.blob, self.fault, self.begin)

    def has_begun(self) -> bool:
        """Whether the launcher came to the point at which the candidate's code could run."""
        os.set_blocking(self.begun, False)
        try:
            return bool(os.read(self.begun, 1))
        except BlockingIOError:
            return False


@contextmanager
def _channels() -> Iterator[_Channels]:
    """Files in memory, so that nothing is left behind however this process ends."""
    opened: list[int] = []
    try:
        for name in ("recording", "blob", "fault"):
            opened.append(os.memfd_create(f"hercules-{name}"))
        opened.extend(os.pipe())
        yield _Channels(*opened)
    finally:
        for fd in opened:
            os.close(fd)


def _run(artifact: Artifact, limits: Limits, request: str, to: _Channels) -> Finished:
    # The same addresses in each run: stray host pointers in parameters then do not change the plan.
    directory, host = standin(), artifact.path(artifact.host_object).resolve()
    return run_limited(
        [directory / LAUNCHER, *map(str, to.passed)],
        limits,
        cwd=directory,
        stdin=request.encode(),
        pass_fds=to.passed,
        confined=sandbox.confinement(read=(directory, host), fixed_addresses=True),
    )


def _read(fd: int, limits: Limits) -> bytes:
    """The bytes of a file in memory; empty if it is oversized."""
    size = os.fstat(fd).st_size
    if size > (limits.file_size or 0):
        return b""
    parts, at = [], 0
    while part := os.pread(fd, size - at, at):
        parts.append(part)
        at += len(part)
    return b"".join(parts)


def _before_host_code(done: Finished, limits: Limits) -> str:
    """Why the recorder failed, for a failure that no candidate can bring about."""
    if done.timed_out:
        return f"the recorder did not begin within {limits.wall_s:g} s: this machine is overloaded; try again"
    said = done.stderr.decode(errors="replace").strip()[:500]
    if done.status < 0:
        return f"the recorder was killed by {_signal_name(-done.status)} before it began: try again"
    if done.status == OUT_OF_MEMORY:
        return "the recorder found no memory: free some and try again"
    return f"the recorder cannot run (exit status {done.status}): {said}"


def _contract(lines: list[bytes]) -> str | None:
    """The sentence of the first broken rule, if the recording ends in one."""
    import json

    for line in lines[-2:]:
        if line.startswith(b'{"contract"'):
            try:
                return str(json.loads(line)["contract"])[:2000]
            except (ValueError, TypeError, RecursionError) as error:
                raise PlanError("the recording is damaged: a line is no JSON") from error
    return None


def _explain(
    done: Finished,
    limits: Limits,
    fault: bytes,
    buffers: tuple[Buffer, ...],
    symbols: tuple[Symbol, ...],
) -> tuple[Literal["contract", "timeout", "crash"], str]:
    """Why the process ended without a recording."""
    head, _, reason = fault.decode(errors="replace").partition("\n")
    after = f"; before that: {reason[:1000]}" if reason else ""
    if done.timed_out:
        return "timeout", f"host code did not return within {limits.wall_s:g} s{after}"
    if done.status in (-signal.SIGXCPU, -signal.SIGKILL) and _out_of_time(done, limits):
        return "timeout", f"host code used more than {limits.cpu_s} s of CPU time{after}"
    if done.status == -signal.SIGXFSZ:
        return "contract", f"host code wrote more than {(limits.file_size or 0) >> 20} MiB to a file{after}"
    if done.status < 0:
        why = _uncaught(done) or _place(head, buffers, symbols)
        return "crash", f"host code was killed by {_signal_name(-done.status)}{why}{after}"
    if head == "exit":
        return (
            "contract",
            f"host code ended the process (exit status {done.status}) instead of returning{after}",
        )
    if done.status == OUT_OF_MEMORY and b"the recorder is out of memory" in done.stderr:
        return "contract", f"host code used up the limit of {(limits.memory or 0) >> 20} MiB of memory{after}"
    if done.status == LOST_FILES:
        return "contract", f"host code closed the files of its recording, or ended the process{after}"
    return "contract", f"host code ended the process (status {done.status}) instead of returning{after}"


def _out_of_time(done: Finished, limits: Limits) -> bool:
    return done.timed_out or (limits.cpu_s is not None and done.seconds > limits.cpu_s - 1)


def _uncaught(done: Finished) -> str:
    """For an abort: the C++ exception that nobody caught."""
    found = _UNCAUGHT.search(done.stderr) if done.status == -signal.SIGABRT else None
    if found is None:
        return ""
    kind, what = ((group or b"").decode(errors="replace") for group in found.groups())
    return f": nobody caught a {kind}" + (f" ({what})" if what else "")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _place(head: str, buffers: tuple[Buffer, ...], symbols: tuple[Symbol, ...]) -> str:
    """For a bad access: what the address was, in words."""
    words = head.split()
    if len(words) != 3 or words[0] != "signal" or not words[2].isdigit() or len(words[2]) > 20:
        return ""
    address = int(words[2])
    found = AddressBook(buffers, symbols).find(address)
    if found is not None:
        kind, index, offset = found
        name = buffers[index].name if kind == "buffer" else symbols[index].name
        return f": it touched device memory ({name} + {offset} bytes), which the host cannot see"
    if words[1] in ("11", "7"):
        return f" at address {address:#x}" if address >= 4096 else " (a null pointer)"
    return ""
