"""``coverage``: which of the release's tasks the suite answers for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cudahercules.cli.common import emit, explained, fail
from cudahercules.cli.grading import Json

if TYPE_CHECKING:
    from rich.text import Text

    from cudahercules.suite.coverage import Coverage, Covered

_SLICE = "class1/general, class1/hopper, ... class3, class4"


@explained
def coverage(
    parts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SLICE...]", help=f"Only these slices: {_SLICE}. Default: all."),
    ] = None,
    require: Annotated[
        list[str] | None,
        typer.Option(metavar="SLICE", help="Exit code 1 if a task of this slice has no answer (repeat it)."),
    ] = None,
    tasks_md: Annotated[
        Path | None, typer.Option("--tasks-md", metavar="FILE", help="Write the overview of the suite there.")
    ] = None,
    json: Json = False,
) -> None:
    """Say which of the release's 195 tasks (arXiv 2605.08467) have an answer here, and what was repaired."""
    from cudahercules.suite.coverage import coverage as look
    from cudahercules.task.released import slices

    for name in (*(parts or ()), *(require or ())):
        if name not in slices():
            fail(f"there is no slice {name!r}; the release has {', '.join(slices())}", 2)
    found = look()
    if tasks_md is not None:
        _write(tasks_md, found)
    elif json:
        emit(found.model_dump_json(indent=1))
    else:
        _print(found, tuple(dict.fromkeys(parts or slices())))
    missing = found.missing(*require) if require else ()
    if missing:
        names = "\n  ".join(r.name for r in missing)
        fail(f"{len(missing)} of the required tasks have no answer:\n  {names}", 1)


def _write(file: Path, found: Coverage) -> None:
    from cudahercules.suite.overview import overview

    if not file.resolve().parent.is_dir():
        fail(f"{file}: its directory does not exist", 2)
    text = overview(found)
    file.write_text(text, encoding="utf-8")
    emit(f"{file}: {len(text.splitlines())} lines")


def _print(found: Coverage, parts: tuple[str, ...]) -> None:
    from rich.text import Text

    from cudahercules.report.terminal import BAD, GOOD, console, is_wide, say, table
    from cudahercules.task.released import slices

    out = console()
    for part in parts:
        out.print(Text(part, style="bold"))
        if is_wide(out):
            rows: list[list[str | Text]] = [[*_cells(row), row.repaired] for row in found.of(part)]
            out.print(table(("released task", "here", "repaired"), rows))
            continue
        for row in found.of(part):
            name, ours = _cells(row)
            out.print(f"  {name}", soft_wrap=True)
            out.print(Text("    ").append(ours), soft_wrap=True)
    counts: list[list[Any]] = []
    for part in parts:
        total, missing = len(slices()[part]), len(found.missing(part))
        shown = Text(str(missing), style=BAD if missing else GOOD)
        counts.append([part, str(total), str(total - missing), shown])
    columns = ("slice", "released", "answered", "missing")
    out.print(table(columns, counts, right=columns[1:]))
    say(out, f"{found.answered} of {sum(map(len, slices().values()))} released tasks have an answer.")


def _cells(row: Covered) -> tuple[str, Text]:
    """The released name without its slice, and what answers for it or why nothing does."""
    from rich.text import Text

    from cudahercules.report.terminal import BAD

    ours = Text(", ".join(row.tasks)) if row.tasks else Text(f"missing: {row.why_not}", style=BAD)
    return row.name.removeprefix(f"{row.part}/"), ours


COMMANDS: dict[str, Any] = {"coverage": coverage}
