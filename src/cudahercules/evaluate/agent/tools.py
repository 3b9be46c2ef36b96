"""The tools of an agent, as Inspect tools. ``toolbox(...)`` gives them all to any agent.

What they show comes from guidance: its workloads and seeds, never those of the final verdict. Every result
ends with what is left of the budgets.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path

from inspect_ai.tool import Tool, ToolDef, ToolError
from inspect_ai.util import store_as

from cudahercules.build.candidate import UNIT_SUFFIXES
from cudahercules.errors import HerculesError, MachineError
from cudahercules.evaluate.agent import instruments, workspace
from cudahercules.evaluate.agent.budget import budget_line
from cudahercules.evaluate.agent.nvidia_tools import profiled, sanitized
from cudahercules.evaluate.agent.workspace import Workspace
from cudahercules.evaluate.diagnosis import diagnosis
from cudahercules.evaluate.feedback import feedback
from cudahercules.evaluate.holdout import guidance, guidance_seed
from cudahercules.evaluate.judging import (
    Device,
    NotJudged,
    architecture_of,
    builders,
    gpu_queue,
    in_thread,
    judge,
)
from cudahercules.evaluate.prompts import hardware
from cudahercules.evaluate.state import Answer, Seat
from cudahercules.evaluate.trajectory import Trajectory
from cudahercules.judge.grade import LIMIT_S
from cudahercules.judge.verdict import Verdict
from cudahercules.task.header import solve_header
from cudahercules.task.load import load_task
from cudahercules.task.model import Task
from cudahercules.task.prompt import sections

MEASUREMENTS = 10
NOTES = Path(__file__).parent / "notes"
NO_GPU = "This machine has no GPU that judges: nothing can be measured here. `check` says right or wrong."


@dataclass(frozen=True)
class Bench:
    """Where the tools work: the judge's device, seconds a workload, and how often one may measure."""

    device: Device
    limit_s: float = LIMIT_S
    measurements: int = MEASUREMENTS


def toolbox(device: Device = "cpu", limit_s: float = LIMIT_S, measurements: int = MEASUREMENTS) -> list[Tool]:
    """All tools but ``submit``, for an agent that has one of its own (see :func:`submit_tool`)."""
    at = Bench(device, limit_s, measurements)
    makers = (_read, _write, _edit, _build, _check, _measure, _profile, _sass, _sanitize, _docs)
    return [_as_tool(make(at), at) for make in makers]


def submit_tool() -> ToolDef:
    """``submit``: the workspace as it is becomes the answer."""

    async def submit() -> str:
        """Hand in the files of the workspace as they are. This ends the work."""
        work = store_as(Workspace)
        _need_source(work.files)
        work.submitted = True
        settle()
        return "Submitted."

    return ToolDef(submit, name="submit")


def settle() -> None:
    """Make the sample's answer what would be graded now: the submission, else the best version that was
    checked, else the workspace."""
    work, answer = store_as(Workspace), store_as(Answer)
    trajectory = Trajectory.model_validate(work.trajectory or {})
    best = trajectory.best
    if work.submitted or best is None:
        files = dict(work.files) if _has_source(work.files) else {}
        words = "The files that were submitted." if work.submitted else "The workspace as it was left."
    else:
        files, words = dict(best.files), f"The best version that was checked (check {best.number})."
    answer.given, answer.files = True, files
    answer.explanation = words if files else "No code: the workspace has no .cu file."
    answer.trajectory = trajectory.model_dump(mode="json")


def _as_tool(function: Callable[..., Awaitable[str]], at: Bench) -> Tool:
    """The function as a tool whose results end with the budgets, and whose complaints reach the model."""

    @wraps(function)
    async def run(*args: object, **kwargs: object) -> str:
        try:
            text = await function(*args, **kwargs)
        except (NotJudged, MachineError):
            raise  # that is us, not the agent: the sample is one to be resumed
        except HerculesError as error:
            raise ToolError(str(error)) from error
        settle()
        measurements = at.measurements if at.device == "gpu" else None
        return f"{text}\n\n{budget_line(store_as(Workspace).measured, measurements)}".rstrip()

    return ToolDef(run, name=function.__name__.strip("_")).as_tool()


def _task() -> Task:
    """The sample's task. Raises ToolError where no task of ours has taken its seat."""
    seat = store_as(Seat)
    if not seat.task:
        raise ToolError("these tools work in the tasks of CUDAHercules only")
    return load_task(seat.task)


def _has_source(files: dict[str, str]) -> bool:
    return any(name.endswith(UNIT_SUFFIXES) for name in files)


def _need_source(files: dict[str, str]) -> dict[str, str]:
    if not _has_source(files):
        raise ToolError("there is no .cu file yet: write one first")
    return dict(files)


def _note(files: dict[str, str], verdict: Verdict, words: str) -> None:
    """Keep what a check or a measurement came to."""
    work = store_as(Workspace)
    trajectory = Trajectory.model_validate(work.trajectory or {}).extended(files, words, verdict)
    work.trajectory = trajectory.model_dump(mode="json")


# --- files ---------------------------------------------------------------------------------------


def _read(at: Bench) -> Callable[..., Awaitable[str]]:
    async def read(path: str = ".") -> str:
        """Read a file with line numbers, or list all files.

        Args:
            path: The file's name, `solve.h` for the interface, or `.` for the list.
        """
        return workspace.read(store_as(Workspace).files, path, solve_header(_task()))

    return read


def _write(at: Bench) -> Callable[..., Awaitable[str]]:
    async def write(path: str, text: str) -> str:
        """Write a whole file, new or old.

        Args:
            path: The file's name, such as solution.cu.
            text: Its whole content.
        """
        work = store_as(Workspace)
        work.files = workspace.written(work.files, path, text)
        return f"Written.\n{workspace.listing(work.files)}"

    return write


def _edit(at: Bench) -> Callable[..., Awaitable[str]]:
    async def edit(path: str, old: str, new: str) -> str:
        """Replace a passage that stands exactly once in a file.

        Args:
            path: The file's name.
            old: The passage as it is, without line numbers.
            new: What takes its place.
        """
        work = store_as(Workspace)
        work.files = workspace.edited(work.files, path, old, new)
        return "Edited."

    return edit


# --- instruments ---------------------------------------------------------------------------------


def _build(at: Bench) -> Callable[..., Awaitable[str]]:
    async def build() -> str:
        """Compile the files: the compiler's messages, or what each kernel takes of registers and memory."""
        task, files = _task(), _need_source(store_as(Workspace).files)
        return await in_thread(builders(), lambda: instruments.build_text(task, files, at.device))

    return build


def _check(at: Bench) -> Callable[..., Awaitable[str]]:
    async def check() -> str:
        """Run the files in an emulator on small workloads: right or wrong, and where."""
        return await _judged(at, "cpu")

    return check


def _measure(at: Bench) -> Callable[..., Awaitable[str]]:
    async def measure() -> str:
        """Run the files on the GPU beside the expert: right or wrong, and how fast. The budget is small."""
        work = store_as(Workspace)
        if at.device != "gpu":
            return NO_GPU
        if work.measured >= at.measurements:
            raise ToolError("no measurements are left; `check` and `profile` still work")
        _need_source(work.files)
        work.measured += 1
        try:
            return await _judged(at, "gpu")
        except NotJudged:
            work.measured -= 1  # that was the machine, not the agent
            raise

    return measure


async def _judged(at: Bench, device: Device) -> str:
    task, files = _task(), _need_source(store_as(Workspace).files)
    shown, seed = guidance(task), guidance_seed(task, store_as(Seat).epoch)
    verdict = await judge(shown, files, device, seed=seed, limit_s=at.limit_s)
    words = "From the workspace."
    _note(files, verdict, words)
    return feedback(shown, verdict, words)


def _profile(at: Bench) -> Callable[..., Awaitable[str]]:
    async def profile() -> str:
        """Say where the time goes: Nsight Compute's figures on a GPU, the emulator's counts without one."""
        task, files = _task(), _need_source(store_as(Workspace).files)
        return await profile_of(task, files, at)

    return profile


async def profile_of(task: Task, files: dict[str, str], at: Bench) -> str:
    """What `profile` shows, for other callers."""
    shown, seed = guidance(task), guidance_seed(task, store_as(Seat).epoch)
    if at.device == "gpu":
        return await in_thread(gpu_queue(), lambda: profiled(shown, files))
    return await in_thread(builders(), lambda: instruments.emulated_profile(shown, files, seed, at.limit_s))


def _sass(at: Bench) -> Callable[..., Awaitable[str]]:
    async def sass() -> str:
        """Show what the compiled machine code uses, and each kernel's most frequent instructions."""
        task, files = _task(), _need_source(store_as(Workspace).files)
        return await in_thread(builders(), lambda: instruments.sass_text(task, files, at.device))

    return sass


def _sanitize(at: Bench) -> Callable[..., Awaitable[str]]:
    async def sanitize() -> str:
        """Look for bad accesses and races: compute-sanitizer on a GPU, the checking emulator without one."""
        task, files = _task(), _need_source(store_as(Workspace).files)
        shown = guidance(task)
        if at.device == "gpu":
            return await in_thread(gpu_queue(), lambda: sanitized(shown, files))
        seed = guidance_seed(task, store_as(Seat).epoch)
        return await in_thread(builders(), lambda: diagnosis(shown, files, None, seed, at.limit_s))

    return sanitize


def _docs(at: Bench) -> Callable[..., Awaitable[str]]:
    async def docs(topic: str) -> str:
        """Read about the GPU, the interface, the rules, or a hardware feature.

        Args:
            topic: hardware, interface, contract, workloads, accuracy, tma, mbarrier, wgmma, cp.async or
                clusters.
        """
        task = _task()
        if topic == "hardware":
            return hardware(task, architecture_of(task, at.device))
        if topic in ("interface", "contract", "workloads", "accuracy"):
            return sections(task)[topic]
        found = NOTES / f"{topic.lower().replace('.', '_')}.md"
        if not topic.replace(".", "").replace("_", "").isalnum() or not found.is_file():
            raise ToolError(f"nothing about {topic!r}; see this tool's description for the topics")
        return found.read_text(encoding="utf-8").strip()

    return docs
