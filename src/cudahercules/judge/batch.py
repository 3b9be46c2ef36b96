"""Many candidates of one task on one GPU: compilers beside the card, verdicts as they come.

Candidates are compiled and recorded in threads ahead of the card, which takes them one at a time in the
order in which their artifacts are ready. These threads, and the compilers they start, yield to the processes
that take samples: a judge that waits for a processor takes longer for every sample. A resume file (JSON
lines, one verdict a line, flushed to disk) keeps what is finished through Ctrl-C, ``kill -9`` and power cuts.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from cudahercules.build.artifact import Artifact
from cudahercules.build.candidate import Candidate, load_candidate
from cudahercules.build.compile import BuildFailure, build
from cudahercules.errors import HerculesError, MachineError, UsageError
from cudahercules.judge.evidence import Evidence
from cudahercules.judge.gpu import SAMPLE_S, judge_on_gpu
from cudahercules.judge.gpu_grading import ORDER, Recording, record_all
from cudahercules.judge.protocol import Case, Failing, fault_of_ours, new_seed
from cudahercules.judge.station import Station
from cudahercules.judge.verdict import VERDICT, Verdict
from cudahercules.record.plan import LaunchPlan
from cudahercules.record.recorder import sandbox_level
from cudahercules.task.model import Task
from cudahercules.task.releases import is_release_of

AHEAD = 4
"""Artifacts that may wait for the card per compiling thread: bounds memory, never starves the card."""
COMPILERS = 4
"""At most this many compiling threads, and a quarter of the processors. A build takes 2 to 3 s and the card
about 1.5 s a verdict; 15 builds at a time on 16 processors made the sampling processes three times slower."""
NICENESS = 10
RETRIED = ("invalid_measurement", "infrastructure_error")
"""Kinds that say nothing about the candidate: a resumed batch grades these again."""


@dataclass(frozen=True)
class _Built:
    number: int
    case: Case
    candidate: Candidate
    result: Artifact | BuildFailure | Exception
    recordings: dict[str, Future[Recording]] = field(default_factory=dict)


def judge_many_on_gpu(
    task: Task,
    paths: Sequence[Path],
    at: Station,
    *,
    resume: Path | None = None,
    compilers: int | None = None,
    limit_s: float = SAMPLE_S,
    notify: Callable[[str], None] = lambda _text: None,
) -> Iterator[tuple[int, Verdict]]:
    """Grade ``paths`` and yield (position in ``paths``, verdict) as verdicts come.

    ``resume``     file of finished verdicts: those in it are yielded first and not graded again
    ``compilers``  compiling threads, by default a quarter of the processors, COMPILERS at most
    ``limit_s``    wall seconds that one sample may take

    A candidate that cannot be read raises UsageError before anything runs. A MachineError in building, or
    in judging two candidates in a row, ends the batch (finished verdicts are in ``resume``); of one alone
    it is that candidate's verdict.
    """
    candidates = [load_candidate(Path(p)) for p in paths]
    done = finished(resume, task, at.gpu.name) if resume is not None else {}
    waiting: list[tuple[int, Candidate]] = []
    for number, candidate in enumerate(candidates):
        known = done.get(candidate.sha256)
        if known is not None:
            yield number, known
        else:
            waiting.append((number, candidate))
    for number, verdict in _grade(task, waiting, at, compilers or default_compilers(), limit_s, notify):
        if resume is not None:
            append(resume, verdict)
        yield number, verdict


def default_compilers() -> int:
    return max(1, min(COMPILERS, (os.cpu_count() or 2) // 4))


def give_way() -> None:
    """Lower the priority of this thread, and so of the processes that it starts."""
    with suppress(OSError):  # a system that refuses is no worse than before
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)


def _grade(
    task: Task,
    waiting: Sequence[tuple[int, Candidate]],
    at: Station,
    compilers: int,
    limit_s: float,
    notify: Callable[[str], None],
) -> Iterator[tuple[int, Verdict]]:
    at.start_experts(task)
    at.ahead = True
    failing = Failing()
    ready: queue.Queue[_Built] = queue.Queue()
    room = threading.Semaphore(AHEAD * compilers)
    stop = threading.Event()
    pool = ThreadPoolExecutor(compilers, "compile", initializer=give_way)
    recorders = ThreadPoolExecutor(compilers, "record", initializer=give_way)

    def compile_one(number: int, candidate: Candidate) -> None:
        room.acquire()
        if not stop.is_set():
            ready.put(_prepared(task, number, candidate, at, recorders))

    try:
        for number, candidate in waiting:
            pool.submit(compile_one, number, candidate)
        for count in range(len(waiting)):
            built = ready.get()
            room.release()
            notify(f"{count + 1} of {len(waiting)}: {built.candidate.name}")
            yield built.number, _judge(built, at, failing, limit_s)
    finally:
        at.ahead = False
        stop.set()
        for _ in waiting:
            room.release()
        pool.shutdown(wait=False, cancel_futures=True)
        recorders.shutdown(wait=False, cancel_futures=True)


def _prepared(task: Task, number: int, candidate: Candidate, at: Station, recorders: Executor) -> _Built:
    """The candidate built, and its recordings begun. What is raised is kept for who waits."""
    start = time.monotonic()
    architecture = task.target.architecture or at.gpu.architecture
    case = Case(
        task=task,
        candidate=candidate.name,
        candidate_sha256=candidate.sha256,
        seed=new_seed(),
        clock=lambda: time.monotonic() - start,
        architecture=architecture,
        sandbox=sandbox_level(),
        device=at.gpu.name,
        driver=at.gpu.driver,
    )
    result: Artifact | BuildFailure | Exception
    recordings: dict[str, Future[Recording]] = {}
    try:
        result = build(candidate, task, architecture)
        case.watch.build = time.monotonic() - start
        if isinstance(result, Artifact):
            recordings = _recordings_ahead(case, result, at, recorders)
    except Exception as error:
        result = error
    return _Built(number, case, candidate, result, recordings)


def _recordings_ahead(
    case: Case, artifact: Artifact, at: Station, recorders: Executor
) -> dict[str, Future[Recording]]:
    """Begin the recordings; of host code that fails on the first workload no other one is tried."""
    first, *others = sorted(case.task.workloads, key=lambda w: ORDER.index(w.role))
    begun = record_all(case, artifact, [first], at, recorders)
    recording = begun[first.name]
    if recording.exception() is None and isinstance(recording.result(), LaunchPlan):
        begun.update(record_all(case, artifact, others, at, recorders))
    return begun


def _judge(built: _Built, at: Station, failing: Failing, limit_s: float) -> Verdict:
    """The verdict; its total counts compiling and judging, not the wait for the card."""
    case, result = built.case, built.result
    if isinstance(result, HerculesError):
        raise result
    if isinstance(result, Exception):
        return case.infrastructure_error(fault_of_ours(result))
    start = time.monotonic()
    case.clock = lambda: case.watch.build + time.monotonic() - start
    if isinstance(result, BuildFailure):
        return build_verdict(case, result)
    case.use_artifact(result)
    evidence = Evidence(task=case.task, candidate=built.candidate, artifact=result)
    try:
        verdict = judge_on_gpu(case, result, evidence, at=at, recordings=built.recordings, limit_s=limit_s)
    except MachineError as error:
        failing.met(error)
        return case.infrastructure_error(str(error))
    except HerculesError:
        raise
    except Exception as error:  # a fault of ours, or torch's (out of memory): the others go on
        verdict = case.infrastructure_error(fault_of_ours(error))
    finally:
        for recording in built.recordings.values():
            recording.cancel()  # of workloads that nobody wants any more
    failing.passed()
    return verdict


def build_verdict(case: Case, failure: BuildFailure) -> Verdict:
    """The verdict that a failed compilation means."""
    if failure.kind == "timeout":
        return case.timeout("build", failure.message, round(failure.seconds, 1))
    if failure.kind == "contract":
        return case.contract_error(failure.message)
    return case.build_error(failure.message, failure.diagnostics)


# --- the resume file -------------------------------------------------------------------------------


def append(path: Path, verdict: Verdict) -> None:
    """Add one verdict and force it to disk before going on. Raises MachineError if the disk refuses."""
    try:
        with path.open("a", encoding="utf-8") as f:
            f.write(verdict.model_dump_json() + "\n")
            f.flush()
            os.fsync(f.fileno())
    except OSError as error:
        raise MachineError(
            f"--resume {path}: {error.strerror}: the {verdict.kind} of {verdict.candidate} is not in it"
        ) from error


def finished(path: Path, task: Task, device: str | None = None) -> dict[str, Verdict]:
    """The verdicts of ``device`` (None: of any) in a resume file by candidate SHA-256, without those that
    are to be retried and those of another release: what the emulator or another card said about a
    candidate says nothing about its speed here. A last line that was cut off is dropped from the file.

    Raises UsageError if the file is of another task, holds anything else, or cannot be written."""
    if path.exists() and not path.is_file():
        raise UsageError(f"--resume {path}: this is no file; name a file of verdicts, or a new one")
    try:
        with path.open("ab+") as file:  # made now if it is new: a name that cannot be written is said first
            file.seek(0)
            lines = file.read().splitlines(keepends=True)
            if lines and not lines[-1].endswith(b"\n"):
                lines.pop()
                file.truncate(sum(map(len, lines)))
    except OSError as error:
        raise UsageError(f"--resume {path}: {error.strerror}; name a file that can be written") from error
    found: dict[str, Verdict] = {}
    for number, line in enumerate(lines, 1):
        try:
            verdict = VERDICT.validate_json(line)
        except ValidationError as error:
            raise UsageError(f"--resume {path}: line {number} is no verdict; name another file") from error
        if verdict.task != task.id:
            raise UsageError(f"--resume {path}: it holds verdicts of {verdict.task}, not of {task.id}")
        mark = verdict.fingerprint
        if device not in (None, mark.device) or not is_release_of(mark.task_release, task):
            continue
        if verdict.kind not in RETRIED:
            found[verdict.candidate_sha256] = verdict
    return found
