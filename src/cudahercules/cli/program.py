"""All commands of the ``hercules`` program. Nothing heavy is imported before one of them runs."""

from __future__ import annotations

from typing import Annotated

import typer

from cudahercules.cli import (
    attacking,
    authoring,
    browse,
    covering,
    debugging,
    emulating,
    evaluating,
    grading,
    iterating,
    linting,
    machine,
    opponents,
    proving,
    releasing,
)

app = typer.Typer(
    name="hercules",
    help="How close is this CUDA code to what the best human experts ship for the same work?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 correct, 1 not correct, 2 wrong use, 3 machine or infrastructure.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        machine.version()
        raise typer.Exit()


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and end."),
    ] = False,
) -> None:
    pass


for group in (
    grading,
    debugging,
    iterating,
    evaluating,
    browse,
    covering,
    authoring,
    linting,
    proving,
    attacking,
    machine,
    opponents,
):
    for name, command in group.COMMANDS.items():
        app.command(name)(command)
app.add_typer(releasing.release)
app.add_typer(emulating.emulator)
