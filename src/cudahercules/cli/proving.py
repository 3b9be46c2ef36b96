"""``demo``: the bundled candidates prove the judge on this machine."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cudahercules.cli.common import emit, explained, fail, progress
from cudahercules.cli.grading import Device, Json

if TYPE_CHECKING:
    from rich.text import Text

    from cudahercules.judge.bundled import Graded

Named = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TASK...]", help="Tasks; by default one of each of four families."),
]
WORKERS = 2
"""Candidates graded at a time on the CPU: one compiles while the other is emulated."""


@explained
def demo(
    names: Named = None,
    every: Annotated[
        bool, typer.Option("--all", help="One task of every family: this takes many minutes.")
    ] = False,
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Grade bundled candidates (honest, mutants, hostile) and compare with what each must get: one table.

    Without names it takes four families that stand for the others (two a class, hostile candidates among
    them), so that it ends in about two minutes."""
    from cudahercules.judge.bundled import demonstration, grade_bundled, whole_demonstration
    from cudahercules.judge.grade import choose_device

    if names and every:
        fail("--all means every family: name tasks, or say --all", 2)
    kind = choose_device(device)
    cases = whole_demonstration() if every else demonstration(names or ())
    start = time.monotonic()
    done: dict[int, Graded] = {}
    with progress() as notify:
        notify(f"grading {len(cases)} candidates on the {kind} judge")
        for graded in grade_bundled(cases, kind, workers=WORKERS, notify=notify):
            done[cases.index(graded.bundled)] = graded
            if json:
                emit(graded.verdict.model_dump_json())
    results = [done[i] for i in sorted(done)]
    if not json and results:
        _print_demo(results, kind, time.monotonic() - start)
    raise typer.Exit(0 if all(g.as_expected for g in results) else 1)


def _print_demo(results: list[Graded], kind: str, seconds: float) -> None:
    from rich.text import Text

    from cudahercules.report.text import brief, coloured, console, cut, say, table

    out = console()
    files, expected, verdicts = (
        max((len(text) for text in column), default=0)
        for column in zip(*((g.bundled.file, g.bundled.expected, _shown(g)) for g in results), strict=True)
    )
    room = out.width - files - expected - verdicts - 20  # 20: gaps between columns, and the seconds
    narrow = room < 24
    if narrow:  # what is not as expected says WRONG then
        room += expected + 3
    for task_id in dict.fromkeys(g.bundled.task.id for g in results):
        out.print(Text(task_id, style="bold"))
        rows: list[list[str | Text]] = []
        for g in (g for g in results if g.bundled.task.id == task_id):
            verdict = coloured(g.verdict.kind) if g.as_expected else Text(_shown(g), style="bold red")
            row: list[str | Text] = [
                f"{g.bundled.file:<{files}}",
                f"{g.bundled.expected:<{expected}}",
                verdict,
            ]
            row += [f"{cut(brief(g.verdict), room):<{room}}", f"{g.seconds:.1f}"]
            rows.append([*row[:1], *row[2:]] if narrow else row)
        columns = ("candidate", *(() if narrow else ("expected",)), "verdict", "why", "s")
        out.print(table(columns, rows, right=("s",)))
    wrong = sum(not g.as_expected for g in results)
    judge = "GPU" if kind == "gpu" else "CPU judge (answers only; nothing is timed in an emulator)"
    summary = f"{len(results)} candidates in {seconds:.0f} s on the {judge}: " + (
        f"{wrong} of the verdicts {'is' if wrong == 1 else 'are'} not as expected."
        if wrong
        else "every verdict is as expected."
    )
    say(out, summary)
    task = results[0].bundled.task.id
    out.print("\nTry next:")
    for arguments, what in (
        (f"show {task}", "what a model is asked, solve.h included"),
        (f"grade {task} FILE.cu", "a verdict on your own file"),
        (f"plan {task} FILE.cu", "what your file would run"),
        ("doctor", "what this machine can do"),
    ):
        line = f"  {program_name()} {arguments:<{len(task) + 14}}  {what}"
        if len(line) <= out.width:
            out.print(line, soft_wrap=True)
        else:
            out.print(f"  {program_name()} {arguments}", soft_wrap=True)
            say(out, what, indent=6)


def _shown(graded: Graded) -> str:
    return graded.verdict.kind if graded.as_expected else f"{graded.verdict.kind} WRONG"


def program_name() -> str:
    """How this program is called from here: by name, by path, or as a module."""
    import shutil
    import sys
    from pathlib import Path

    if shutil.which("hercules"):
        return "hercules"
    script = Path(sys.executable).with_name("hercules")
    if not script.is_file():
        return "PYTHONPATH=src python3 -m cudahercules"
    here = Path.cwd()
    return str(script.relative_to(here) if script.is_relative_to(here) else script)


COMMANDS: dict[str, Any] = {"demo": demo}
