"""What both judges share: seeds, the facts that every verdict carries, and how failures map to kinds."""

from __future__ import annotations

import hashlib
import os
import platform
import secrets
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cudahercules import __version__
from cudahercules.build.artifact import Artifact, CompilerMessage
from cudahercules.emulator.outcome import Fault, UnsupportedInstruction
from cudahercules.errors import MachineError, UsageError
from cudahercules.judge import verdict as v
from cudahercules.judge.orders import missing_order
from cudahercules.judge.timeline import Timeline
from cudahercules.names import demangled, readable
from cudahercules.record.plan import LaunchPlan
from cudahercules.task.model import Task, WorkloadRole

CHECKED_ROLES = (WorkloadRole.SMOKE, WorkloadRole.CHECK)
"""Workloads that are checked before anything is timed, in this order; the CPU judge runs no others."""
SEED_BITS = 64
CPU_DEVICE = "cpu emulator"


def new_seed() -> str:
    """A secret seed for one grading, as 32 hexadecimal digits."""
    return secrets.token_hex(16)


def checked_seed(seed: str) -> str:
    """A seed given by the user. Raises UsageError unless it is 1 to 64 printable characters."""
    if not 1 <= len(seed) <= 64 or not seed.isprintable() or not seed.isascii():
        raise UsageError(
            f"--seed {seed!r}: give 1 to 64 printable ASCII characters, as a verdict's `seed` has"
        )
    return seed


def sample_seed(seed: str, workload: str, sample: int = 0) -> int:
    """The seed of one sample: a SHA-256 of the grading's seed, the workload and the sample's number."""
    text = f"cudahercules sample\0{seed}\0{workload}\0{sample}".encode()
    return int.from_bytes(hashlib.sha256(text).digest()[: SEED_BITS // 8], "little")


@dataclass
class Stopwatch:
    """Wall seconds by stage, collected while a verdict comes about. ``timeline`` is the GPU judge's."""

    build: float = 0.0
    record: float = 0.0
    run: float = 0.0
    check: float = 0.0
    timeline: Timeline = field(default_factory=Timeline)

    def seconds(self, total: float) -> v.Seconds:
        return v.Seconds(
            build=round(self.build, 4),
            record=round(self.record, 4),
            run=round(self.run, 4),
            check=round(self.check, 4),
            gpu_held=round(self.timeline.held, 4),
            total=round(total, 4),
            stages=self.timeline.seconds(),
        )


@dataclass
class Case:
    """One grading: what every verdict of it states, whatever its kind.

    ``clock`` returns seconds since the grading began. ``notify`` is told the stage for progress.
    """

    task: Task
    candidate: str
    candidate_sha256: str
    seed: str
    clock: Callable[[], float]
    architecture: str = ""
    compiler: str = ""
    flags: tuple[str, ...] = ()
    device: str = CPU_DEVICE
    driver: str = ""
    sandbox: str = "limits"
    trust: str = "plan"
    watch: Stopwatch = field(default_factory=Stopwatch)
    notify: Callable[[str], None] = lambda _stage: None

    def use_artifact(self, artifact: Artifact) -> None:
        self.architecture = artifact.architecture
        self.compiler, self.flags = artifact.compiler, artifact.flags

    def _facts(self) -> dict[str, Any]:
        return {
            "task": self.task.id,
            "candidate": self.candidate,
            "candidate_sha256": self.candidate_sha256,
            "trust": self.trust,
            "seed": self.seed,
            "seconds": self.watch.seconds(self.clock()),
            "fingerprint": v.Fingerprint(
                task_release=self.task.release,
                harness=__version__,
                compiler=self.compiler,
                flags=self.flags,
                architecture=self.architecture,
                device=self.device,
                driver=self.driver,
                python=platform.python_version(),
                platform=f"{sys.platform} {platform.machine()}",
                sandbox=self.sandbox,
            ),
        }

    def build_error(self, message: str, diagnostics: tuple[CompilerMessage, ...]) -> v.BuildError:
        return v.BuildError(message=message, diagnostics=diagnostics, **self._facts())

    def contract_error(self, message: str, workload: str = "") -> v.ContractError:
        return v.ContractError(message=readable(message), workload=workload, **self._facts())

    def crash(self, workload: str, fault: Fault, asynchrony: str = "") -> v.Crash:
        return v.Crash(
            message=fault.message, workload=workload, fault=fault, asynchrony=asynchrony, **self._facts()
        )

    def host_crash(self, workload: str, message: str) -> v.Crash:
        """The candidate's host code crashed while its launches were recorded."""
        return self.crash(workload, Fault(what="host_code", message=message, kernel=""))

    def timeout(self, stage: Any, message: str, limit_s: float, workload: str = "") -> v.Timeout:
        return v.Timeout(message=message, stage=stage, limit_s=limit_s, workload=workload, **self._facts())

    def incorrect(
        self,
        workload: str,
        wrong: v.WrongOutput,
        passed: Iterable[v.Checked],
        asynchrony: str = "",
        right_in: tuple[str, ...] = (),
    ) -> v.Incorrect:
        """``asynchrony`` and ``right_in``: in which orders of asynchronous work it is wrong and right."""
        message = wrong.message
        if right_in:
            message = f"{message.rstrip('.')}. {missing_order(asynchrony, right_in[0])}"
        return v.Incorrect(
            message=message,
            workload=workload,
            wrong=wrong,
            passed=tuple(passed),
            asynchrony=asynchrony,
            right_in=right_in,
            **self._facts(),
        )

    def cheating(self, message: str, evidence: Iterable[str]) -> v.Cheating:
        return v.Cheating(message=message, evidence=tuple(evidence), **self._facts())

    def correct(
        self,
        checks: Iterable[v.Checked],
        kernels: Iterable[v.KernelReport],
        timing: v.NotTimed | v.Timed,
    ) -> v.Correct:
        return v.Correct(checks=tuple(checks), kernels=tuple(kernels), timing=timing, **self._facts())

    def unsupported(self, instructions: tuple[UnsupportedInstruction, ...]) -> v.UnsupportedOnCpu:
        first = instructions[0]
        more = f" and {len(instructions) - 1} other instructions" if len(instructions) > 1 else ""
        place = f" in {demangled(first.kernel)}" if first.kernel else ""
        place += f" at {first.file}:{first.line}" if first.line else ""
        return v.UnsupportedOnCpu(
            message=f"the CPU judge does not know `{first.instruction}`{place}{more}: "
            "grade on a GPU (--device gpu); this says nothing about the candidate",
            instructions=instructions,
            **self._facts(),
        )

    def invalid_measurement(self, message: str) -> v.InvalidMeasurement:
        return v.InvalidMeasurement(message=message, **self._facts())

    def infrastructure_error(self, message: str) -> v.InfrastructureError:
        return v.InfrastructureError(message=message, **self._facts())


def fault_of_ours(error: Exception) -> str:
    """One sentence about an unexpected exception: what, and where in our code."""
    if os.environ.get("HERCULES_DEBUG"):
        traceback.print_exception(error, file=sys.stderr)
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    text = str(error).strip().splitlines()
    detail = f": {text[0][:300]}" if text else ""
    return (
        f"{type(error).__name__}{place}{detail}. This is a fault of CUDAHercules or of this machine, not of "
        "the candidate; HERCULES_DEBUG=1 shows the traceback"
    )


class Failing:
    """Machine errors of a batch: one may be an accident, two in a row are the machine."""

    def __init__(self) -> None:
        self._before = False

    def passed(self) -> None:
        """A candidate had no machine error."""
        self._before = False

    def met(self, error: MachineError, last: bool = False) -> None:
        """A candidate had one. Raises it if the one before had one, too, or if this is the ``last``."""
        if self._before or last:
            raise error
        self._before = True


def kernel_reports(
    artifact: Artifact, plans: Iterable[LaunchPlan], mixes: dict[str, dict[str, int]] | None = None
) -> tuple[v.KernelReport, ...]:
    """One row for each kernel that the plans launch, in the order of first launch; ``launches`` is
    the total over the plans. ``mixes`` maps a kernel to its count of SASS instructions by class."""
    launches = Counter(
        (op.module, op.kernel) for plan in plans for op in (*plan.prepare, *plan.solve) if op.op == "kernel"
    )
    reports = []
    for (module, name), count in launches.items():
        info = artifact.kernel(module, name)
        if info is not None:
            mix = (mixes or {}).get(name, {})
            reports.append(v.KernelReport(**info.model_dump(), launches=count, instruction_mix=mix))
    return tuple(reports)
