"""``redteam``: every known attack, and every honest control, against the judge of this machine."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cudahercules.cli.common import emit, explained, progress
from cudahercules.cli.grading import Device, Json

if TYPE_CHECKING:
    from cudahercules.redteam.run import Row


@explained
def redteam(
    device: Device = "auto",
    only: Annotated[
        str | None,
        typer.Option(metavar="PATTERN", help="A class or a case; * stands for any text (host/*, *cache*)."),
    ] = None,
    json: Json = False,
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Keep results in FILE; do not try again what was as expected there."
        ),
    ] = None,
) -> None:
    """Attack the judge with the corpus of exploits; honest controls must pass."""
    from cudahercules.judge.grade import choose_device
    from cudahercules.redteam.corpus import chosen, load_corpus
    from cudahercules.redteam.run import run

    kind = choose_device(device)
    cases = chosen(load_corpus(), only)
    start = time.monotonic()
    rows: list[Row] = []
    with progress() as notify:
        notify(f"trying {len(cases)} cases on the {kind} judge")
        for row in run(cases, kind, resume=resume, notify=notify):
            rows.append(row)
            if json:
                emit(row.model_dump_json())
    place = {case.name: number for number, case in enumerate(cases)}
    rows.sort(key=lambda row: place[row.case])
    if not json:
        _print(rows, kind, time.monotonic() - start)
    raise typer.Exit(0 if all(row.as_expected for row in rows) else 1)


def _print(rows: list[Row], kind: str, seconds: float) -> None:
    from rich.text import Text

    from cudahercules.redteam.corpus import CLASSES, CONTROLS
    from cudahercules.report.text import clean, coloured, console, cut, say, table

    out = console()
    width = max(len(row.case.partition("/")[2]) for row in rows)
    wanted = max(len(row.expected.verdict) for row in rows)
    room = max(12, out.width - width - wanted - 16 - 22)
    for group, title in CLASSES.items():
        shown = [row for row in rows if row.case.startswith(f"{group}/")]
        if not shown:
            continue
        out.print(Text(title, style="bold"))
        lines: list[list[str | Text]] = []
        for row in shown:
            got: Text | str = coloured(row.got) if row.as_expected else Text(row.got, style="bold red")
            why = row.problem or row.message or _speed(row)
            name, expected = row.case.partition("/")[2], row.expected.verdict
            lines.append([f"{name:<{width}}", expected, got, cut(clean(why), room), f"{row.seconds:.1f}"])
        out.print(table(("case", "expected", "got", "why", "s"), lines, right=("s",)))
    wrong = [row for row in rows if not row.as_expected]
    for row in wrong:
        out.print(Text(clean(f"{row.case}: {row.problem}. {row.message}"), style="red"), soft_wrap=True)
    honest = sum(row.case.startswith(f"{CONTROLS}/") for row in rows)
    counted = (
        f"{len(rows) - honest} exploits and {honest} honest controls in {seconds:.0f} s on the {kind} judge"
    )
    say(out, f"{counted}: " + (f"{len(wrong)} not as expected." if wrong else "every one is as expected."))


def _speed(row: Row) -> str:
    return f"{row.speed}, {row.ratio:.3f} of the opponent" if row.ratio is not None else ""


COMMANDS: dict[str, Any] = {"redteam": redteam}
