"""``grade``, ``plan`` and ``verify``: what happens to one's own file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cudahercules.cli import Standing
from cudahercules.cli.common import Progress, emit, explained, progress

if TYPE_CHECKING:
    from cudahercules.judge.verdict import Verdict

TaskName = Annotated[
    str, typer.Argument(metavar="TASK", help="A task's id, or the part of it that is unique.")
]
Device = Annotated[str, typer.Option(metavar="auto|gpu|cpu", help="Where the plan runs; auto takes a GPU.")]
Asynchrony = Annotated[
    str | None,
    typer.Option(
        "--async",
        metavar="ORDER",
        help="When asynchronous work takes effect in the emulator: eager, late or random:SEED.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output (docs/verdicts.md).")]


@explained
def grade(
    task: TaskName,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...", help="A .cu file, or a directory of sources; each is one candidate."
        ),
    ],
    device: Device = "auto",
    json: Json = False,
    evidence: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep sources, cubin, PTX, plans and verdict there.")
    ] = None,
    seed: Annotated[
        str | None, typer.Option(help="Repeat the inputs of a verdict with this seed. Secret by default.")
    ] = None,
    smoke: Annotated[bool, typer.Option("--smoke", help="Only the tiny workloads: a quick look.")] = False,
    resume: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Keep verdicts in FILE; do not grade those in it again."),
    ] = None,
    limit: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0.1, max=86400, help="Wall time that one workload may run."),
    ] = 60.0,
    asynchrony: Asynchrony = None,
    strict: Annotated[
        str | None,
        typer.Option(
            metavar="LEVEL",
            help="Refuse a sandbox below full, files, calls or limits (docs/recorder.md). $HERCULES_STRICT "
            "does so for every command.",
        ),
    ] = None,
) -> None:
    """Grade candidates: one verdict each, as they come."""
    from cudahercules.build.candidate import load_candidate
    from cudahercules.build.sandbox import require
    from cudahercules.judge.evidence import check_directory
    from cudahercules.judge.grade import choose_device, grade_many
    from cudahercules.judge.verdict import exit_code
    from cudahercules.task.load import load_task
    from cudahercules.task.model import WorkloadRole

    # Everything that the caller may have got wrong is found before the first candidate is compiled.
    chosen, resolved = load_task(task), choose_device(device)
    if strict is not None:
        require(strict)
    names = [load_candidate(file).name for file in files]
    directories = _evidence_directories(evidence, names)
    for directory in directories:
        if directory is not None:
            check_directory(directory)
    codes = []
    verdicts = grade_many(
        chosen,
        files,
        resolved,
        evidence=directories,
        seed=seed,
        roles=(WorkloadRole.SMOKE,) if smoke else None,
        limit_s=limit,
        asynchrony=asynchrony,
        resume=resume,
        notify=(reporter := Progress()),
    )
    while True:
        with reporter.running():
            verdict = next(verdicts, None)
        if verdict is None:
            break
        _show(verdict, json)
        codes.append(exit_code(verdict))
        if Standing.reader_gone:
            break
    raise typer.Exit(max(codes))


def _show(verdict: Verdict, json: bool) -> None:
    if json:
        emit(verdict.model_dump_json())
        return
    from cudahercules.report.text import console, print_verdict

    print_verdict(verdict, console())


def _evidence_directories(evidence: Path | None, names: list[str]) -> list[Path | None]:
    """``evidence`` itself for one candidate, else a directory in it for each, named and numbered."""
    if evidence is None:
        return [None] * len(names)
    if len(names) == 1:
        return [evidence]
    return [evidence / f"{number:02d}-{name.replace('/', '_')}" for number, name in enumerate(names, 1)]


@explained
def plan(
    task: TaskName,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The candidate.")],
    workload: Annotated[
        str | None, typer.Option(help="A workload's name; the first smoke one by default.")
    ] = None,
    json: Json = False,
) -> None:
    """Show what a candidate would run: its launch plan, recorded without a GPU."""
    from cudahercules.judge.planning import plan_candidate
    from cudahercules.record.listing import describe

    with progress() as notify:
        recorded, artifact = plan_candidate(task, file, workload, notify=notify)
    emit(recorded.canonical_json() if json else describe(recorded, artifact).rstrip("\n"))


@explained
def verify(directory: Annotated[Path, typer.Argument(metavar="DIR", help="An evidence directory.")]) -> None:
    """Check an evidence directory against its manifest and its verdict."""
    from cudahercules.judge.evidence import verify
    from cudahercules.report.text import clean

    problems = verify(directory)
    for problem in problems:
        emit(clean(problem))
    if problems:
        emit(f"{directory}: {len(problems)} problem{'s' * (len(problems) != 1)}")
        raise typer.Exit(1)
    emit(f"{directory}: every file is as it was written, and the verdict fits its plans and sources")


COMMANDS: dict[str, Any] = {"grade": grade, "plan": plan, "verify": verify}
