"""The judge's side of a GPU process: start it, speak with it, give up on it in time.

Functions here are what :mod:`cudahercules.replay.interface` names; see there.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Literal

from pydantic import ValidationError

from cudahercules import cache
from cudahercules.build.artifact import Artifact
from cudahercules.build.toolchain import find_toolchain, resolve_architecture
from cudahercules.emulator.outcome import Fault
from cudahercules.process import kill_group
from cudahercules.record.plan import LaunchPlan
from cudahercules.replay import faults
from cudahercules.replay.driver import OUT_OF_MEMORY
from cudahercules.replay.generator import device_code
from cudahercules.replay.interface import (
    START_S,
    AnswersDiffer,
    CannotReplay,
    Contestant,
    ContestantFault,
    ContestantHang,
    ContestantLost,
    ExpertDeclined,
    KeptOutputs,
    OutOfMemory,
    Ready,
    Request,
    Sample,
)
from cudahercules.replay.kept import Received
from cudahercules.replay.messages import (
    ANSWER,
    Alive,
    At,
    Begin,
    Channel,
    Closed,
    Done,
    End,
    Failed,
    Hand,
    Handed,
    Load,
    Loaded,
    Release,
    Rest,
    Run,
    Samples,
    Stepped,
)
from cudahercules.task.model import Model, Target, Task, Workload

ENDING_S = 5.0
"""Seconds that a process gets to end by itself before it is killed."""
STEP_S = 20.0
"""Seconds that a single operation may take while a fault is located."""
LOG_TAIL = 2000
_NOT_INHERITED = ("CUDA_LAUNCH_BLOCKING", "CUDA_INJECTION64_PATH", "LD_PRELOAD")

Name = Literal["candidate", "expert", "library"]
"""Kinds of processes: a plan's, an expert's with torch, an expert's without."""


def environment_of(side: Name) -> dict[str, str]:
    """The environment of a child process."""
    environment = {k: v for k, v in os.environ.items() if k not in _NOT_INHERITED}
    source = str(Path(__file__).parents[2])
    environment["PYTHONPATH"] = os.pathsep.join(p for p in (source, environment.get("PYTHONPATH", "")) if p)
    environment["PYTHONUNBUFFERED"] = "1"
    if side == "candidate":  # no kernel may be loaded in the middle of a capture or a sample
        environment["CUDA_MODULE_LOADING"] = "EAGER"
    if side == "expert":  # what torch.compile and Triton made and tuned once serves every later process
        environment.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache.cache_root() / "inductor"))
        environment.setdefault("TRITON_CACHE_DIR", str(cache.cache_root() / "triton"))
    return environment


class GpuProcess:
    """A child process with a context. Not safe for use from several threads at once.

    With ``begin=False`` it only imports what it needs, and makes its context after :meth:`begin`."""

    def __init__(self, side: Name, device: int, begin: bool = True):
        self.side, self.device, self.begun = side, device, begin
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the child)
        try:
            self.child = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "cudahercules.replay.child",
                    side,
                    str(device),
                    str(theirs.fileno()),
                    *(() if begin else ("wait",)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=self.log,
                stderr=self.log,
                env=environment_of(side),
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self.channel = Channel(ours)
        self.alive: Alive | None = None
        self.dead = False

    def begin(self) -> None:
        """Let the process make its context, if it does not yet; it comes up meanwhile."""
        if not self.begun and not self.dead:
            self.begun = True
            try:
                self.channel.send(Begin())
            except Closed:
                raise self._lost("begin") from None

    def await_alive(self, deadline: float) -> Alive:
        """Wait for the context, once."""
        self.begin()
        if self.alive is None:
            answer = self.answer(deadline, START_S, "make a context")
            if not isinstance(answer, Alive):
                raise self._confused(answer)
            self.alive = answer
        return self.alive

    def ask(self, order: Model, limit_s: float, doing: str) -> Any:
        """Send ``order`` and return the answer to it, a failure as the exception that it means."""
        return self._ask(order, limit_s, doing)[0]

    def ask_for_memory(self, order: Hand, limit_s: float) -> tuple[Handed, int]:
        answer, descriptors = self._ask(order, limit_s, "hand over outputs")
        if not isinstance(answer, Handed) or len(descriptors) != 1:
            for descriptor in descriptors:
                os.close(descriptor)
            raise self._confused(answer)
        return answer, descriptors[0]

    def _ask(self, order: Model, limit_s: float, doing: str) -> tuple[Any, list[int]]:
        deadline = time.monotonic() + limit_s
        try:
            self.channel.send(order)
        except Closed:
            raise self._lost(doing) from None
        return self._receive(deadline, limit_s, doing)

    def answer(self, deadline: float, limit_s: float, doing: str) -> Any:
        return self._receive(deadline, limit_s, doing)[0]

    def _receive(self, deadline: float, limit_s: float, doing: str) -> tuple[Any, list[int]]:
        try:
            data, descriptors = self.channel.receive(deadline)
            answer = ANSWER.validate_python(data)
        except TimeoutError:
            self.kill()
            raise ContestantHang(
                f"the {self.side}'s process did not {doing} within {limit_s:g} s", limit_s
            ) from None
        except Closed:
            raise self._lost(doing) from None
        except (ValidationError, ValueError) as error:
            raise self._confused(error) from error
        except BaseException:  # Ctrl-C in the middle of an exchange: the process is of no more use
            self.kill()
            raise
        if isinstance(answer, Failed):
            raise self._failure(answer, doing)
        return answer, descriptors

    def _failure(self, failed: Failed, doing: str) -> Exception:
        if failed.why == "answers":
            return AnswersDiffer(failed.answers)
        if failed.why == "declined":
            return ExpertDeclined(failed.message)
        self.kill()
        match failed.why:
            case "cannot":
                return CannotReplay(failed.message)
            case "device":
                return ContestantFault(faults.from_code(failed.code, failed.message))
            case "expert":
                return ContestantLost(f"the expert failed: {failed.message}")
        kind = OutOfMemory if failed.code == OUT_OF_MEMORY else ContestantLost
        return kind(f"the {self.side}'s process could not {doing}: {failed.message}")

    def _lost(self, doing: str) -> ContestantLost:
        self.kill()
        status = self.child.returncode
        tail = self._log_tail()
        return ContestantLost(
            f"the {self.side}'s process ended (status {status}) when it was to {doing}"
            + (f"; it wrote: {tail}" if tail else "")
        )

    def _confused(self, answer: object) -> ContestantLost:
        self.kill()
        return ContestantLost(f"the {self.side}'s process answered what makes no sense: {answer!r:.300}")

    def _log_tail(self) -> str:
        with contextlib.suppress(ValueError):  # closed already
            size = self.log.seek(0, os.SEEK_END)
            self.log.seek(max(0, size - LOG_TAIL))
            return self.log.read().decode(errors="replace").strip()
        return ""

    def signal_end(self) -> None:
        """Kill the process without waiting until its memory is back; :meth:`kill` must follow."""
        if not self.dead:
            kill_group(self.child.pid)

    def hold_still(self) -> None:
        """Stop the process and what it started, wherever they are, until :meth:`go_on`. What it had put on
        the device already ends there."""
        if not self.dead:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.child.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        if not self.dead:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.child.pid, signal.SIGCONT)

    def kill(self) -> None:
        """End the process and everything that it started, now."""
        if not self.dead:
            self.dead = True
            kill_group(self.child.pid)
            self.child.wait()
            self.channel.close()

    def close(self) -> None:
        """Ask the process to end; kill it if it does not."""
        if self.dead:
            self.log.close()
            return
        with contextlib.suppress(Closed):
            self.channel.send(End())
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.child.wait(ENDING_S)
        self.kill()
        self.log.close()

    def __del__(self) -> None:
        if hasattr(self, "channel"):
            self.kill()


class RunningContestant:
    """See :class:`cudahercules.replay.interface.Contestant`."""

    def __init__(self, process: GpuProcess, ready: Ready, task: Task, workload: Workload, sample_s: float):
        self.process, self.ready, self.sample_s = process, ready, sample_s
        self.task, self.workload = task, workload
        self._received: dict[int, Received] = {}

    def sample(self, seed: int, *, cold: bool = True, keep: bool = False) -> Sample:
        return self.batch([Request(seed=seed, cold=cold, keep=keep)])[0]

    def batch(self, requests: Sequence[Request]) -> list[Sample]:
        limit_s = sum(self.sample_s + r.pause_ms / 1000 for r in requests)
        answer = self.process.ask(Run(requests=tuple(requests)), limit_s, "run")
        if not isinstance(answer, Samples) or len(answer.samples) != len(requests):
            raise self.process._confused(answer)
        return list(answer.samples)

    def outputs(self, sample: Sample) -> KeptOutputs:
        if sample.kept is None:
            raise ValueError("this sample was taken without keep=True")
        if sample.kept not in self._received:
            handed, descriptor = self.process.ask_for_memory(Hand(kept=sample.kept), self.sample_s)
            self._received[sample.kept] = Received(
                handed, descriptor, self.task, self.workload, self.process.device
            )
        return self._received[sample.kept]

    def release(self, sample: Sample) -> None:
        if sample.kept is None:
            return
        received = self._received.pop(sample.kept, None)
        if received is not None:
            received.close()
        if not self.process.dead:
            answer = self.process.ask(Release(kept=sample.kept), self.sample_s, "release outputs")
            if not isinstance(answer, Done):
                raise self.process._confused(answer)

    def forget(self) -> None:
        """Unmap all outputs on this side; the process stays for other work."""
        for received in self._received.values():
            received.close()
        self._received.clear()

    def rest(self) -> GpuProcess:
        self.forget()
        answer = self.process.ask(Rest(), self.sample_s, "give its memory back")
        if not isinstance(answer, Done):
            raise self.process._confused(answer)
        return self.process

    def close(self) -> None:
        self.forget()
        self.process.close()

    def __enter__(self) -> Contestant:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def spawn(side: Name, device: int = 0, *, begin: bool = True) -> GpuProcess:
    return GpuProcess(side, device, begin)


def _process_of(given: object | None, side: Name, device: int) -> GpuProcess:
    """The process to use: a warm one, that of an earlier contestant, or a new one."""
    if isinstance(given, RunningContestant):
        given.forget()
        given = given.process
    if given is None:
        return spawn(side, device)
    if not isinstance(given, GpuProcess) or given.side != side or given.device != device or given.dead:
        raise ValueError(f"process= is no living {side} process of device {device}")
    return given


def _kernels(process: GpuProcess, deadline: float) -> str:
    """The cubin of our own kernels for the process's device."""
    capability = process.await_alive(deadline).capability
    architecture = resolve_architecture(Target.GENERAL, capability)
    return str(device_code(architecture, find_toolchain().nvcc))


def _start(
    process: GpuProcess, order: Load, task: Task, workload: Workload, limits: tuple[float, float]
) -> RunningContestant:
    start_s, sample_s = limits
    answer = process.ask(order, start_s, "get ready")
    if not isinstance(answer, Loaded):
        raise process._confused(answer)
    return RunningContestant(process, answer.ready, task, workload, sample_s)


def start_replay(
    plan: LaunchPlan,
    artifact: Artifact,
    task: Task,
    workload: Workload,
    device: int,
    *,
    process: object | None,
    start_s: float,
    sample_s: float,
) -> Contestant:
    child = _process_of(process, "candidate", device)
    try:
        order = Load(
            task=task.model_dump_json(),
            workload=workload.name,
            kernels=_kernels(child, time.monotonic() + start_s),
            plan=plan.canonical_json(),
            artifact=artifact.model_dump_json(),
        )
        return _start(child, order, task, workload, (start_s, sample_s))
    except AnswersDiffer:
        if process is None:
            child.close()
        raise
    except BaseException:
        child.kill()
        raise


def expert_side(task: Task, expert: str) -> Name:
    """The kind of process that an expert of the panel needs."""
    entry = next((e for e in task.experts if e.name == expert), None)
    return "library" if entry is not None and entry.runs == "driver" else "expert"


def start_expert(
    task: Task,
    expert: str,
    workload: Workload,
    device: int,
    *,
    process: object | None,
    start_s: float,
    sample_s: float,
) -> Contestant:
    child = _process_of(process, expert_side(task, expert), device)
    try:
        order = Load(
            task=task.model_dump_json(),
            workload=workload.name,
            kernels=_kernels(child, time.monotonic() + start_s),
            expert=expert,
        )
        return _start(child, order, task, workload, (start_s, sample_s))
    except ExpertDeclined:
        if process is None:
            child.close()
        raise
    except BaseException:
        child.kill()
        raise


def locate_fault(
    plan: LaunchPlan, artifact: Artifact, task: Task, workload: Workload, seed: int, device: int
) -> Fault | None:
    child = spawn("candidate", device)
    at: At | None = None
    try:
        order = Load(
            task=task.model_dump_json(),
            workload=workload.name,
            kernels=_kernels(child, time.monotonic() + START_S),
            plan=plan.canonical_json(),
            artifact=artifact.model_dump_json(),
            step=True,
            seed=seed,
        )
        child.channel.send(order)
        limit_s = START_S
        while True:
            answer = child.answer(time.monotonic() + limit_s, limit_s, "go on")
            if isinstance(answer, Stepped):
                return None
            if not isinstance(answer, At):
                raise child._confused(answer)
            at, limit_s = answer, STEP_S
    except ContestantFault as error:
        return faults.located(error.fault, plan, at)
    except ContestantHang as error:
        if at is None:
            raise ContestantLost(f"the process that locates faults does not come up: {error}") from error
        return faults.located(faults.hang(STEP_S), plan, at)
    except Closed as error:
        raise ContestantLost(f"the process that locates faults ended: {error}") from error
    finally:
        child.close()
