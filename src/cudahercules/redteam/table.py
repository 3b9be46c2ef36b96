"""The generated part of ``docs/threat-model.md``: ``python -m cudahercules.redteam.table FILE`` replaces it
in the file (without FILE it is printed). ``--results ROWS`` prints what a run of ``hercules redteam --json``
said as a table instead (of several rows of one case the last counts)."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from cudahercules.redteam.corpus import CLASSES, CONTROLS, Case, Expected, chosen, load_corpus
from cudahercules.redteam.run import Row

MARK = "<!-- generated: what follows comes from the corpus -->\n"


def tables() -> str:
    """Markdown: for each class what an exploit does, where it was seen, what stops it, and the verdicts."""
    cases = load_corpus()
    exploits = [c for c in cases if not c.honest]
    lines = [
        f"## {len(exploits)} exploits and {len(cases) - len(exploits)} honest controls",
        "",
        "`hercules redteam` tries all of them on the judge at hand. Each lies in a folder of this name in",
        "`src/cudahercules/exploits`. *Must get* is the verdict on the CPU judge and, where it differs,",
        "after a slash the one on a GPU; *correct* means that the attack has no effect and the honest part",
        "of the code is judged, *not faster* that it must not gain time by it.",
        "",
    ]
    for group, title in CLASSES.items():
        lines += [f"### {title}", "", *_table([c for c in cases if c.group == group], group == CONTROLS), ""]
    return "\n".join(lines)


def _table(cases: list[Case], honest: bool) -> list[str]:
    if honest:
        rows = [f"| `{_short(c)}` | {_cell(c.does)} | {_verdicts(c)} |" for c in cases]
        return ["| control | what it does | must get |", "|---|---|---|", *rows]
    return [
        "| exploit | what it does | seen | what stops it | must get |",
        "|---|---|---|---|---|",
        *(
            f"| `{_short(c)}` | {_cell(c.does)} | {_cell(c.seen)} | {_cell(_stops(c))} | {_verdicts(c)} |"
            for c in cases
        ),
    ]


def _short(case: Case) -> str:
    return case.name.partition("/")[2]


def _stops(case: Case) -> str:
    return f"{case.stops}. {case.note}" if case.note else case.stops


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("__", "\\_\\_")


def _verdicts(case: Case) -> str:
    cpu, gpu = (_verdict(case.expected[device]) for device in ("cpu", "gpu"))
    return cpu if cpu == gpu else f"{cpu} / {gpu}"


def _verdict(expected: Expected) -> str:
    words = expected.verdict.replace("_", "\\_")
    return words if expected.speed == "any" else f"{words}, {expected.speed.replace('_', ' ')}"


def updated(text: str) -> str:
    """``text`` (of docs/threat-model.md) with its generated part renewed."""
    return text.partition(MARK)[0] + MARK + "\n" + tables()


def results_table(rows: Iterable[Row], cases: Sequence[Case]) -> str:
    """Markdown of a run of ``cases``: what came out beside what must, differences first."""
    latest = {row.case: row for row in rows}
    ordered = sorted(latest.values(), key=lambda r: (r.as_expected, r.case))
    wrong = sum(not r.as_expected for r in ordered)
    missing = [c.name for c in cases if c.name not in latest]
    lines = [
        f"{len(ordered)} cases, {wrong} not as expected, {len(missing)} not tried.",
        *([f"Not tried: {', '.join(missing)}."] if missing else []),
        *sorted({r.machine for r in ordered if r.ratio is not None or r.device == "cpu"} - {""})[:1],
        "",
        "| case | must get | got | speed | s |",
        "|---|---|---|---|---|",
    ]
    for r in ordered:
        speed = f"{r.speed} ({r.ratio:.3f})" if r.ratio is not None else ""
        got = r.got if r.as_expected else f"**{r.got}**: {_cell(r.problem)}"
        lines.append(f"| `{r.case}` | {_verdict(r.expected)} | {got} | {speed} | {r.seconds:.1f} |")
    return "\n".join(lines) + "\n"


def _main(arguments: list[str]) -> None:
    if arguments[:1] == ["--results"]:
        lines = Path(arguments[1]).read_text().splitlines()
        rows = [Row.model_validate_json(line) for line in lines if line.endswith("}")]
        only = arguments[3] if arguments[2:3] == ["--only"] else None
        print(results_table(rows, chosen(load_corpus(), only)), end="")
    elif arguments:
        page = Path(arguments[0])
        page.write_text(updated(page.read_text()))
    else:
        print(tables())


if __name__ == "__main__":
    _main(sys.argv[1:])
