"""Summaries as Markdown, CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence

from cudahercules.errors import UsageError
from cudahercules.score.bootstrap import FEWEST, LEVEL
from cudahercules.score.summary import EVERYTHING, GROUPINGS, Row, Summary

FORMATS = ("md", "csv", "json")
_TITLES = {"task_class": "class", "target": "target", "domain": "domain", "family": "family"}
_IN_GROUPS = ("compile_rate", "pass_rate", "mean_speed", "fast_1", "fast_1.05")
"""The columns of the tables by group; the first table has all metrics."""


def render(summaries: Sequence[Summary], form: str) -> str:
    """The text to print. Raises UsageError for an unknown format."""
    if form == "json":
        return json.dumps([s.model_dump(mode="json") for s in summaries], indent=1)
    if form == "csv":
        return _csv(summaries)
    if form == "md":
        return "\n\n".join(_markdown(s) for s in summaries)
    raise UsageError(f"--format {form}: choose one of {', '.join(FORMATS)}")


def _csv(summaries: Sequence[Summary]) -> str:
    out = io.StringIO()
    fields = ["model", "setting", "device", *Row.model_fields]
    writer = csv.DictWriter(out, fields, lineterminator="\n")
    writer.writeheader()
    for summary in summaries:
        for row in summary.rows:
            whose = {"model": summary.model, "setting": summary.setting, "device": summary.device}
            writer.writerow({**whose, **row.model_dump()})
    return out.getvalue().rstrip("\n")


def _markdown(summary: Summary) -> str:
    return "\n".join(_lines(summary))


def _lines(summary: Summary) -> Iterator[str]:
    yield f"## {summary.model}, {summary.setting}, {summary.device} judge"
    yield ""
    yield ", ".join(f"{name} {count}" for name, count in summary.outcomes.items())
    yield ""
    yield "| metric | each task equal | each family equal | over |"
    yield "|---|---|---|---|"
    rows = {(r.metric, r.weighting): r for r in summary.rows if r.group == EVERYTHING}
    missing: dict[str, list[str]] = {}
    for name in summary.definitions:
        task, family = rows[name, "task"], rows[name, "family"]
        if task.value is None:
            missing.setdefault(shown(task), []).append(name)
        else:
            yield f"| {name} | {shown(task)} | {shown(family)} | {_over(task)} |"
    for why, names in missing.items():
        yield f"| {', '.join(names)} | {why} | {why} | |"
    for grouping in GROUPINGS:
        yield from _group_table(summary, grouping)
    yield ""
    yield from _effort(summary)
    yield ""
    yield from _notes(summary)


def shown(row: Row) -> str:
    """A value with its interval, or why there is none."""
    if row.value is None:
        return row.note.split(":")[0]
    text = _number(row.value, row.is_share)
    if row.low is None or row.high is None:
        return text
    return f"{text} [{_number(row.low, row.is_share)}, {_number(row.high, row.is_share)}]"


def _number(value: float, is_share: bool) -> str:
    return f"{100 * value:.1f} %" if is_share else f"{value:.3f}"


def _over(row: Row) -> str:
    counts = ((row.answers, "answer"), (row.tasks, "task"), (row.families, "famil"))
    text = ", ".join(_counted(n, word) for n, word in counts) if row.value is not None else ""
    return text + (f"; {row.not_judged} not judged" if row.not_judged else "")


def _counted(number: int, word: str) -> str:
    if word == "famil":
        return f"{number} {'family' if number == 1 else 'families'}"
    return f"{number} {word}{'s' * (number != 1)}"


def _group_table(summary: Summary, grouping: str) -> Iterator[str]:
    rows = [r for r in summary.rows if r.group == grouping and r.weighting == "task"]
    members = list(dict.fromkeys(r.member for r in rows))
    if len(members) < 2:
        return
    names = [n for n in _IN_GROUPS if any(r.metric == n and r.value is not None for r in rows)]
    names += [n for n in list(summary.definitions) if n.startswith("pass@")][-1:]
    by_place = {(r.member, r.metric): r for r in rows}
    yield ""
    yield f"| {_TITLES[grouping]} | {' | '.join(names)} | over |"
    yield "|---|" + "---|" * (len(names) + 1)
    for member in members:
        cells = [shown(by_place[member, name]) for name in names]
        yield f"| {member} | {' | '.join(cells)} | {_over(by_place[member, 'pass_rate'])} |"


def _effort(summary: Summary) -> Iterator[str]:
    e = summary.effort
    money = f"{e.money:.2f} US$" if e.money is not None else "price not known"
    seconds = f"{e.seconds:.0f} s of samples" if e.seconds is not None else "times not known"
    tokens = f"{e.input_tokens} tokens in, {e.output_tokens} out"
    yield f"{_counted(e.answers, 'answer')}, {tokens}, {money}, {seconds}."
    r = summary.rounds
    if r is not None:
        yield (
            f"{_counted(r.rounds, 'round')} (for an agent, checks) in {_counted(r.answers, 'answer')}: "
            f"{_counted(r.regressions, 'regression')}, {_counted(r.cycles, 'cycle')}, "
            f"{_counted(r.drifts, 'drift')} to slower code. Right under guidance {r.guided_correct}, of "
            f"which not right in the final verdict {r.misled}."
        )


def _notes(summary: Summary) -> Iterator[str]:
    yield f"Intervals: {LEVEL:.0%}, bootstrap over tasks or families and answers, from {FEWEST} of them on."
    if any(row.note.startswith("not timed") for row in summary.rows):
        yield "Not timed: the CPU judge checks answers, and an emulator's speed says nothing about a GPU."
    computed = {row.metric for row in summary.rows if row.value is not None}
    for name, definition in summary.definitions.items():
        if name in computed:
            yield f"* {name}: {definition}"
