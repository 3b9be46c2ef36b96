"""``coverage``: which of the release's tasks the suite answers for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cudahercules.cli.common import emit, explained, fail
from cudahercules.cli.grading import Json

if TYPE_CHECKING:
    from cudahercules.suite.coverage import Coverage

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

    out, columns = console(), ("released task", "here", "repaired")
    for part in parts:
        rows: list[list[Any]] = []
        for row in found.of(part):
            ours = "\n".join(row.tasks) if row.tasks else Text(f"missing: {row.why_not}", style=BAD)
            shown = [row.name.removeprefix(f"{part}/"), ours]
            rows.append([*shown, row.repaired] if is_wide(out) else shown)
        out.print(Text(part, style="bold"))
        out.print(table(columns[: len(rows[0])], rows, whole=columns[:1]))
    counts: list[list[Any]] = []
    for part in parts:
        answered, total = len(found.of(part)) - len(found.missing(part)), len(slices()[part])
        missing = Text(str(total - answered), style=BAD if answered < total else GOOD)
        counts.append([part, str(total), str(answered), missing])
    out.print(
        table(("slice", "released", "answered", "missing"), counts, right=("released", "answered", "missing"))
    )
    say(out, f"{found.answered} of {sum(map(len, slices().values()))} released tasks have an answer.")


COMMANDS: dict[str, Any] = {"coverage": coverage}
