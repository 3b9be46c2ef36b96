"""The panel of a task on one GPU: who was measured, how fast, and who is the opponent.

``rank_panel`` (judge/ranking.py) measures and checks every expert and writes the result here: one
JSON file a GPU, with times, versions and the date. ``grade`` plays against the winner only and says
which experts of the panel were missing. Files that a user's ``lint`` wrote come before shipped ones.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from cudahercules import cache
from cudahercules.errors import MachineError
from cudahercules.task.model import Expert, Model, Task, Workload

SHIPPED = Path(__file__).parent / "panels"


class Standing(Model):
    """One expert on one bench workload. ``microseconds`` is the median of cold samples; an expert
    that did not run, was wrong, or *declined* (its library does not do this workload) has none and ``why``
    says so. ``largest_error`` is the largest
    error as a fraction of its bound: the task's tolerance must accept every expert with a margin;
    ``seconds`` how long it held the GPU for this."""

    expert: str
    workload: str
    outcome: Literal["ranked", "wrong", "missing", "failed", "declined"]
    microseconds: float | None = None
    method: str = ""
    largest_error: float | None = None
    versions: dict[str, str] = Field(default_factory=dict)
    why: str = ""
    seconds: float = 0.0


class TaskPanel(Model):
    """Every expert's standing on every bench workload of a task."""

    task: str
    release: str
    date: str
    driver: str
    standings: tuple[Standing, ...]

    def ranked(self, workload: str) -> tuple[Standing, ...]:
        """The correct experts of a workload, fastest first."""
        rows = [s for s in self.standings if s.workload == workload and s.outcome == "ranked"]
        return tuple(sorted(rows, key=lambda s: s.microseconds or 0.0))

    def winner(self, workload: str) -> Standing | None:
        return next(iter(self.ranked(workload)), None)


class PanelFile(Model):
    """``panels/<gpu>.json``: the panels of all tasks that were ranked on such a GPU."""

    gpu: str
    panels: dict[str, TaskPanel] = Field(default_factory=dict)


def is_plan(task: Task, expert: str) -> bool:
    """Whether an expert is a CUDA source of ours (``<name>.cu`` beside ``experts.py``): it is built,
    recorded and replayed like a candidate, without torch."""
    return (task.directory / f"{expert}.cu").is_file()


def as_expert(task: Task, expert: str) -> Task:
    """``task`` as a CUDA source of ours is built for it: an expert may use a library that candidates
    may not (``library_policy`` of its entry in the panel)."""
    entry = next(e for e in task.experts if e.name == expert)
    return task.model_copy(update={"library_policy": entry.library_policy or task.library_policy})


def slug_of(gpu_name: str) -> str:
    """A file name for a kind of GPU: ``nvidia-h200``."""
    return "-".join(gpu_name.lower().split())


def users_directory() -> Path:
    return cache.cache_root() / "panels"


def load_panel(task: Task, gpu_slug: str) -> TaskPanel | None:
    """The newest ranking of ``task`` on such a GPU, the user's own before a shipped one.

    A ranking of an older release of the task still tells the opponent; compare ``release``."""
    for directory in (users_directory(), SHIPPED):
        panel = _read(directory / f"{gpu_slug}.json", gpu_slug).panels.get(task.id)
        if panel is not None:
            return panel
    return None


def _read(path: Path, gpu_slug: str) -> PanelFile:
    try:
        return PanelFile.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return PanelFile(gpu=gpu_slug)
    except (ValidationError, OSError) as error:
        raise MachineError(
            f"{path} is damaged ({str(error).splitlines()[0]}): delete it and lint again"
        ) from error


def save_panel(panel: TaskPanel, gpu_slug: str, directory: Path | None = None) -> Path:
    """Write ``panel`` into the file of its GPU, beside those of other tasks; returns the path."""
    directory = directory or users_directory()
    with cache.explain_disk_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{gpu_slug}.json"
        with (directory / f"{gpu_slug}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            known = _read(path, gpu_slug)
            merged = known.model_copy(update={"panels": {**known.panels, panel.task: panel}})
            text = json.dumps(merged.model_dump(mode="json"), indent=1, sort_keys=True)
            private = path.with_suffix(f".{os.getpid()}.part")
            private.write_text(text + "\n")
            private.replace(path)
    return path


def contenders(
    task: Task, workload: Workload, panel: TaskPanel | None, usable: Iterable[str]
) -> tuple[str, ...]:
    """Whom to play against, first choice first: the panel's correct experts among ``usable``, fastest
    first; then those that were never ranked on this workload, in the task's order (best guess first).
    What was measured and is not ranked (wrong, failed, declined) never plays."""
    here = set(usable)
    known = panel.standings if panel is not None else ()
    seen = {s.expert for s in known if s.workload == workload.name and s.outcome != "missing"}
    ranked = [s.expert for s in (panel.ranked(workload.name) if panel is not None else ())]
    unknown = [e.name for e in task.experts if e.name not in seen]
    return tuple(name for name in (*ranked, *unknown) if name in here)


def opponent(task: Task, workload: Workload, panel: TaskPanel | None, usable: Iterable[str]) -> str | None:
    """The first of :func:`contenders`; None if there is none."""
    return next(iter(contenders(task, workload, panel, usable)), None)


def usable_experts(task: Task, installed: Iterable[str]) -> tuple[str, ...]:
    """The experts whose packages are all among ``installed`` (distribution names) and that are meant
    for the task's target."""
    have = {normal(name) for name in installed}
    return tuple(
        e.name
        for e in task.experts
        if (not e.targets or task.target in e.targets) and all(normal(p) in have for p in e.packages)
    )


def normal(distribution: str) -> str:
    """A distribution's name as package indexes compare it."""
    return distribution.lower().replace("_", "-").replace(".", "-")


def installed_packages(experts: Iterable[Expert]) -> tuple[str, ...]:
    """Which of the packages that ``experts`` need are installed here. Nothing is imported."""
    from importlib.metadata import PackageNotFoundError, distribution

    found = []
    for package in {p for e in experts for p in e.packages}:
        try:
            distribution(package)
            found.append(package)
        except PackageNotFoundError:
            continue
    return tuple(sorted(found))
