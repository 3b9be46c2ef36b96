"""``tasks`` and ``show``: what there is to solve."""

from __future__ import annotations

import json as json_module
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cudahercules.cli.common import emit, explained
from cudahercules.cli.grading import Json, TaskName

if TYPE_CHECKING:
    from cudahercules.task.model import Task


@explained
def tasks(
    class_: Annotated[
        str | None, typer.Option("--class", help="kernel, module, application or challenge.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="general, ampere, hopper, blackwell, ...")] = None,
    domain: Annotated[str | None, typer.Option(help="Part of a domain's name, e.g. algebra.")] = None,
    family: Annotated[str | None, typer.Option(help="Part of a family's name, e.g. gemm.")] = None,
    json: Json = False,
) -> None:
    """List the tasks."""
    from cudahercules.errors import UsageError
    from cudahercules.task.load import all_tasks
    from cudahercules.task.model import Target, TaskClass

    _known("--class", class_, [c.value for c in TaskClass])
    _known("--target", target, [t.value for t in Target])
    found = [
        t
        for t in all_tasks()
        if (class_ is None or t.task_class.value == class_)
        and (target is None or t.target.value == target)
        and (domain is None or domain.lower() in t.domain.lower())
        and (family is None or family.lower() in t.family)
    ]
    if json:
        emit(json_module.dumps([_summary(t) for t in found], indent=1))
        return
    if not found:
        raise UsageError("no task fits these filters; `hercules tasks` lists all")
    from cudahercules.report.terminal import console, is_wide, table

    out = console()
    if is_wide(out):
        rows = [[t.id, t.title, t.domain, str(len(t.workloads))] for t in found]
        columns: tuple[str, ...] = ("task", "title", "domain", "workloads")
    else:
        rows = [[t.id, t.title] for t in found]  # a long title takes a second line: its last words decide
        columns = ("task", "title")
    out.print(table(columns, rows, right=("workloads",), whole=("task",)))


def _known(option: str, value: str | None, choices: list[str]) -> None:
    from cudahercules.errors import UsageError

    if value is not None and value not in choices:
        raise UsageError(f"{option} {value}: choose one of {', '.join(choices)}")


def _summary(task: Task) -> dict[str, Any]:
    return {
        "id": task.id,
        "title": task.title,
        "class": task.task_class.value,
        "family": task.family,
        "member": task.member,
        "target": task.target.value,
        "domain": task.domain,
        "release": task.release,
        "workloads": {w.name: w.role.value for w in task.workloads},
        "experts": [e.name for e in task.experts],
    }


@explained
def show(
    task: TaskName,
    header: Annotated[bool, typer.Option("--header", help="Only solve.h.")] = False,
    json: Json = False,
) -> None:
    """Print the prompt exactly as a model reads it, solve.h included."""
    from cudahercules.task.header import solve_header
    from cudahercules.task.load import load_task
    from cudahercules.task.prompt import prompt

    found = load_task(task)
    if json:
        text = {**_summary(found), "prompt": prompt(found), "solve_h": solve_header(found)}
        emit(json_module.dumps(text, indent=1))
    else:
        emit((solve_header(found) if header else prompt(found)).rstrip("\n"))


COMMANDS: dict[str, Any] = {"tasks": tasks, "show": show}
