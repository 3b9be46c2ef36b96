"""What ``lint`` found about many tasks, as Markdown: ``python -m cudahercules.judge.lint_table FILE...``.

The files are those of ``lint --resume``, of any machines. ``--panels DIR`` also writes the panel files of the
GPUs that they speak of into DIR, beside what lies there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from cudahercules.errors import HerculesError
from cudahercules.judge.lint import LintReport, LintRow
from cudahercules.judge.lint_log import reports
from cudahercules.measure.panel import save_panel, slug_of


def table(found: Sequence[LintReport]) -> str:
    """A row a task: the largest errors as shares of their bounds, what the bounds reject, and the verdicts on
    mutants. Below it whatever is not as it must be, and where the seconds went."""
    by_task: dict[str, list[LintReport]] = {}
    for report in sorted(found, key=lambda r: (r.task, r.device)):
        by_task.setdefault(report.task, []).append(report)
    failed = [
        (r, row) for mine in by_task.values() for r in mine for row in r.rows if row.outcome == "failed"
    ]
    machines = sorted({r.machine or "the CPU judge" for r in found})
    return "\n".join(
        [
            f"{len(by_task)} tasks on {' and '.join(machines)}; {len(failed)} requirements not met.",
            "",
            "*Honest* and *experts*: the largest error as a share of its bound (at most 50 %). *Wrong*",
            "*answers*: those made by machine that the bound rejects. *Mutants* and *hostile*: those that",
            "end as they must. *By machine*: mistakes made in honest solutions that are seen.",
            "",
            "| task | honest | experts | wrong answers | mutants | by machine | hostile | judges |",
            "|---|---|---|---|---|---|---|---|",
            *(_line(task, mine) for task, mine in by_task.items()),
            *_failures(failed),
            *_seconds(found),
        ]
    )


def _line(task: str, mine: list[LintReport]) -> str:
    rows = [row for report in mine for row in report.rows]
    honest = [r for r in rows if r.sort == "honest" or (r.sort == "answer" and r.expected == "accepted")]
    answers = [r for r in rows if r.sort == "answer" and r.expected == "rejected"]
    cells = (
        f"`{task}`",
        _percent([r.share for r in honest if r.outcome != "not_run"]),
        _experts(rows),
        _met(answers),
        _met([r for r in rows if r.sort == "mutant"]),
        next((r.detail.split(" rejected")[0] for r in rows if r.subject == "changes by machine"), ""),
        _met([r for r in rows if r.sort == "hostile"]),
        ", ".join(report.device for report in mine),
    )
    return f"| {' | '.join(cells)} |"


def _met(rows: list[LintRow]) -> str:
    """How many of the requirements that could be tried are met; one tried on several judges is met on all."""
    tried: dict[str, bool] = {}
    for row in rows:
        if row.outcome != "not_run":
            tried[row.subject] = tried.get(row.subject, True) and row.outcome == "ok"
    return f"{sum(tried.values())} of {len(tried)}" if tried else ""


def _percent(shares: Sequence[float | None]) -> str:
    known = [s for s in shares if s is not None]
    return f"{max(known):.0%}" if known else ""


def _experts(rows: list[LintRow]) -> str:
    """Each expert with its largest share over the workloads, or what became of it."""
    shares: dict[str, float] = {}
    otherwise: dict[str, str] = {}
    for row in rows:
        if row.sort != "expert" or " on " not in row.subject:
            continue  # a CPU runs none
        name = row.subject.split(" on ")[0]
        if row.share is not None:
            shares[name] = max(shares.get(name, 0.0), row.share)
        elif row.outcome == "failed" or name not in otherwise:
            otherwise[name] = "failed" if row.outcome == "failed" else "did not play"
    known = [f"{name} {share:.0%}" for name, share in sorted(shares.items(), key=lambda item: item[1])]
    known += [f"{n} {what}" for n, what in sorted(otherwise.items()) if what == "failed" or n not in shares]
    return ", ".join(known)


def _failures(failed: Sequence[tuple[LintReport, LintRow]]) -> list[str]:
    if not failed:
        return []
    lines = ["", "Not as it must be:", "", "| task | judge | what | expected | got | why |"]
    lines.append("|---|---|---|---|---|---|")
    for report, row in failed:
        detail = row.detail.replace("|", "\\|").replace("\n", " ")[:200]
        cells = (f"`{report.task}`", report.device, f"`{row.subject}`", row.expected, row.got, detail)
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _seconds(found: Sequence[LintReport]) -> list[str]:
    """What a task took on a GPU: coming up is a wave's, shared by its tasks."""
    timed = [r for r in found if r.device == "gpu" and "ranking" in r.seconds]
    if not timed:
        return []
    ranking = sum(r.seconds["ranking"] for r in timed)
    grading = sum(r.seconds["grading"] for r in timed)
    waves = sum(seconds for _, seconds in {(r.date, r.seconds["coming up"]) for r in timed})
    return [
        "",
        f"On a GPU {len(timed)} tasks took {waves:.0f} s to come up and to be graded ({grading:.0f} s of",
        f"gradings, several at a time) and {ranking:.0f} s to be ranked: "
        f"{(waves + ranking) / len(timed):.1f} s a task.",
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m cudahercules.judge.lint_table", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--panels", type=Path, metavar="DIR")
    options = parser.parse_args(arguments)
    try:
        found: dict[str, LintReport] = {}
        for path in options.files:
            found.update(reports(path))
        for report in found.values() if options.panels is not None else ():
            if report.panel is not None:
                save_panel(report.panel, slug_of(report.machine.partition(",")[0]), options.panels)
    except HerculesError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(table(list(found.values())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
