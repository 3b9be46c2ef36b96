"""Which tasks a model is asked, and each as an Inspect sample."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from inspect_ai.dataset import MemoryDataset, Sample

from cudahercules.errors import UsageError
from cudahercules.judge.bundled import REPRESENTATIVE
from cudahercules.task.load import all_tasks, load_tasks
from cudahercules.task.model import Target, Task

FAMILIES, DEMO, ALL = "families", "demo", "all"


def select(names: str | Sequence[str] = FAMILIES, target: str | None = None) -> tuple[Task, ...]:
    """The tasks that ``names`` mean, in the order given, each once.

    ``families`` (the first member of every family, for its first target), ``demo`` (the same for the families
    that ``hercules demo`` shows), ``all``, or names of families and tasks as ``hercules tasks`` lists them,
    as a list or separated by commas. ``target`` keeps the tasks for that target. Raises UsageError for
    unknown names and where nothing is left.
    """
    words = [w.strip() for w in names.split(",")] if isinstance(names, str) else list(names)
    if target is not None and target not in list(Target):
        raise UsageError(f"target {target!r}: choose one of {', '.join(Target)}")
    found = {t.id: t for word in words if word for t in _tasks_of(word, target)}
    if not found:
        raise UsageError(f"no task is left of {', '.join(words)!r}" + (f" for {target}" if target else ""))
    return tuple(found.values())


def _tasks_of(word: str, target: str | None) -> Iterator[Task]:
    if word in (FAMILIES, DEMO):
        every = REPRESENTATIVE if word == DEMO else dict.fromkeys(t.family for t in all_tasks())
        for family in every:
            yield from [t for t in load_tasks(family) if target in (None, t.target)][:1]
        return
    tasks = all_tasks() if word == ALL else load_tasks(word)
    yield from (t for t in tasks if target in (None, t.target))


def dataset(tasks: Sequence[Task], prompt: Callable[[Task], str]) -> MemoryDataset:
    """One sample a task, with ``prompt(task)`` as its input and the task's id as its own."""
    return MemoryDataset(
        [
            Sample(
                id=task.id,
                input=prompt(task),
                metadata={
                    "family": task.family,
                    "class": task.task_class.value,
                    "target": task.target.value,
                    "domain": task.domain,
                    "release": task.release,
                },
            )
            for task in tasks
        ],
        name="cudahercules",
    )
