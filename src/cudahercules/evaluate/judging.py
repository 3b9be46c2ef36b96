"""Answers to the judge, from asynchronous code: builds and CPU checks side by side, one queue for the GPU.

Model calls go on while threads here build and grade. A grading that fails for reasons of ours is repeated;
if it still fails, :class:`NotJudged` is raised, and the sample is one to be resumed, not a wrong answer.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, Literal

import anyio
import anyio.to_thread

from cudahercules.build.candidate import from_text
from cudahercules.build.compile import BuildFailure, build
from cudahercules.build.toolchain import resolve_architecture
from cudahercules.errors import HerculesError, MachineError
from cudahercules.evaluate.extraction import SINGLE
from cudahercules.evaluate.remembered import current, key_of
from cudahercules.judge.grade import LIMIT_S, grade, new_case
from cudahercules.judge.verdict import Verdict
from cudahercules.task.model import Task

Device = Literal["cpu", "gpu"]
ATTEMPTS = 3
"""How often a grading is tried that fails for reasons of ours."""
RETRIED = ("infrastructure_error", "invalid_measurement")


class NotJudged(HerculesError):
    """This machine could not judge an answer; that says nothing about the answer."""


async def judge(
    task: Task, files: Mapping[str, str], device: Device, *, seed: str | None = None, limit_s: float = LIMIT_S
) -> Verdict:
    """The verdict on the candidate made of ``files`` (name -> text), which extraction has checked.

    ``seed`` and ``limit_s`` as in :func:`cudahercules.judge.grade.grade`. With a seed the verdict is
    guidance, and an evaluation that remembers (:mod:`cudahercules.evaluate.remembered`) gives it only once.
    Raises NotJudged.
    """
    memory = current() if seed is not None else None
    if memory is None or seed is None:
        return await _judge(task, files, device, seed, limit_s)
    key = key_of(task, files, device, seed)
    known = memory.get(key)
    if known is not None:
        return known
    verdict = await _judge(task, files, device, seed, limit_s)
    memory.put(key, verdict)
    return verdict


async def _judge(
    task: Task, files: Mapping[str, str], device: Device, seed: str | None, limit_s: float
) -> Verdict:
    if device == "gpu":
        failure = await in_thread(builders(), lambda: _build_verdict(task, files, seed))
        if failure is not None:  # nothing to run: the card goes on with others
            return failure
    lane = gpu_queue() if device == "gpu" else builders()
    trouble = ""
    for _ in range(ATTEMPTS):
        try:
            verdict = await in_thread(lane, lambda: _grade(task, files, device, seed, limit_s))
        except MachineError as error:
            trouble = str(error)
            continue
        if verdict.kind not in RETRIED:
            return verdict
        trouble = verdict.message
    raise NotJudged(f"{task.id} could not be judged in {ATTEMPTS} attempts: {trouble}")


async def in_thread(lane: ThreadPoolExecutor, work: Callable[[], Any]) -> Any:
    """The result of ``work`` in one of the lane's threads. If the wait is cancelled, work that has not begun
    is taken back, and work that has is left to end by itself."""
    future = lane.submit(work)
    try:
        return await anyio.to_thread.run_sync(
            future.result, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1)
        )
    except BaseException:
        future.cancel()
        raise


@cache
def builders() -> ThreadPoolExecutor:
    """Compilations, recordings and emulations: as many as this process may have cores."""
    return ThreadPoolExecutor(len(os.sched_getaffinity(0)), thread_name_prefix="judging")


@cache
def gpu_queue() -> ThreadPoolExecutor:
    """One grading at a time, always from the same thread: CUDA contexts belong to threads."""
    return ThreadPoolExecutor(1, thread_name_prefix="gpu-queue")


def _grade(task: Task, files: Mapping[str, str], device: Device, seed: str | None, limit_s: float) -> Verdict:
    with tempfile.TemporaryDirectory(prefix="hercules-answer-") as directory:
        return grade(task, write_candidate(files, Path(directory)), device, seed=seed, limit_s=limit_s)


def write_candidate(files: Mapping[str, str], directory: Path) -> Path:
    """Write the files and return the candidate's path: the file itself if it is the only one."""
    root = directory / "answer"
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root / SINGLE if set(files) == {SINGLE} else root


def _build_verdict(task: Task, files: Mapping[str, str], seed: str | None) -> Verdict | None:
    """The verdict of a failed compilation; None where it succeeds (the artifact is then in the cache)."""
    from cudahercules.judge.batch import build_verdict

    candidate = from_text(SINGLE if set(files) == {SINGLE} else "answer", dict(files))
    artifact = build(candidate, task, architecture_of(task, "gpu"))
    if not isinstance(artifact, BuildFailure):
        return None
    case = new_case(task, candidate, seed, None)
    case.architecture = architecture_of(task, "gpu")
    case.device = _gpu().name
    return build_verdict(case, artifact)


def architecture_of(task: Task, device: Device) -> str:
    """What the judge builds ``task`` for on this machine. Raises MachineError."""
    if device == "cpu" or task.target.architecture is not None:
        return resolve_architecture(task.target)
    return _gpu().architecture


@cache
def _gpu() -> Any:
    from cudahercules.judge.device import find_gpu

    return find_gpu()
