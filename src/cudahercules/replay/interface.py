"""What the judge sees of a GPU process: a *contestant* that gives samples and keeps outputs.

A contestant is one child process with a CUDA context of its own. The candidate's process replays a
launch plan (driver API only, no torch); the expert's process runs an entry of the panel. Both fill
their operands with the same generator from the same seeds, follow the same cold protocol and answer
the same messages, so that a judge drives them alike. A process that faults or hangs ends alone.

Judges call :func:`start_replay` and :func:`start_expert`, take samples in turns, look at the kept
outputs, and close both. :func:`locate_fault` names the launch that a fault came from.

**What an expert is.** A family's ``experts.py`` defines one function per entry of the panel::

    def torch_softmax(inputs, outputs, sizes, scalars):
        def run():
            torch.softmax(inputs["x"], dim=-1, out=outputs["y"])
        return run

``inputs`` and ``outputs`` map tensor names to ``torch.Tensor`` (storage dtype, logical shape and
strides; fp8 and bf16 as torch's own types; an ``inout`` tensor is in both and is the same object).
The function is called once a workload and may plan, allocate scratch and tune; NotImplementedError
says that the library does not do this workload, and the next of the panel plays. ``run`` is then called
a few times to warm up, captured into a CUDA graph and replayed. Values change under it from sample
to sample, so it must not keep anything computed from them. ``run`` returns None if it wrote
``outputs``, or a dict of the tensors that hold the outputs (a library that allocates its result): no
copy is charged to the expert. ``run.eager = True`` says that it cannot be captured. ``run.prepare``
(a function) may rearrange the tensors of role ``weight`` into memory of the expert's own: it is called
before each sample, when these have their new values and the other inputs have not, and is neither timed
nor captured, exactly as a candidate's ``prepare``. ``run.versions``
(dict of str) adds library versions to :class:`Ready`. The current torch stream is the one to use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from pydantic import Field

from cudahercules.emulator.outcome import Fault
from cudahercules.errors import MachineError
from cudahercules.record.plan import DeviceAnswer, LaunchPlan
from cudahercules.task.model import Model

if TYPE_CHECKING:
    import numpy as np

    from cudahercules.build.artifact import Artifact
    from cudahercules.task.model import Task, Workload

START_S = 120.0
"""Seconds within which a contestant must be ready (context, modules, memory, graph)."""
SAMPLE_S = 30.0
"""Seconds within which one sample must end, generation and eviction included; else it hangs."""


class Request(Model):
    """One sample to take. ``seed`` is what :func:`cudahercules.task.inputs.generate` takes; it
    reaches the process only with this request. ``cold`` evicts L2 before the start event; a warm
    sample fills the inputs last and evicts nothing. ``keep`` puts the outputs aside for
    :meth:`Contestant.outputs`. ``hash_inputs`` hashes every input again after the stop event
    (always done for kept samples). With ``repeat`` over 1 the graph is launched that often back to
    back and both clocks cover all launches: for the comparison with an outside clock."""

    seed: int
    cold: bool = True
    keep: bool = False
    hash_inputs: bool = False
    pause_ms: float = Field(0.0, ge=0)  # idle time before this sample: pacing
    repeat: int = Field(1, ge=1, le=10_000)


class Sample(Model):
    """One execution. ``microseconds`` lies between start and stop event around the graph;
    ``wall_ns`` is the process's own clock from before the start event is enqueued to after the stop
    event is seen (with ``repeat`` over 1 the device is idle at the beginning; with 1 it still evicts,
    so that ``wall_ns`` is then only an upper bound); ``began_ns`` is CLOCK_MONOTONIC at that beginning
    (comparable across processes).

    ``kept`` numbers the outputs put aside (None: not kept). ``input_hashes`` maps an input to its
    hash right after it was filled; ``changed_inputs`` names those whose hash differed afterwards
    (``inout`` tensors are not hashed). ``warnings`` are sentences, e.g. about a damaged canary."""

    seed: int
    cold: bool
    microseconds: float
    wall_ns: int
    began_ns: int
    repeat: int = 1
    kept: int | None = None
    input_hashes: dict[str, int] = Field(default_factory=dict)
    changed_inputs: tuple[str, ...] = ()
    damaged_canaries: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class Ready(Model):
    """What a contestant says when it can take samples.

    ``method`` is ``graph`` (one CUDA graph between two events) or ``eager`` (the expert could not
    be captured: its host code runs between the events; the row must say so). ``device_bytes`` is
    the memory that the process holds apart from its context; ``seconds`` how long the start took.
    """

    side: Literal["candidate", "expert"]
    method: Literal["graph", "eager"]
    device: str
    driver: str
    pid: int
    nodes: int = 0
    device_bytes: int = 0
    relocated: bool = False
    seconds: float = 0.0
    versions: dict[str, str] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()


class KeptOutputs(Protocol):
    """Outputs of one kept sample, in memory that the contestant can no longer write."""

    def host(self, name: str) -> np.ndarray:
        """Output ``name`` in storage dtype and logical shape (Fortran order for column layout),
        copied to the host."""

    def device(self, name: str) -> DeviceArray:
        """The same bytes on the device of the calling process, imported by handle. The caller needs
        a current CUDA context (torch's will do). Valid until the sample is released."""


@dataclass(frozen=True)
class DeviceArray:
    """Device memory for ``torch.as_tensor(x, device="cuda")``: flat bytes of one output."""

    pointer: int
    nbytes: int

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        return {
            "shape": (self.nbytes,),
            "typestr": "|u1",
            "data": (self.pointer, False),
            "version": 3,
            "strides": None,
        }


class Contestant(Protocol):
    """A running process, ready for samples. Use as a context manager or call :meth:`close`.

    Every method raises ContestantFault, ContestantHang or ContestantLost when the process ends
    otherwise than it should; afterwards the contestant is dead and only ``close`` may be called.
    """

    ready: Ready

    def sample(self, seed: int, *, cold: bool = True, keep: bool = False) -> Sample:
        """Fill, poison, (evict,) run and time once."""

    def batch(self, requests: Sequence[Request]) -> list[Sample]:
        """Several samples one after the other with a single hand-over."""

    def outputs(self, sample: Sample) -> KeptOutputs:
        """The outputs of a sample taken with ``keep``."""

    def release(self, sample: Sample) -> None:
        """Give the memory of a kept sample back."""

    def rest(self) -> object:
        """Give the memory on the device back and end as a contestant. The process, which is returned, stays
        for what is started in it next."""

    def close(self) -> None:
        """End the process and free its memory; safe to call twice and after a fault."""

    def __enter__(self) -> Contestant: ...

    def __exit__(self, *exc: object) -> None: ...


class ContestantFault(Exception):
    """A launch ended in a device error; the process is gone. ``fault.kernel`` may be empty: see
    :func:`locate_fault`."""

    def __init__(self, fault: Fault):
        super().__init__(fault.message)
        self.fault = fault


class ContestantHang(Exception):
    """The process did not answer in time and was killed."""

    def __init__(self, message: str, limit_s: float):
        super().__init__(message)
        self.limit_s = limit_s


class ContestantLost(MachineError):
    """The machine's fault, not the contestant's: driver missing or too old, out of memory, GPU lost,
    the child killed from outside. The message says which and what to do."""


class OutOfMemory(ContestantLost):
    """The GPU has too little free memory for this contestant beside what else is on it."""


class ExpertDeclined(ContestantLost):
    """The expert's code does not do this workload (it raised NotImplementedError): nobody's fault, and
    its process goes on. The message is the expert's own."""


class CannotReplay(Exception):
    """The plan does not fit the device in a way that recording should have refused (for example a
    launch that the driver rejects). The candidate's fault; the message names operation and error."""


class AnswersDiffer(Exception):
    """The real device answers differently from the profile: record again with ``differences``
    (each with the question and the real answer)."""

    def __init__(self, differences: tuple[DeviceAnswer, ...]):
        super().__init__(f"{len(differences)} answers of the device profile do not hold on this GPU")
        self.differences = differences


def start_replay(
    plan: LaunchPlan,
    artifact: Artifact,
    task: Task,
    workload: Workload,
    device: int = 0,
    *,
    process: object | None = None,
    start_s: float = START_S,
    sample_s: float = SAMPLE_S,
) -> Contestant:
    """Start (or take from a warm pool: ``process``) a replay process and build the plan's graph.

    Raises AnswersDiffer, CannotReplay, ContestantFault (in ``prepare``), ContestantHang or
    ContestantLost."""
    from cudahercules.replay import client

    return client.start_replay(
        plan, artifact, task, workload, device, process=process, start_s=start_s, sample_s=sample_s
    )


def start_expert(
    task: Task,
    expert: str,
    workload: Workload,
    device: int = 0,
    *,
    process: object | None = None,
    start_s: float = START_S,
    sample_s: float = SAMPLE_S,
) -> Contestant:
    """Start a process that runs ``experts.<expert>`` of the task's family on generated inputs.

    ``process`` is an earlier expert contestant of the same task and expert whose process (torch
    loaded, kernels compiled) goes on with another workload. Raises MachineError if a package of the
    expert is missing, ExpertDeclined, ContestantFault, ContestantHang or ContestantLost."""
    from cudahercules.replay import client

    return client.start_expert(
        task, expert, workload, device, process=process, start_s=start_s, sample_s=sample_s
    )


def warm_process(
    side: Literal["candidate", "expert", "library"], device: int = 0, *, begin: bool = True
) -> object:
    """Start a process (context made, torch loaded for the expert) without anything to run, for
    ``process=`` later. It ends with this process; ``.close()`` ends it earlier. ``library`` is for
    experts that run without torch: see :mod:`cudahercules.replay.library`. With ``begin=False`` it only
    imports what it needs, and leaves the GPU alone until its ``.begin()`` is called or work comes."""
    from cudahercules.replay import client

    return client.spawn(side, device, begin=begin)


def locate_fault(
    plan: LaunchPlan, artifact: Artifact, task: Task, workload: Workload, seed: int, device: int = 0
) -> Fault | None:
    """Run ``plan`` launch by launch in a new process and name the one that faults or hangs.

    Returns None if nothing happened this time (then report the fault without a location)."""
    from cudahercules.replay import client

    return client.locate_fault(plan, artifact, task, workload, seed, device)
