"""``doctor``, ``schema`` and ``version``: about this machine and this program."""

from __future__ import annotations

import json as json_module
from typing import Any

import typer

from cudahercules.cli.common import emit, explained, progress
from cudahercules.cli.grading import Json


@explained
def doctor(json: Json = False) -> None:
    """Say what this machine can do, and for each thing missing the command that brings it."""
    from cudahercules.doctor import diagnose

    with progress() as notify:
        notify("looking at this machine")
        diagnosis = diagnose()
    if json:
        emit(diagnosis.model_dump_json(indent=1))
    else:
        _print_diagnosis(diagnosis)
    raise typer.Exit(0 if diagnosis.ok else 3)


def _print_diagnosis(diagnosis: Any) -> None:
    from rich.text import Text

    from cudahercules.report.terminal import BAD, GOOD, NEITHER, console, is_wide, say, table

    colours, out = {"ok": GOOD, "missing": NEITHER, "broken": f"bold {BAD}"}, console()
    if is_wide(out):
        rows = [
            [c.name, Text(c.state, style=colours.get(c.state, "")), c.needed_for, c.detail, c.remedy]
            for c in diagnosis.checks
        ]
        out.print(table(("what", "state", "needed for", "found", "to get it"), rows))
        return
    for c in diagnosis.checks:
        line = Text(f"{c.state:<8}", style=colours.get(c.state, ""))
        out.print(line.append(f"{c.name}: {c.detail}" if c.detail else c.name, style="default"))
        if c.state != "ok":
            say(out, f"for {c.needed_for}: {c.remedy}", indent=8)


@explained
def schema() -> None:
    """Print the JSON schema of verdicts."""
    from cudahercules.judge.verdict import VERDICT

    emit(json_module.dumps(VERDICT.json_schema(), indent=1))


@explained
def version() -> None:
    """Print the version."""
    from cudahercules import __version__

    emit(f"cudahercules {__version__}")


COMMANDS: dict[str, Any] = {"doctor": doctor, "schema": schema, "version": version}
