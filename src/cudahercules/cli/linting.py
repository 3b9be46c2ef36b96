"""``lint``: tasks prove themselves on this machine, one or all of them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cudahercules.cli.common import Bar, emit, explained
from cudahercules.cli.grading import Device, Json

if TYPE_CHECKING:
    from rich.text import Text

    from cudahercules.judge.lint import LintReport
    from cudahercules.task.model import Task

Families = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TASK|FAMILY...]", help="Tasks, or families with all their tasks; default: all."),
]
WORKERS = 2
"""Candidates graded at a time on the CPU: one compiles while the other is emulated."""
WHOLE = 4
"""Of so many tasks the whole table is shown; of more only where something failed."""
LEFT = 10
"""Exit code: nothing failed, but the budget ended before all tasks were done."""


@explained
def lint(
    names: Families = None,
    device: Device = "auto",
    json: Json = False,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Keep a JSON line a task here; what is there is not done again."),
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Do what is in the --resume file again.")] = False,
    shard: Annotated[
        str | None, typer.Option(metavar="K/N", help="Only this part of the tasks, split by name.")
    ] = None,
    members: Annotated[
        str, typer.Option(metavar="all|first", help="first: one task a family, its simplest member.")
    ] = "all",
    mechanical: Annotated[
        bool, typer.Option("--mechanical", help="Also make mistakes by machine in honest solutions.")
    ] = False,
    budget: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", min=1, help="Stop between tasks after this; exit code 10 if one is left."
        ),
    ] = None,
    answers: Annotated[
        bool,
        typer.Option(
            help="Check answers made wrong by machine too. On a GPU they may be left to another's CPU."
        ),
    ] = True,
    candidates: Annotated[
        bool, typer.Option(help="Grade candidates too. On a GPU they may be left to another's CPU.")
    ] = True,
) -> None:
    """Let tasks prove themselves: honest candidates pass, mutants and corrupted answers fail."""
    from cudahercules.judge.grade import choose_device
    from cudahercules.judge.lint import lint_on_card
    from cudahercules.judge.lint_log import append, finished

    deadline = time.monotonic() + budget if budget else float("inf")
    tasks = _chosen(names, members, shard)
    kind = choose_device(device)
    if not (answers and candidates) and kind == "cpu":
        raise _usage("--no-answers and --no-candidates are for a GPU: a CPU checks these")
    if mechanical and kind == "gpu":
        raise _usage("mistakes made by machine are tried on the CPU judge: add --device cpu")
    done = finished(resume, tasks, kind, mechanical) if resume is not None else {}
    todo = [t for t in tasks if again or t.id not in done]
    failed = False
    for report in (done[t.id] for t in tasks if t not in todo):
        failed |= not report.ok
        _show(report, json, brief=True)
    left = [t.id for t in todo]
    with Bar(len(tasks), len(tasks) - len(todo)) as bar:
        if kind == "gpu":
            found = lint_on_card(
                todo, answers=answers, candidates=candidates, deadline=deadline, notify=bar.say
            )
        else:
            found = _one_by_one(todo, mechanical, deadline, bar.say)
        for report in found:
            if resume is not None:
                append(resume, report)
            left.remove(report.task)
            failed |= not report.ok
            with bar.aside():
                _show(report, json, brief=len(tasks) > WHOLE and report.ok)
    if left:
        also = f", and {len(left) - 1} more" if len(left) > 1 else ""
        print(f"hercules: out of time: {left[0]}{also} left of {len(tasks)} tasks", file=sys.stderr)
    raise typer.Exit(1 if failed else LEFT if left else 0)


def _usage(text: str) -> Exception:
    from cudahercules.errors import UsageError

    return UsageError(text)


def _chosen(names: Sequence[str] | None, members: str, which: str | None) -> tuple[Task, ...]:
    """The tasks that the options name."""
    from cudahercules.judge.lint_log import first_members, shard
    from cudahercules.task.load import all_tasks, load_tasks

    if members not in ("all", "first"):
        raise _usage(f"--members {members}: give all or first")
    tasks = tuple({t.id: t for name in names for t in load_tasks(name)}.values()) if names else all_tasks()
    tasks = first_members(tasks) if members == "first" else tasks
    return shard(tasks, which) if which is not None else tasks


def _one_by_one(
    tasks: Sequence[Task], mechanical: bool, deadline: float, say: Callable[[str], None]
) -> Iterator[LintReport]:
    """The tasks on the CPU judge, until ``deadline``."""
    from cudahercules.judge.lint import lint

    for task in tasks:
        if time.monotonic() > deadline:
            return
        say(task.id)
        yield lint(task, "cpu", workers=WORKERS, mechanical=mechanical, notify=_about(task.id, say))


def _about(subject: str, say: Callable[[str], None]) -> Callable[[str], None]:
    return lambda stage: say(f"{subject}: {stage}")


def _show(report: LintReport, json: bool, brief: bool) -> None:
    from cudahercules.report.terminal import clean, console, is_wide, table

    if json:
        emit(report.model_dump_json())
        return
    out = console()
    failed = sum(r.outcome == "failed" for r in report.rows)
    not_run = sum(r.outcome == "not_run" for r in report.rows)
    sums = f"{len(report.rows) - failed - not_run} ok, {failed} failed, {not_run} not run"
    if brief:
        out.print(f"{report.task} on the {report.device} judge: {sums}")
        return
    rows: list[list[Any]] = []
    for r in report.rows:
        got, seconds = _mark(r.got or "not run", r.outcome), f"{r.seconds:.1f}" if r.seconds else ""
        row = [r.subject, r.sort, r.expected, got, clean(r.detail), seconds]
        rows.append(row if is_wide(out) else [r.subject, got, clean(r.detail)])
    out.print(f"{report.task} on the {report.device} judge")
    columns = ("subject", "sort", "expected", "got", "detail", "s")
    out.print(table(columns if is_wide(out) else ("subject", "got", "detail"), rows, right=("s",)))
    out.print(f"{sums}; seed {report.seed}\n" if report.seed else f"{sums}\n")


def _mark(text: str, outcome: str) -> Text:
    from rich.text import Text

    shown = f"{text} FAILED" if outcome == "failed" else text
    return Text(shown, style={"ok": "green", "failed": "bold red", "not_run": "dim"}[outcome])


COMMANDS: dict[str, Any] = {"lint": lint}
