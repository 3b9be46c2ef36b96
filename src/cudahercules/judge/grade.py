"""``grade``: one task, one candidate, one verdict."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from cudahercules.build.candidate import Candidate, load_candidate
from cudahercules.build.compile import BuildFailure, build
from cudahercules.build.toolchain import install_extra, resolve_architecture
from cudahercules.emulator.asynchrony import parsed
from cudahercules.errors import HerculesError, MachineError, UsageError
from cudahercules.judge import evidence as evidence_directory
from cudahercules.judge.cpu import LIMIT_S, get_ready, judge_on_cpu
from cudahercules.judge.evidence import Evidence
from cudahercules.judge.protocol import (
    CHECKED_ROLES,
    CPU_DEVICE,
    Case,
    Failing,
    checked_seed,
    fault_of_ours,
    new_seed,
)
from cudahercules.judge.verdict import Verdict
from cudahercules.measure.profiles import load_profile
from cudahercules.record.recorder import sandbox_level
from cudahercules.task.load import load_task
from cudahercules.task.model import Task, WorkloadRole

DEVICES = ("auto", "gpu", "cpu")


def grade(
    task: Task | str,
    path: str | Path,
    device: str = "auto",
    evidence: str | Path | None = None,
    seed: str | None = None,
    *,
    roles: Sequence[WorkloadRole] | None = None,
    limit_s: float = LIMIT_S,
    asynchrony: str | None = None,
    notify: Callable[[str], None] | None = None,
) -> Verdict:
    """Grade the candidate at ``path`` (a .cu file or a directory of sources).

    ``device``    "gpu", "cpu", or "auto": the GPU if there is one
    ``evidence``  directory to write the evidence to; must be new, empty or older evidence
    ``seed``      repeats the inputs of an earlier grading (its verdict's ``seed``); else secret
    ``roles``     restricts the workloads; all that the device can run otherwise
    ``limit_s``   wall seconds that one workload may run
    ``asynchrony`` in which order asynchronous work takes effect on the CPU: "eager", "late" or "random:SEED";
                  late and one random order otherwise
    ``notify``    is called with a few words whenever a stage begins

    Raises UsageError for what the caller got wrong (task, file, directory, device) and MachineError
    for what this machine lacks. An error in CUDAHercules itself gives an ``infrastructure_error``
    verdict; with HERCULES_DEBUG=1 its traceback goes to stderr.
    """
    task = load_task(task) if isinstance(task, str) else task
    kind = choose_device(device)
    _check_asynchrony(asynchrony, kind)
    if evidence is not None:
        evidence_directory.check_directory(Path(evidence))
    grading = Grading(
        task,
        Path(path),
        kind,
        seed=seed,
        roles=roles,
        limit_s=limit_s,
        asynchrony=asynchrony,
        notify=notify,
    )
    verdict = grading.verdict()
    if evidence is not None:
        grading.case.notify("writing evidence")
        evidence_directory.write(grading.evidence, verdict, Path(evidence))
    return verdict


class Grading:
    """One candidate on its way to a verdict. ``compare`` keeps it to look at the plans afterwards.

    Raises UsageError for a file that is no candidate or a seed that is none."""

    def __init__(
        self,
        task: Task,
        path: Path,
        kind: Literal["gpu", "cpu"],
        *,
        seed: str | None = None,
        roles: Sequence[WorkloadRole] | None = None,
        limit_s: float = LIMIT_S,
        asynchrony: str | None = None,
        notify: Callable[[str], None] | None = None,
    ):
        self.kind, self.roles, self.limit_s, self.asynchrony = kind, roles, limit_s, asynchrony
        self.candidate = load_candidate(path)
        self.case = new_case(task, self.candidate, seed, notify)
        self.evidence = Evidence(task=task, candidate=self.candidate)

    def verdict(self, rival: Grading | None = None) -> Verdict:
        """Build, record, run and check; on a GPU time it against the panel, or against ``rival``,
        which has a verdict already. A fault of ours is a verdict, too. Raises MachineError."""
        try:
            return _judge(self, rival)
        except HerculesError:
            raise
        except Exception as error:
            return self.case.infrastructure_error(fault_of_ours(error))


def new_case(
    task: Task, candidate: Candidate, seed: str | None, notify: Callable[[str], None] | None
) -> Case:
    """The case of one grading that begins now. Raises UsageError for a seed that is none."""
    start = time.monotonic()
    return Case(
        task=task,
        candidate=candidate.name,
        candidate_sha256=candidate.sha256,
        seed=checked_seed(seed) if seed is not None else new_seed(),
        clock=lambda: time.monotonic() - start,
        sandbox=sandbox_level(),
        notify=notify or (lambda _stage: None),
    )


def grade_many(
    task: Task,
    paths: Sequence[Path],
    device: str = "auto",
    *,
    evidence: Sequence[Path | None] | None = None,
    seed: str | None = None,
    roles: Sequence[WorkloadRole] | None = None,
    limit_s: float = LIMIT_S,
    asynchrony: str | None = None,
    resume: Path | None = None,
    notify: Callable[[str], None] | None = None,
) -> Iterator[Verdict]:
    """Grade several candidates and yield verdicts as they come.

    ``evidence`` gives a directory (or None) for each. ``resume`` is a file of verdicts, one a line:
    those in it are yielded without grading again, new ones are added to it. On a GPU, candidates
    are compiled beside the card, and come in the order in which they are ready, unless one of the
    options for single gradings (evidence, seed, roles, a limit) asks for them one by one. A machine
    error of one candidate is its verdict, and the others go on; of two in a row it is raised. The rest
    is as in :func:`grade`.
    """
    kind = choose_device(device)
    if resume is not None and roles is not None:
        raise UsageError("--resume keeps whole verdicts: leave --smoke out")
    _check_asynchrony(asynchrony, kind)
    if resume is not None and asynchrony is not None:
        raise UsageError("--resume keeps whole verdicts: leave --async out")
    directories = list(evidence) if evidence is not None else [None] * len(paths)
    plain = seed is None and roles is None and limit_s == LIMIT_S and not any(directories)
    if kind == "gpu" and plain and (len(paths) > 1 or resume is not None):
        yield from _on_the_card(task, paths, resume, notify)
        return
    known = _finished_here(resume, task) if kind == "cpu" else {}
    failing = Failing()
    for path, directory in zip(paths, directories, strict=True):
        earlier = known.get(load_candidate(path).sha256)
        if earlier is not None:
            yield earlier
            continue
        tell = (lambda stage, name=path.name: notify(f"{name}: {stage}")) if notify else None
        try:
            verdict = grade(
                task,
                path,
                kind,
                directory,
                seed,
                roles=roles,
                limit_s=limit_s,
                asynchrony=asynchrony,
                notify=tell,
            )
            failing.passed()
        except MachineError as error:
            failing.met(error, last=len(paths) == 1)
            verdict = new_case(task, load_candidate(path), seed, None).infrastructure_error(str(error))
        if resume is not None:
            from cudahercules.judge.batch import append

            append(resume, verdict)
        yield verdict


def _on_the_card(
    task: Task, paths: Sequence[Path], resume: Path | None, notify: Callable[[str], None] | None
) -> Iterator[Verdict]:
    from cudahercules.judge.batch import judge_many_on_gpu

    tell = notify or (lambda _stage: None)
    for _, verdict in judge_many_on_gpu(task, paths, _gpu_module().station(), resume=resume, notify=tell):
        yield verdict


def _finished_here(resume: Path | None, task: Task) -> dict[str, Verdict]:
    """Verdicts of the CPU judge in the file, by the candidate's SHA-256."""
    if resume is None:
        return {}
    from cudahercules.judge.batch import finished

    return finished(resume, task, CPU_DEVICE)


def _judge(grading: Grading, rival: Grading | None) -> Verdict:
    case, evidence, roles = grading.case, grading.evidence, grading.roles
    gpu = _gpu_module().find_gpu() if grading.kind == "gpu" else None
    if gpu is None:
        get_ready()
    elif rival is None and (not roles or WorkloadRole.BENCH in roles):
        _gpu_module().get_ready(case.task, gpu)
    else:
        _gpu_module().station(gpu)
    built_for = case.task.target.architecture
    architecture = (
        gpu.architecture if gpu is not None and not built_for else resolve_architecture(case.task.target)
    )
    case.architecture = architecture
    case.notify("compiling")
    started = time.monotonic()
    artifact = build(grading.candidate, case.task, architecture)
    case.watch.build = time.monotonic() - started
    if isinstance(artifact, BuildFailure):
        return _build_failure(case, artifact)
    case.use_artifact(artifact)
    evidence.artifact = artifact
    if gpu is not None:
        chosen = tuple(roles) if roles else tuple(WorkloadRole)
        return _gpu_module().judge_on_gpu(
            case, artifact, evidence, roles=chosen, limit_s=grading.limit_s, rival=_rival(rival)
        )
    profile = load_profile(architecture)
    chosen = tuple(roles or CHECKED_ROLES)
    return judge_on_cpu(
        case,
        artifact,
        profile,
        evidence,
        roles=chosen,
        limit_s=grading.limit_s,
        asynchrony=grading.asynchrony,
    )


def _rival(grading: Grading | None) -> Any:
    """The GPU judge's view of a candidate in the expert's place."""
    if grading is None:
        return None
    return _gpu_module().Rival(grading.case, grading.evidence.artifact, grading.evidence)


def _build_failure(case: Case, failure: BuildFailure) -> Verdict:
    if failure.kind == "timeout":
        return case.timeout("build", failure.message, round(failure.seconds, 1))
    if failure.kind == "contract":
        return case.contract_error(failure.message)
    return case.build_error(failure.message, failure.diagnostics)


# --- devices -------------------------------------------------------------------------------------


def choose_device(device: str) -> Literal["gpu", "cpu"]:
    """Resolve "auto". Raises UsageError for an unknown word, MachineError for "gpu" without one."""
    if device not in DEVICES:
        raise UsageError(f"--device {device}: choose one of {', '.join(DEVICES)}")
    if device == "cpu":
        return "cpu"
    missing = _why_no_gpu()
    if missing is None:
        return "gpu"
    if device == "gpu":
        raise MachineError(f"--device gpu: {missing}. Use --device cpu to check answers in the emulator")
    return "cpu"


def _check_asynchrony(asynchrony: str | None, kind: str) -> None:
    """Raises UsageError for a word that is none, and where a GPU decides."""
    if asynchrony is None:
        return
    parsed(asynchrony)
    if kind == "gpu":
        raise UsageError("--async is for the emulator, a GPU has an order of its own: add --device cpu")


def _why_no_gpu() -> str | None:
    """Why the GPU judge cannot run here, or None. Asks files only, not the driver: it must be quick."""
    if not any(Path(p).exists() for p in ("/dev/nvidiactl", "/dev/dxg")):
        return "this machine shows no NVIDIA GPU (no /dev/nvidiactl; `hercules doctor` says more)"
    if find_spec("cudahercules.judge.gpu") is None:
        return "this release has no GPU judge"
    if find_spec("cuda") is None or find_spec("cuda.bindings") is None:
        return f"the GPU judge needs cuda-bindings: {install_extra('gpu')}"
    return None


def _gpu_module() -> Any:
    from importlib import import_module

    return import_module("cudahercules.judge.gpu")
