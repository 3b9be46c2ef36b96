"""``new`` and ``site``: adding a problem, and the documentation that goes with it."""

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


@explained
def site(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A new directory, or an earlier site.")],
    docs: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The Markdown pages; a checkout's docs/ by default.")
    ] = None,
) -> None:
    """Write the documentation as static pages, with a page for each task family."""
    from cudahercules.cli.common import progress
    from cudahercules.errors import UsageError
    from cudahercules.scaffold import in_checkout
    from cudahercules.site import build_site
    from cudahercules.task.load import BUNDLED

    if docs is None and not in_checkout():
        raise UsageError("this is no checkout: name the directory of Markdown pages with --docs DIR")
    with progress() as notify:
        count = build_site(out, docs or BUNDLED.parents[2] / "docs", notify)
    emit(f"{count} pages: open {_shown(out / 'index.html')}")


COMMANDS: dict[str, Any] = {"new": new, "site": site}
