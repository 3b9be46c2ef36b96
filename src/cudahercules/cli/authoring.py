"""``new``: the first step of somebody who adds a problem."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cudahercules.cli.common import emit, explained


@explained
def new(
    family: Annotated[str, typer.Argument(metavar="CLASS/NAME", help="E.g. kernel/saxpy.")],
    directory: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="A directory of families; else $HERCULES_TASKS, else the checkout."),
    ] = None,
) -> None:
    """Make a new family: a small complete problem that lints at once, to be changed into yours."""
    from cudahercules.cli.proving import program_name
    from cudahercules.scaffold import new_family
    from cudahercules.task.load import load_family, task_roots

    folder = new_family(family, directory)
    tasks = load_family(folder)
    root = folder.parent.parent
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        emit(f"  {_shown(path)}")
    name = tasks[0].family
    emit(f"\n{name}: {len(tasks)} tasks ({', '.join(t.member for t in tasks)}). Next:")
    steps = [
        ("lint " + name, "it proves itself: do this after every change"),
        ("show " + tasks[0].id, "what a model will be asked"),
        (f"grade {tasks[0].id} {_shown(folder / 'naive.cu')}", "one verdict"),
    ]
    if root.resolve() not in [r.resolve() for r in task_roots()]:
        emit(f"  export HERCULES_TASKS={root.resolve()}")
    for arguments, what in steps:
        emit(f"  {program_name()} {arguments}\n      {what}")
    emit("Edit task.yaml first, then family.py, prompt.md and naive.cu; docs/task-format.md explains them.")


def _shown(path: Path) -> str:
    """``path`` from here, if that is shorter."""
    here = Path.cwd()
    path = path.resolve()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


COMMANDS: dict[str, Any] = {"new": new}
