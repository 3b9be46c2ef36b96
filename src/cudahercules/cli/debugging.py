"""``debug``: what is wrong with a candidate, looked for in a checked run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cudahercules.cli.common import emit, explained, progress
from cudahercules.cli.grading import Asynchrony, Json, TaskName


@explained
def debug(
    task: TaskName,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The candidate.")],
    workload: Annotated[
        str | None, typer.Option(help="A workload's name; the first smoke one by default.")
    ] = None,
    asynchrony: Asynchrony = None,
    seed: Annotated[str | None, typer.Option(help="Use the inputs of a verdict with this seed.")] = None,
    limit: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.1, max=86400, help="Wall time that the run may take.")
    ] = 60.0,
    json: Json = False,
) -> None:
    """Look for races, missing waits, undefined reads and other faults in a checked run."""
    from cudahercules.emulator.asynchrony import LATE
    from cudahercules.judge.debug import debug as examine

    with progress() as notify:
        report = examine(
            task,
            file,
            workload,
            asynchrony=asynchrony or LATE,
            seed=seed,
            limit_s=limit,
            notify=notify,
        )
    if json:
        emit(report.model_dump_json())
    else:
        from cudahercules.report.findings import print_report
        from cudahercules.report.text import console

        print_report(report, console())
    raise typer.Exit(0 if report.is_clean else 1)


COMMANDS: dict[str, Any] = {"debug": debug}
