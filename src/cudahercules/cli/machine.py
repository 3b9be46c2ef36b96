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

    from cudahercules.report.text import console, table

    colours = {"ok": "green", "missing": "yellow", "broken": "bold red"}
    rows = [
        [c.name, Text(c.state, style=colours.get(c.state, "")), c.needed_for, c.detail, c.remedy]
        for c in diagnosis.checks
    ]
    console().print(table(("what", "state", "needed for", "found", "to get it"), rows))


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
