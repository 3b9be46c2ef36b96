"""``compare`` and ``watch``: for people who improve a kernel step by step."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from cudahercules.cli.common import emit, explained, progress
from cudahercules.cli.grading import Device, Json, TaskName

Limit = Annotated[
    float, typer.Option(metavar="SECONDS", min=0.1, max=86400, help="Wall time that one workload may run.")
]


@explained
def compare(
    first: Annotated[Path, typer.Argument(metavar="A", help="A candidate: a .cu file or a directory.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="The other one.")],
    task: Annotated[str, typer.Option("--task", "-t", metavar="TASK", help="The task that both solve.")],
    device: Device = "auto",
    json: Json = False,
    seed: Annotated[str | None, typer.Option(help="Repeat the inputs of an earlier comparison.")] = None,
    smoke: Annotated[bool, typer.Option("--smoke", help="Only the tiny workloads: a quick look.")] = False,
    limit: Limit = 60.0,
) -> None:
    """Hold two candidates against each other: paired times on a GPU, instruction counts without one."""
    from cudahercules.judge.compare import compare as compare_candidates
    from cudahercules.task.load import load_task

    with progress() as notify:
        comparison = compare_candidates(
            load_task(task), first, second, device, seed=seed, smoke=smoke, limit_s=limit, notify=notify
        )
    if json:
        emit(comparison.model_dump_json())
    else:
        from cudahercules.report.comparison import print_comparison
        from cudahercules.report.terminal import console

        print_comparison(comparison, console())
    raise typer.Exit(comparison.exit_code)


@explained
def watch(
    task: TaskName,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The candidate; it may not exist yet.")],
    device: Device = "auto",
    json: Json = False,
    smoke: Annotated[bool, typer.Option("--smoke", help="Only the tiny workloads: a quick look.")] = False,
    limit: Limit = 60.0,
    poll: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.05, max=60, help="How often the file is looked at.")
    ] = 0.3,
) -> None:
    """Grade a candidate again whenever it is saved, one line each; Ctrl-C ends it."""
    from cudahercules.cli.watching import Saves, Session
    from cudahercules.errors import UsageError
    from cudahercules.judge.grade import choose_device, grade
    from cudahercules.report.terminal import clean, console
    from cudahercules.task.load import load_task
    from cudahercules.task.model import WorkloadRole

    chosen, kind = load_task(task), choose_device(device)
    if not file.absolute().parent.is_dir():
        raise UsageError(f"{file}: there is no directory {file.parent} in which it could be saved")
    roles = (WorkloadRole.SMOKE,) if smoke else None
    session = Session(width=console().width) if sys.stdout.isatty() else Session()
    if not json:
        emit(f"watching {clean(str(file))} for {chosen.id} on the {kind} judge; Ctrl-C ends")
        if not file.exists():
            emit("it is not there yet: graded as soon as it is saved")
    try:
        for _ in Saves(file, poll):
            try:
                with progress() as notify:
                    verdict = grade(chosen, file, kind, roles=roles, limit_s=limit, notify=notify)
            except UsageError as error:  # an empty or unreadable file: the next save may mend it
                if not json:
                    emit(session.refused(clean(str(error))))
                continue
            emit(verdict.model_dump_json() if json else session.line(verdict))
    except KeyboardInterrupt:
        if not json:
            emit(session.summary())


COMMANDS: dict[str, Any] = {"compare": compare, "watch": watch}
