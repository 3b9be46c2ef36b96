"""``emulator coverage``: what the CPU's emulator knows of the code that experts ship."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cudahercules.cli.common import emit, explained, fail, progress
from cudahercules.cli.grading import Json

if TYPE_CHECKING:
    from cudahercules.emulator.corpus.survey import Survey

emulator = typer.Typer(
    name="emulator",
    help="About the PTX emulator that the CPU judge uses.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@emulator.callback()
def options() -> None:
    pass


@emulator.command("coverage")
@explained
def coverage(
    target: Annotated[
        list[str] | None,
        typer.Option(metavar="ampere|hopper|blackwell", help="Targets (repeat it); all of them by default."),
    ] = None,
    only: Annotated[
        str, typer.Option(metavar="PATTERN", help="Only files with such a name: 'cub/*', '*gemm*'.")
    ] = "",
    within: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=1, help="Start no compiler after that; a later call goes on."),
    ] = None,
    jobs: Annotated[
        int, typer.Option(min=1, max=256, help="Compilers at a time; each takes up to 4 GB.")
    ] = 2,
    page: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the whole table there, as Markdown.")
    ] = None,
    json: Json = False,
) -> None:
    """Compile the corpus of expert files and say which ones the emulator supports completely.

    The first run fetches some 100 MB of packages and compiles for half an hour; all of it is cached.
    Exit code 1 if any file was left out because time was up."""
    from datetime import date

    from cudahercules.emulator.corpus.manifest import ARCHITECTURE
    from cudahercules.emulator.corpus.page import markdown
    from cudahercules.emulator.corpus.survey import select, survey

    targets = tuple(dict.fromkeys(target)) if target else tuple(ARCHITECTURE)
    if unknown := [t for t in targets if t not in ARCHITECTURE]:
        fail(f"no target {unknown[0]!r} in the corpus: there are {', '.join(ARCHITECTURE)}", 2)
    if page is not None and not page.resolve().parent.is_dir():
        fail(f"{page}: its directory does not exist", 2)
    with progress() as notify:
        found = survey(select(targets, only), jobs=jobs, within_s=within, notify=notify)
    if page is not None:
        page.write_text(markdown(found, date.today()))
    if json:
        emit(found.model_dump_json())
    else:
        _print(found, targets)
    raise typer.Exit(1 if any(r.status == "not_tried" for r in found.rows) else 0)


def _print(found: Survey, targets: tuple[str, ...]) -> None:
    from rich.text import Text

    from cudahercules.emulator.corpus.page import counts
    from cudahercules.report.terminal import BAD, GOOD, NEITHER, console, cut, say, table

    out = console()
    colours = {"supported": GOOD, "stopped": BAD, "refused": NEITHER, "not_tried": NEITHER}
    for target in targets:
        rows: list[list[Any]] = []
        for row in found.of(target):
            why = row.message or ", ".join(row.stoppers)
            shown = Text(row.status.replace("_", " "), style=colours[row.status])
            rows.append([row.file, shown, str(row.instructions or ""), cut(why, max(20, out.width - 70))])
        if rows:
            out.print(Text(target, style="bold"))
            out.print(table(("file", "emulator", "instructions", "why not"), rows, right=("instructions",)))
    for target in targets:
        supported, counted = counts(found, target)
        if not found.of(target):
            continue
        left = len(found.of(target, "not_tried"))
        rest = f"; {left} not tried: call it again" if left else ""
        say(out, f"{target}: {supported} of {counted} files fully supported{rest}")
        if stoppers := found.stoppers(target):
            common = ", ".join(f"{name} ({files})" for name, files in stoppers.most_common(5))
            say(out, f"most often in the way: {common}", indent=2)
