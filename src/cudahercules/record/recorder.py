"""Record: run a candidate's host code against the stand-in runtime and get its launch plan.

The host code runs in a process of its own with an empty environment, limits on time, memory and
files, and a private directory; no GPU is needed, and the stand-in never opens one. The level today
is that of a limited process: network and the rest of the file system are not cut off.
"""

from __future__ import annotations

import os
import signal
import stat
import tempfile
import time
from pathlib import Path
from typing import Literal

from cudahercules.build.artifact import Artifact
from cudahercules.errors import MachineError, PlanError
from cudahercules.measure.profile import DeviceProfile
from cudahercules.process import Finished, Limits, run_limited
from cudahercules.record import layout
from cudahercules.record.extract import AddressBook
from cudahercules.record.library import LAUNCHER, standin
from cudahercules.record.parse import plan_from_recording
from cudahercules.record.plan import Buffer, LaunchPlan, Symbol
from cudahercules.record.request import request_text
from cudahercules.task.model import Model, Task, Workload

LIMITS = Limits(wall_s=20, cpu_s=10, memory=4 << 30, file_size=256 << 20, output=64 << 10)
MACHINE_STATUS = {70: "out of memory", 71: "a request it could not read", 72: "files it could not write"}
"""Exit statuses of the launcher that are our fault or the machine's, not the candidate's."""


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
    start = time.monotonic()
    buffers = layout.arena(task, workload)
    symbols = layout.symbols(artifact.modules)
    request = request_text(artifact, task, workload, profile, buffers, symbols)
    launcher = standin() / LAUNCHER

    def failed(kind: Literal["contract", "timeout", "crash"], message: str) -> RecordFailure:
        return RecordFailure(kind=kind, message=message, seconds=time.monotonic() - start)

    with tempfile.TemporaryDirectory(prefix="hercules-record.", ignore_cleanup_errors=True) as directory:
        private = Path(directory)
        done = run_limited([launcher], limits, cwd=private, stdin=request.encode())
        lines = _read(private / "recording", limits).splitlines()
        if done.status != 0 or done.timed_out or not lines or not lines[-1].startswith(b'{"end"'):
            return failed(*_explain(done, limits, _read(private / "fault", limits), buffers, symbols))
        try:
            contract = _contract(lines)
            if contract is not None:
                return failed("contract", contract)
            blob = _read(private / "blob", limits)
            return plan_from_recording(
                lines, blob, artifact, task, workload.name, profile.slug, buffers, symbols
            )
        except PlanError as error:
            return failed("contract", str(error))


def _read(path: Path, limits: Limits) -> bytes:
    """A regular file's bytes; empty if it is missing, replaced by something else or oversized."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    with os.fdopen(fd, "rb") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_size > (limits.file_size or 0):
            return b""
        return file.read()


def _contract(lines: list[bytes]) -> str | None:
    """The sentence of the first broken rule, if the recording ends in one."""
    import json

    for line in lines[-2:]:
        if line.startswith(b'{"contract"'):
            try:
                return str(json.loads(line)["contract"])[:2000]
            except (ValueError, TypeError) as error:
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
    out_of_time = limits.cpu_s is not None and done.seconds > limits.cpu_s - 1
    if done.status in (-signal.SIGXCPU, -signal.SIGKILL) and out_of_time:
        return "timeout", f"host code used more than {limits.cpu_s} s of CPU time{after}"
    if done.status == -signal.SIGXFSZ:
        return "contract", f"host code wrote more than {(limits.file_size or 0) >> 20} MiB to a file{after}"
    if done.status < 0:
        return (
            "crash",
            f"host code was killed by {_signal_name(-done.status)}{_place(head, buffers, symbols)}{after}",
        )
    if head == "exit":
        return (
            "contract",
            f"host code ended the process (exit status {done.status}) instead of returning{after}",
        )
    if done.status in MACHINE_STATUS:
        text = done.stderr.decode(errors="replace").strip()[:500]
        raise MachineError(f"the recorder met {MACHINE_STATUS[done.status]}: {text}: free some and try again")
    if done.status == 127:
        raise MachineError(f"the recorder cannot run: {done.stderr.decode(errors='replace').strip()[:500]}")
    return "contract", f"host code ended the process (status {done.status}) instead of returning{after}"


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
