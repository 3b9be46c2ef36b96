"""The verdict: one type a kind, so that a wrong answer has no speed to quote.

``VERDICT_VERSION`` is the version of this JSON schema; docs/verdicts.md explains every field and
``hercules schema`` prints it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from cudahercules.build.artifact import CompilerMessage, KernelInfo
from cudahercules.emulator.outcome import Fault, UnsupportedInstruction
from cudahercules.task.model import Model

VERDICT_VERSION: Literal[1] = 1


class Seconds(Model):
    """Wall seconds by stage; ``gpu_held`` is how long the judge kept the GPU. ``stages`` has the GPU judge's
    finer stages (see docs/measurement.md), which overlap with the others here."""

    build: float = 0.0
    record: float = 0.0
    run: float = 0.0
    check: float = 0.0
    gpu_held: float = 0.0
    total: float = 0.0
    stages: dict[str, float] = Field(default_factory=dict)


class Fingerprint(Model):
    """What the verdict depends on; equal fingerprints may be compared."""

    task_release: str
    harness: str
    compiler: str
    flags: tuple[str, ...] = ()
    architecture: str
    device: str  # "cpu emulator" or the GPU's name
    driver: str = ""
    python: str
    platform: str
    sandbox: str


class KernelReport(KernelInfo):
    """A kernel that the plan launches: resources as compiled and, where cuobjdump was at hand, the
    count of SASS instructions by class (see docs/verdicts.md)."""

    launches: int
    instruction_mix: dict[str, int] = Field(default_factory=dict)


class OutputCheck(Model):
    """Errors of one output beside its bounds (see Tolerance)."""

    output: str
    l2: float
    l2_bound: float
    row_l2: float
    row_l2_bound: float
    element: float
    element_bound: float
    exact: bool = False


class Checked(Model):
    """A workload whose outputs were all right. ``asynchrony`` has the orders of asynchronous work in which
    the CPU judge ran it; none where nothing in it is asynchronous."""

    workload: str
    role: str
    seed: str
    dimensions: dict[str, int]
    outputs: tuple[OutputCheck, ...]
    launches: int
    plan_sha256: str
    seconds: float
    samples: int = 1
    asynchrony: tuple[str, ...] = ()


class WrongOutput(Model):
    """The first output that failed and its worst element.

    ``reason`` is one of nan, infinite, unwritten, outside_buffer, input_changed, tolerance,
    not_equal. Values are text so that NaN and Inf survive JSON.
    """

    output: str
    reason: str
    message: str
    wrong: int
    total: int
    index: tuple[int, ...] = ()
    expected: str = ""
    got: str = ""
    check: OutputCheck | None = None


class TimedWorkload(Model):
    """One bench workload, candidate against expert.

    ``ratio`` = expert time / candidate time: the trimmed mean over instances of the median over their pairs
    (docs/measurement.md), with its interval at ``level``. Times are medians in microseconds.
    """

    workload: str
    outcome: Literal["faster", "on_par", "slower", "unresolved"]
    method: str
    expert: str
    margin: float
    level: float
    pairs: int
    instances: int
    looks: int
    checked_samples: int
    ratio: float
    low: float
    high: float
    candidate_us: float
    expert_us: float
    warm_candidate_us: float | None = None
    warm_expert_us: float | None = None
    floor_us: float
    ceiling_fraction: float
    candidate_samples_us: tuple[float, ...] = ()
    expert_samples_us: tuple[float, ...] = ()
    sm_clock_mhz: tuple[int, ...] = ()
    power_w: tuple[float, ...] = ()
    throttle_ns: dict[str, int] = Field(default_factory=dict)
    flags: tuple[str, ...] = ()
    design: str = ""  # light, heavy, giant or slow: how many samples, chosen by the probe
    pause_ms: float = 0.0  # idle time before each sample
    repeated_blocks: int = 0
    temperature_c: tuple[int, ...] = ()
    solo_expert_us: tuple[float, ...] = ()  # the expert alone, before and after
    outside_clock: dict[str, float] = Field(default_factory=dict)  # side -> events / process clock
    expert_instructions: dict[str, int] = Field(default_factory=dict)  # SASS by class, where it is known


class NotTimed(Model):
    kind: Literal["not_timed"] = "not_timed"
    reason: str


class Timed(Model):
    """``ratio`` is the geometric mean over bench workloads; same rule as for one workload."""

    kind: Literal["timed"] = "timed"
    outcome: Literal["faster", "on_par", "slower", "unresolved"]
    ratio: float
    low: float
    high: float
    margin: float
    workloads: tuple[TimedWorkload, ...]
    panel: tuple[str, ...] = ()
    panel_missing: tuple[str, ...] = ()
    panel_date: str = ""  # when the panel was ranked on such a GPU; "" if never
    panel_note: str = ""
    expert_kernels: dict[str, tuple[KernelReport, ...]] = Field(default_factory=dict)
    """The kernels of those opponents that are plans of ours, by the expert's name."""
    untimed: dict[str, str] = Field(default_factory=dict)
    """Bench workloads for which no opponent was left, and why; the outcome is then ``unresolved``."""


class _Verdict(Model):
    version: Literal[1] = VERDICT_VERSION
    task: str
    candidate: str
    candidate_sha256: str
    trust: str = "plan"  # "plan": replayed by us; "program": the candidate's own process had the GPU
    seed: str = ""  # of this grading; `--seed` repeats it. Samples' seeds are derived from it
    seconds: Seconds
    fingerprint: Fingerprint


class BuildError(_Verdict):
    kind: Literal["build_error"] = "build_error"
    message: str
    diagnostics: tuple[CompilerMessage, ...] = ()


class ContractError(_Verdict):
    """The host code did something that a plan cannot hold, or ended without a plan."""

    kind: Literal["contract_error"] = "contract_error"
    message: str
    workload: str = ""


class Crash(_Verdict):
    """``asynchrony`` as in Incorrect."""

    kind: Literal["crash"] = "crash"
    message: str
    workload: str
    fault: Fault
    asynchrony: str = ""


class Timeout(_Verdict):
    """``stage`` is build, record or run."""

    kind: Literal["timeout"] = "timeout"
    message: str
    stage: Literal["build", "record", "run"]
    limit_s: float
    workload: str = ""


class Incorrect(_Verdict):
    """``asynchrony`` is the order of asynchronous work in which the CPU judge saw it ("" where nothing is
    asynchronous), ``right_in`` those in which the same workload was right."""

    kind: Literal["incorrect"] = "incorrect"
    message: str
    workload: str
    wrong: WrongOutput
    passed: tuple[Checked, ...] = ()
    asynchrony: str = ""
    right_in: tuple[str, ...] = ()


class Cheating(_Verdict):
    kind: Literal["cheating"] = "cheating"
    message: str
    evidence: tuple[str, ...]


class Correct(_Verdict):
    kind: Literal["correct"] = "correct"
    checks: tuple[Checked, ...]
    kernels: tuple[KernelReport, ...]
    timing: Annotated[NotTimed | Timed, Field(discriminator="kind")]


class UnsupportedOnCpu(_Verdict):
    kind: Literal["unsupported_on_cpu"] = "unsupported_on_cpu"
    message: str
    instructions: tuple[UnsupportedInstruction, ...]


class InvalidMeasurement(_Verdict):
    kind: Literal["invalid_measurement"] = "invalid_measurement"
    message: str


class InfrastructureError(_Verdict):
    kind: Literal["infrastructure_error"] = "infrastructure_error"
    message: str


Verdict = Annotated[
    BuildError
    | ContractError
    | Crash
    | Timeout
    | Incorrect
    | Cheating
    | Correct
    | UnsupportedOnCpu
    | InvalidMeasurement
    | InfrastructureError,
    Field(discriminator="kind"),
]

VERDICT: TypeAdapter[Verdict]
"""``VERDICT.validate_json(text)`` reads one back; ``VERDICT.json_schema()`` is the schema. It is built
when it is first asked for: grading does not need it, and it takes 15 ms."""


def __getattr__(name: str) -> TypeAdapter[Verdict]:
    if name != "VERDICT":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    adapter: TypeAdapter[Verdict] = TypeAdapter(Verdict)
    globals()["VERDICT"] = adapter
    return adapter


def exit_code(verdict: Verdict) -> int:
    """0 correct, 1 not correct, 3 machine or infrastructure."""
    if verdict.kind == "correct":
        return 0
    if verdict.kind in ("invalid_measurement", "infrastructure_error", "unsupported_on_cpu"):
        return 3
    return 1
