"""Find families, expand them into tasks, and look one up by its id.

A task's id is ``class/family/member@target``, e.g. ``kernel/gemm/fp32@general``. Families lie in the
package's ``tasks`` folder and in the directories that ``$HERCULES_TASKS`` lists (separated like
``$PATH``), each as ``class/family/task.yaml``. A family's Python files are run when it is graded:
list only directories that you trust.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib.util
import math
import os
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import ValidationError

from cudahercules.errors import TaskError, UsageError
from cudahercules.task import yaml_tree
from cudahercules.task.family_code import mistakes_named
from cudahercules.task.family_file import FamilyFile, inconsistencies
from cudahercules.task.folder import Folder
from cudahercules.task.identity import family_files, task_hash
from cudahercules.task.model import Role, Target, Task, TaskClass, Work, Workload
from cudahercules.task.releases import release_name
from cudahercules.task.yaml_tree import Node, Problem

BUNDLED = Path(__file__).parent.parent / "tasks"
_WHOLE_FILE = ("members", "targets", "released")  # fields that speak about all members


def task_roots() -> tuple[Path, ...]:
    """The package's ``tasks`` folder, then the directories in ``$HERCULES_TASKS``."""
    extra = [Path(p) for p in os.environ.get("HERCULES_TASKS", "").split(os.pathsep) if p]
    for path in extra:
        if not path.is_dir():
            raise UsageError(f"HERCULES_TASKS names {path}, which is not a directory")
    return (BUNDLED, *extra)


def all_tasks() -> tuple[Task, ...]:
    """Every task of every family, sorted by id. Raises TaskError for the first bad family."""
    tasks = [task for directory in _family_directories() for task in load_family(directory)]
    seen: dict[str, Task] = {}
    for task in tasks:
        if task.id in seen:
            places = f"in {seen[task.id].directory} and {task.directory}"
            raise TaskError(f"{task.id} exists twice: {places}. Rename one of the folders")
        seen[task.id] = task
    return tuple(sorted(tasks, key=lambda t: t.id))


def bundled_families(root: Path = BUNDLED) -> tuple[tuple[Task, ...], ...]:
    """The families of one ``tasks`` folder (the package's own, whatever else is on ``$HERCULES_TASKS``), by
    class and name, each as its tasks. Raises TaskError for the first bad one."""
    return tuple(load_family(directory) for directory in _families_in(root))


def load_task(task_id: str) -> Task:
    """The task with this id.

    The class, the member and the target may be left out where what remains names one member only
    (``layernorm_fwd/fp32_1024``, ``kernel/gemm/fp32``, ``gemm/fp32``); without a target it is that
    member for ``general``, where there is one. Raises UsageError with the nearest ids otherwise.
    """
    if (task := _by_full_id(task_id)) is not None:
        return task
    tasks = all_tasks()
    exact = [t for t in tasks if t.id == task_id]
    found = exact or [t for t in tasks if _is_short_for(task_id, t)]
    if len({(t.family, t.member) for t in found}) == 1:
        found = [t for t in found if t.target is Target.GENERAL] or found
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"{task_id!r} names {len(found)} tasks; say which: {_listed(t.id for t in found)}")
    raise UsageError(f"there is no task {task_id!r}. {_nearest(task_id, tasks)}{_elsewhere(task_id, tasks)}")


def load_tasks(name: str) -> tuple[Task, ...]:
    """All tasks of the family ``name`` (``kernel/gemm``, ``gemm``), or the one task of that id.

    A family is found by its folder: others, perhaps half-written, are not read. Raises UsageError."""
    task_class, _, family = name.rpartition("/")
    classes = [c.value for c in TaskClass if task_class in ("", c.value)]
    found = [
        r / c / family for r in task_roots() for c in classes if (r / c / family / "task.yaml").is_file()
    ]
    if len(found) == 1 and family:
        return load_family(found[0])
    return (load_task(name),)


def load_family(directory: Path) -> tuple[Task, ...]:
    """The tasks of one family folder: members times targets. Raises TaskError (file:line: field: what)."""
    path = directory / "task.yaml"
    tree = yaml_tree.read(path)
    try:
        task_class, folder = _task_class(directory), Folder(directory)
        tasks = tuple(
            task
            for member, parameters in _members(tree).items()
            for task in _expand(tree, folder, task_class, member, parameters)
        )
    except Problem as problem:
        raise problem.error(path) from None
    return _with_release(tasks, directory)


def _with_release(tasks: tuple[Task, ...], directory: Path) -> tuple[Task, ...]:
    """A family's tasks, each with the hash of its content and the release that this is."""
    proofs = {f for t in tasks for f in (*t.candidates, *(m.file for m in (*t.mutants, *t.hostile)))}
    files = family_files(directory, proofs, {e.name for t in tasks for e in t.experts})
    hashes = {t.id: task_hash(t, files) for t in tasks}
    return tuple(
        t.model_copy(update={"digest": hashes[t.id], "release": release_name(t.id, hashes[t.id])})
        for t in tasks
    )


@cache
def _module(path: Path) -> ModuleType:
    name = "cudahercules_family_" + hashlib.sha256(str(path).encode()).hexdigest()[:16]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise TaskError(f"{path}: there is no such file; every family needs one")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    with mistakes_named(path):
        spec.loader.exec_module(module)
    return module


def family_code(task: Task) -> Path:
    """Where the family's ``family.py`` lies."""
    return task.directory.resolve() / "family.py"


def family_module(task: Task) -> ModuleType:
    """The family's ``family.py``: ``reference(inputs, sizes, scalars, xp)`` and ``flops(sizes)``."""
    module = _module(family_code(task))
    for name in ("reference", "flops"):
        if not callable(getattr(module, name, None)):
            raise TaskError(f"{task.directory / 'family.py'}: defines no function {name}")
    return module


def experts_module(task: Task) -> ModuleType:
    """The family's ``experts.py``; importing it loads no framework."""
    return _module(task.directory.resolve() / "experts.py")


def work(task: Task, workload: Workload) -> Work:
    """Compulsory traffic (each operand once) and the flops of the textbook algorithm.

    A family that rules out faster algorithms sets ``FLOP_FLOOR = True`` in ``family.py``. Raises TaskError
    if its ``flops`` fails, or gives no finite number from 0 upwards.
    """
    module, path = family_module(task), family_code(task)
    with mistakes_named(path):
        flops = float(module.flops(task.sizes(workload)))
    if not 0 <= flops < math.inf:
        raise TaskError(
            f"{path}: flops() gives {flops} for {workload.name}, not a finite number from 0 upwards"
        )
    read = sum(task.nbytes(t, workload) for t in task.tensors if t.role is not Role.OUT)
    written = sum(task.nbytes(t, workload) for t in task.outputs)
    return Work(
        bytes_read=read,
        bytes_written=written,
        flops=flops,
        flop_floor=bool(getattr(module, "FLOP_FLOOR", False)),
    )


# --- expansion -----------------------------------------------------------------------------------


def _family_directories() -> Iterator[Path]:
    for root in task_roots():
        yield from _families_in(root)


def _families_in(root: Path) -> Iterator[Path]:
    for task_class in TaskClass:
        yield from sorted(p.parent for p in (root / task_class.value).glob("*/task.yaml"))


def _task_class(directory: Path) -> TaskClass:
    name = directory.resolve().parent.name
    try:
        return TaskClass(name)
    except ValueError:
        known = ", ".join(TaskClass)
        raise Problem(1, "", f"the family lies in {name!r}, but must lie in one of {known}") from None


def _members(tree: Node) -> dict[str, dict[str, int | str]]:
    """The members' parameters, checked before they are put into the rest of the file."""
    node = tree.value.get("members")
    if node is None or not isinstance(node.value, dict) or not node.value:
        raise Problem(tree.line_of(("members",)), "members", "must map each member to its parameters")
    for member, parameters in node.value.items():
        if not isinstance(parameters.value, dict):
            line = node.key_lines[member]
            raise Problem(line, f"members.{member}", "must be a mapping (it may be empty: {})")
        for name, value in parameters.value.items():
            if isinstance(value.value, bool) or not isinstance(value.value, int | str):
                line = parameters.key_lines[name]
                raise Problem(line, f"members.{member}.{name}", "must be an integer or a word")
    members: dict[str, dict[str, int | str]] = node.plain()
    names = [set(p) for p in members.values()]
    for member, given in zip(members, names, strict=True):
        if given != names[0]:
            line = node.key_lines[member]
            what = f"has other parameters than {next(iter(members))}: {sorted(given ^ names[0])}"
            raise Problem(line, f"members.{member}", what)
    return members


def _expand(
    tree: Node,
    folder: Folder,
    task_class: TaskClass,
    member: str,
    parameters: dict[str, int | str],
) -> Iterator[Task]:
    resolved = Node(
        {k: v if k in _WHOLE_FILE else yaml_tree.resolve(v, parameters, k) for k, v in tree.value.items()},
        tree.line,
        tree.key_lines,
    )
    try:
        family = FamilyFile.model_validate(resolved.plain())
    except ValidationError as error:
        raise _first_problem(resolved, error) from None
    directory = folder.directory
    constants = {k: v for k, v in parameters.items() if isinstance(v, int)}
    for location, what in inconsistencies(family, member, constants, folder):
        raise Problem(resolved.line_of(location), _dotted(location), what)
    name = f"{task_class.value}/{directory.name}"
    prompt_text = _prompt_text(directory, parameters)
    for target in family.targets:
        yield Task(
            id=f"{name}/{member}@{target.value}",
            family=name,
            member=member,
            task_class=task_class,
            target=target,
            title=family.title,
            domain=family.domain,
            directory=directory,
            prompt_text=prompt_text,
            constants=constants,
            dimensions=tuple(family.dimensions),
            meanings={**family.dimensions, **family.meanings},
            tensors=family.tensors,
            scalars=family.scalars,
            workloads=tuple(w.bare() for w in family.workloads if w.is_for(member)),
            tolerance=family.tolerance,
            experts=tuple(e for e in family.experts if not e.targets or target in e.targets),
            mutants=family.mutants,
            hostile=family.hostile,
            equivalent=family.equivalent,
            candidates=tuple(c.file for c in family.candidates if c.is_for(member, target)),
            beyond_emulator=tuple(c.file for c in family.candidates if c.beyond_emulator),
            library_policy=family.library_policy,
            lower_precision=family.lower_precision,
            provenance=family.provenance,
            opponent_note=family.opponent_note,
            released={n: a for n, a in family.released.items() if f"{member}@{target.value}" in a.tasks},
            release="",
        )


def _prompt_text(directory: Path, parameters: dict[str, int | str]) -> str:
    path = directory / "prompt.md"
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise TaskError(f"{path}: there is no such file; every family needs one") from None
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"{path}: cannot be read as UTF-8 text ({error})") from None
    for name, value in parameters.items():
        text = text.replace("{" + name + "}", str(value))
    return text


def _first_problem(tree: Node, error: ValidationError) -> Problem:
    first: Any = error.errors(include_url=False, include_context=False)[0]
    location = first["loc"]
    what = {
        "missing": "is missing",
        "extra_forbidden": "is not a known field",
    }.get(first["type"], first["msg"].removeprefix("Value error, "))
    if first["type"] not in ("missing", "extra_forbidden", "value_error"):
        what += f" (got {str(first['input'])[:80]!r})"
    return Problem(tree.line_of(location), _dotted(location), what)


def _dotted(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in location)


# --- look-up -------------------------------------------------------------------------------------


def _by_full_id(task_id: str) -> Task | None:
    """The task with a full id, reading its own family only: quick, and no other family can be in the
    way. None if the id is not a full one, is unknown, or lies in more than one place."""
    match = re.fullmatch(r"([a-z]+)/([A-Za-z0-9_]+)/[A-Za-z0-9_]+@[a-z0-9-]+", task_id)
    if match is None or match[1] not in list(TaskClass):
        return None
    found = [root / match[1] / match[2] for root in task_roots()]
    found = [directory for directory in found if (directory / "task.yaml").is_file()]
    if len(found) != 1:
        return None
    return next((t for t in load_family(found[0]) if t.id == task_id), None)


def _is_short_for(query: str, task: Task) -> bool:
    path, _, target = query.partition("@")
    if target and target != task.target.value:
        return False
    full = [*task.family.split("/"), task.member]
    parts = path.split("/")
    return parts in (full[: len(parts)], full[1 : 1 + len(parts)])


def _nearest(query: str, tasks: tuple[Task, ...]) -> str:
    if not tasks:
        return "No families are installed."
    names = {t.id for t in tasks}
    # Short forms are candidates too, so that `gem` finds `kernel/gemm/fp32@general`.
    # Of a member's targets, `general` is what a short form means.
    preferred = sorted(tasks, key=lambda t: t.target is not Target.GENERAL)
    forms: dict[str, str] = {}
    for task in preferred:
        for form in _forms(task):
            forms.setdefault(form, task.id)
    close = difflib.get_close_matches(query, forms, n=12, cutoff=0.5)
    nearest = list(dict.fromkeys(forms[c] for c in close))[:3]
    if nearest:
        return f"Did you mean {_listed(nearest)}?"
    return f"`hercules tasks` lists the {len(names)} that exist, for example {min(names)}."


def _elsewhere(query: str, tasks: tuple[Task, ...]) -> str:
    """A word to the author of a family who has not said where it lies."""
    known = {t.family.split("/")[1] for t in tasks}
    if os.environ.get("HERCULES_TASKS") or known & set(query.partition("@")[0].split("/")):
        return ""
    return " A family of your own is found once HERCULES_TASKS names its directory."


def _forms(task: Task) -> Iterator[str]:
    family = task.family.split("/")[1]
    yield task.id
    yield f"{task.family}/{task.member}"
    yield f"{family}/{task.member}"
    yield f"{family}/{task.member}@{task.target.value}"
    yield family


def _listed(names: Iterator[str] | list[str], limit: int = 8) -> str:
    found = list(names)
    more = f" and {len(found) - limit} more" if len(found) > limit else ""
    return ", ".join(found[:limit]) + more
