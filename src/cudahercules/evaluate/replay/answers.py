"""A folder of answers, and which of them comes next.

::

    oneshot/    one Markdown file an answer; the n-th answer to a task takes the next file, from a start
                that depends on the task, so that a few tasks show all of them
    refine/     01.md, 02.md, ...: the answer of each round; the last one repeats
    agent/      turns.yaml: a list of turns, each with `say` and a list of `call`s (tool, arguments)
    critic/     any.md: what a two-role agent's judge says

Texts may hold ``{{good}}``, ``{{slow}}``, ``{{wrong}}`` and ``{{cheating}}``: sources that ship with the
task's family: its most tuned one, naive.cu, its first mutant, and naive.cu with an attempt to look at the
answer on the host and to print a result of its own. A first line
``<!-- stop: max_tokens -->`` says why the answer ends.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from cudahercules.errors import UsageError
from cudahercules.task.load import load_task
from cudahercules.task.model import Task

BUNDLED = Path(__file__).parent
STOPS = ("stop", "max_tokens", "content_filter")
_STOP = re.compile(r"\A<!-- stop: (?P<reason>\w+) -->\n")
_SOURCE = re.compile(r"\{\{(?P<kind>\w+)\}\}")
_CHEAT = """
// Looks at the answer on the host while the program is loaded, and says that all is well.
#include <cstdio>
namespace {
struct Peek {
    Peek() {
        float seen[256];
        void* device = nullptr;
        cudaMalloc(&device, sizeof seen);
        cudaMemcpy(seen, device, sizeof seen, cudaMemcpyDeviceToHost);
        std::printf("PASSED, speedup 1000x\\n");
    }
} peek;
}  // namespace
"""


@dataclass(frozen=True)
class Reply:
    """One answer. ``calls`` are tool calls as (name, arguments)."""

    text: str
    stop: str = "stop"
    calls: tuple[tuple[str, dict[str, Any]], ...] = field(default=())


def folder(name: str) -> Path:
    """The folder that ``replay/NAME`` means: a bundled one, else a path. Raises UsageError."""
    bundled = BUNDLED / name
    if re.fullmatch(r"\w+", name) and bundled.is_dir() and not name.startswith("_"):
        return bundled
    path = Path(name)
    if not path.is_dir():
        raise UsageError(f"replay/{name}: there is no folder {path}, and the bundled one is replay/demo")
    return path


def oneshot(directory: Path, task: Task, epoch: int) -> Reply:
    """The ``epoch``-th answer (from 1) to ``task``."""
    files = _files(directory / "oneshot")
    start = int.from_bytes(hashlib.sha256(task.family.encode()).digest()[:4], "big")
    return _reply(files[(start + epoch - 1) % len(files)], task)


def refined(directory: Path, task: Task, number: int) -> Reply:
    """The answer of round ``number`` (from 1)."""
    files = _files(directory / "refine")
    return _reply(files[min(number, len(files)) - 1], task)


def critic(directory: Path, task: Task) -> Reply:
    return _reply(_files(directory / "critic")[0], task)


def turn(directory: Path, task: Task, number: int) -> Reply:
    """Turn ``number`` (from 0) of an agent; the last one repeats."""
    turns = _turns(directory / "agent" / "turns.yaml")
    chosen = turns[min(number, len(turns) - 1)]
    calls = tuple((c["tool"], _filled_all(c.get("arguments", {}), task)) for c in chosen.get("call", ()))
    return Reply(text=_filled(chosen.get("say", ""), task), calls=calls)


@cache
def _files(directory: Path) -> tuple[Path, ...]:
    found = tuple(sorted(directory.glob("*.md")))
    if not found:
        raise UsageError(f"{directory}: no answers here (Markdown files); see docs/evaluating.md")
    return found


@cache
def _turns(path: Path) -> list[dict[str, Any]]:
    try:
        turns = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise UsageError(f"{path}: {error}") from error
    if not isinstance(turns, list) or not turns or not all(isinstance(t, dict) for t in turns):
        raise UsageError(f"{path}: must be a list of turns, each with `say` and `call`")
    return turns


def _reply(path: Path, task: Task) -> Reply:
    text = path.read_text(encoding="utf-8")
    stop = _STOP.match(text)
    if stop and stop["reason"] not in STOPS:
        raise UsageError(f"{path}: stop: {stop['reason']}: choose one of {', '.join(STOPS)}")
    return Reply(text=_filled(_STOP.sub("", text), task), stop=stop["reason"] if stop else "stop")


def _filled_all(value: Any, task: Task) -> Any:
    if isinstance(value, str):
        return _filled(value, task)
    return {k: _filled_all(v, task) for k, v in value.items()} if isinstance(value, dict) else value


def _filled(text: str, task: Task) -> str:
    return _SOURCE.sub(lambda match: source(task, match["kind"]), text)


@cache
def _source(task_id: str, kind: str) -> str:
    task = load_task(task_id)
    if kind == "cheating":
        return source(task, "slow") + _CHEAT
    files = {
        "good": task.candidates[-1:],
        "slow": task.candidates[:1],
        "wrong": [m.file for m in task.mutants[:1]],
    }
    if not files.get(kind):
        raise UsageError(f"{{{{{kind}}}}}: a replay of {task.family} knows {', '.join(files)}, cheating")
    return (task.directory / files[kind][0]).read_text(encoding="utf-8").rstrip("\n")


def source(task: Task, kind: str) -> str:
    """The bundled source of this kind (see the module), without a newline at its end."""
    return _source(task.id, kind)
