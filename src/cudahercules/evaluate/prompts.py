"""What a model is asked: a task's own text, the GPU it is for, and how an answer has to look.

Three levels say how much the model is told. Interface, contract and compiler are in all of them, for
without them no answer could be right:

    full        what to compute, values, accuracy, timed sizes, the GPU's figures
    algorithm   what to compute
    name        the title of the task alone
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from cudahercules.errors import UsageError
from cudahercules.evaluate.extraction import SINGLE
from cudahercules.measure.ceilings import Figure, arithmetic, load_ceilings
from cudahercules.measure.profiles import load_profile
from cudahercules.task.load import all_tasks
from cudahercules.task.model import Task
from cudahercules.task.prompt import sections

STRATEGY = "strategy.md"
"""A family's file with its experts' strategy in words."""

ANSWER_FORMAT = f"""\
Put the whole program into one fenced block that begins with ```cuda (it becomes `{SINGLE}`). If you need
several files, give each a block of its own that names it, ```cuda file=main.cu, and mark all of them so.
Only finished fenced blocks are read; of several programs in one answer the last one counts."""
TOOLS_FORMAT = f"""\
Work with the tools: write your files (at least one .cu file, such as `{SINGLE}`), build and check them, make
them fast, and call `submit` when you are done. What you submit is graded; if you submit nothing, the best
version that was checked is."""


class Level(StrEnum):
    FULL = "full"
    ALGORITHM = "algorithm"
    NAME = "name"


_SECTIONS = {
    Level.FULL: (
        "statement",
        "interface",
        "contract",
        "values",
        "environment",
        "hardware",
        "workloads",
        "accuracy",
    ),
    Level.ALGORITHM: ("statement", "interface", "contract", "environment"),
    Level.NAME: ("title", "interface", "contract", "environment"),
}


def level_of(word: str) -> Level:
    """The level with this name. Raises UsageError."""
    try:
        return Level(word)
    except ValueError:
        raise UsageError(f"prompt level {word!r}: choose one of {', '.join(Level)}") from None


def task_prompt(
    task: Task,
    architecture: str,
    *,
    level: Level = Level.FULL,
    strategy: bool = False,
    exemplars: int = 0,
    answer_format: str = ANSWER_FORMAT,
) -> str:
    """The first message that a model gets for ``task``, in Markdown.

    ``architecture`` is what the judge builds for (``90a``); ``exemplars`` counts solved tasks of other
    families that come before. Raises UsageError where the family has no strategy to add.
    """
    parts = sections(task)
    parts["title"] = f"# {task.title}"
    parts["hardware"] = hardware(task, architecture)
    texts = [parts[name] for name in _SECTIONS[level]]
    if strategy:
        texts.append(f"## How experts go about it\n\n{strategy_of(task)}")
    texts.append(f"{parts['answer']}\n\n{answer_format}")
    if exemplars:
        examples = "\n\n".join(_exemplar(example) for example in exemplars_for(task, exemplars))
        texts.insert(
            0, f"Before your task, examples of other tasks with a plain solution each.\n\n{examples}"
        )
    return "\n\n".join(texts) + "\n"


def strategy_of(task: Task) -> str:
    """The family's ``strategy.md``. Raises UsageError where there is none."""
    path = task.directory / STRATEGY
    if not path.is_file():
        raise UsageError(f"{task.family} has no {STRATEGY}: write one, or leave the strategy out")
    return path.read_text(encoding="utf-8").strip()


def hardware(task: Task, architecture: str) -> str:
    """What the GPU has: the figures of its profile, and its ceilings in the task's precision."""
    lines = "\n".join(f"* {line}" for line in _hardware_lines(task, architecture))
    return f"## The GPU\n\n{lines}"


# cudaDeviceAttr
_CLOCK_KHZ, _SMS, _L2, _THREADS_PER_SM, _REGISTERS_PER_SM, _SHARED_PER_SM, _SHARED_PER_BLOCK = (
    13,
    16,
    38,
    39,
    82,
    81,
    97,
)


def _hardware_lines(task: Task, architecture: str) -> Iterator[str]:
    profile = load_profile(architecture)
    a = profile.attributes
    yield f"{profile.name}, sm_{architecture}: {a[_SMS]} SMs, boost clock {a[_CLOCK_KHZ] / 1e6:.2f} GHz"
    yield (
        f"an SM has {a[_REGISTERS_PER_SM]} registers, {a[_THREADS_PER_SM]} threads, and {a[_SHARED_PER_SM]} "
        f"bytes of shared memory, of which a block can have {a[_SHARED_PER_BLOCK]}"
    )
    yield f"L2 cache {a[_L2] / 2**20:.0f} MiB, device memory {profile.total_memory / 2**30:.0f} GiB"
    ceilings = load_ceilings(profile.name)
    if ceilings is None:
        return
    yield f"memory bandwidth {_tera(ceilings.bandwidth_datasheet, ceilings.bandwidth_measured, 'TB/s')}"
    dtype = arithmetic(task)
    if dtype in ceilings.flops_datasheet:
        rate = _tera(ceilings.flops_datasheet[dtype], ceilings.flops_measured.get(dtype), "TFLOP/s")
        yield f"dense {dtype.value} arithmetic {rate}"


def _tera(datasheet: Figure, measured: Figure | None, unit: str) -> str:
    text = f"{datasheet.value / 1e12:.3g} {unit} by the datasheet"
    return text + (f", {measured.value / 1e12:.3g} measured" if measured else "")


# --- exemplars -----------------------------------------------------------------------------------


def exemplars_for(task: Task, count: int) -> tuple[Task, ...]:
    """The first tasks, by id, of families other than ``task``'s, one a family.

    Raises UsageError if there are not as many."""
    others: dict[str, Task] = {}
    for other in all_tasks():
        if other.family != task.family and other.target == task.target and other.candidates:
            others.setdefault(other.family, other)
    for other in all_tasks():
        if other.family != task.family and other.candidates:
            others.setdefault(other.family, other)
    if count > len(others):
        raise UsageError(f"{count} exemplars: there are {len(others)} other families")
    return tuple(others.values())[:count]


def _exemplar(task: Task) -> str:
    parts = sections(task)
    source = (task.directory / task.candidates[0]).read_text(encoding="utf-8").strip()
    return f"{parts['statement']}\n\n{parts['interface']}\n\n```cuda\n{source}\n```"
