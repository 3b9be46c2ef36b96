"""A Markdown page for each family: what is asked, how it is judged, who the opponents are, what was measured.

Everything comes from the family's files, from the shipped panels and from verdicts committed under
``results/``. What was never measured is said to be so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from cudahercules.measure import panel as panels
from cudahercules.measure.ceilings import Ceilings, all_ceilings, arithmetic, ceiling_us
from cudahercules.suite.overview import UNVERIFIED, verified
from cudahercules.task.header import solve_header
from cudahercules.task.load import BUNDLED, load_family, work
from cudahercules.task.model import Mutant, Task, TaskClass, Tolerance
from cudahercules.task.releases import is_release_of

if TYPE_CHECKING:
    from cudahercules.judge.verdict import Correct

RESULTS = BUNDLED.parents[2] / "results"
"""Committed results of a checkout; an installed package has none."""
NOT_MEASURED = "Not measured yet."


def family_pages(root: Path = BUNDLED, results: Path = RESULTS) -> dict[str, str]:
    """Page name -> Markdown: ``index`` and one page a family (``kernel-gemm``)."""
    families = {
        f"{c.value}-{d.name}": load_family(d)
        for c in TaskClass
        for d in sorted(p.parent for p in (root / c.value).glob("*/task.yaml"))
    }
    verdicts = timed_verdicts(results)
    pages = {"index": _index(families)}
    for name, tasks in families.items():
        pages[name] = _page(tasks, [v for v in verdicts if v.task in {t.id for t in tasks}])
    return pages


def timed_verdicts(results: Path) -> list[Correct]:
    """Every timed verdict in the JSON files under ``results``, whatever else they hold."""
    found = []
    for file in sorted((*results.rglob("*.json"), *results.rglob("*.jsonl"))):
        for document in _documents(file):
            found += list(_verdicts_in(document))
    return found


def _documents(file: Path) -> Iterator[object]:
    try:
        text = file.read_text(encoding="utf-8")
        parts = text.splitlines() if file.suffix == ".jsonl" else [text]
        for part in parts:
            if part.strip():
                yield json.loads(part)
    except (OSError, ValueError):
        return  # not JSON after all: other tools' files may lie there


def _verdicts_in(value: object) -> Iterator[Correct]:
    """Verdicts at any depth of a document."""
    from cudahercules.judge.verdict import Correct

    if isinstance(value, list):
        for item in value:
            yield from _verdicts_in(item)
    elif isinstance(value, dict):
        timing = value.get("timing")
        if value.get("kind") == "correct" and isinstance(timing, dict) and timing.get("kind") == "timed":
            try:
                yield Correct.model_validate_json(json.dumps(value))
            except ValidationError:
                return
        else:
            for item in value.values():
                yield from _verdicts_in(item)


# --- pages ---------------------------------------------------------------------------------------


def _index(families: dict[str, tuple[Task, ...]]) -> str:
    lines = [
        "# Tasks\n",
        f"{len(families)} families with {sum(map(len, families.values()))} tasks. A task is one member of a "
        "family for one target; `hercules tasks` lists them, and `hercules coverage` which of the release's "
        "tasks they answer for. *Verified* counts tasks whose experts were checked and timed on that card.\n",
    ]
    for task_class in TaskClass:
        inside = {n: t for n, t in families.items() if t[0].task_class is task_class}
        if inside:
            lines.append(f"## {task_class.value.capitalize()}\n")
            rows = [
                [f"[{t[0].family}]({name}.md)", _words(t[0].domain), str(len(t)), _members(t), _cards(t)]
                for name, t in inside.items()
            ]
            lines.append(_table(("family", "domain", "tasks", "members", "verified on"), rows))
    return "\n".join(lines)


def _cards(tasks: tuple[Task, ...]) -> str:
    return "; ".join(map(str, verified(tasks))) or UNVERIFIED


def _verified(tasks: tuple[Task, ...]) -> str:
    found = verified(tasks)
    return f"{'; '.join(map(str, found))} of {len(tasks)}" if found else "none yet"


def _members(tasks: tuple[Task, ...]) -> str:
    return ", ".join(f"`{m}`" for m in dict.fromkeys(t.member for t in tasks))


def _page(tasks: tuple[Task, ...], verdicts: list[Correct]) -> str:
    first = tasks[0]
    targets = ", ".join(dict.fromkeys(t.target.value for t in tasks))
    parts = [
        f"# {first.family}\n",
        f"{_words(first.domain).capitalize()}. Members: {_members(tasks)}; targets: {targets}. "
        f"{_words(first.provenance)}\n",
        f"Tasks verified on hardware (their experts were checked and timed): {_verified(tasks)}.\n",
        f"## What is asked\n\nAs a model reads it, for `{first.id}`:\n",
        _quoted(first.prompt_text),
        f"```cpp\n{solve_header(first).strip()}\n```\n",
        "## Workloads\n\nSmoke and check workloads must be right before anything is timed.\n",
        _workloads(tasks),
        "## Bounds\n\nErrors against the float64 reference, see [reading a verdict](../verdicts.md).\n",
        _bounds(tasks),
        "## Opponents\n",
        _panel(tasks),
        "## Measured\n",
        _standings(tasks) + _verdict_table(verdicts) or NOT_MEASURED + "\n",
        "## Wrong solutions that must fail\n",
        _table(
            ("file", "verdict", "why"),
            [[f"`{m.file}`", m.verdict, _words(m.reason)] for m in _wrong_solutions(tasks)],
        ),
        "## Released tasks that it answers for\n",
        _released(tasks),
    ]
    return "\n".join(parts)


def _released(tasks: tuple[Task, ...]) -> str:
    answers = {name: answer for t in tasks for name, answer in t.released.items()}
    rows = [
        [f"`{name}`", ", ".join(f"`{t}`" for t in answer.tasks), _words(answer.repaired)]
        for name, answer in answers.items()
    ]
    if not rows:
        return "None: it goes beyond the release (arXiv 2605.08467).\n"
    return _table(("released", "here", "repaired"), rows)


def _wrong_solutions(tasks: tuple[Task, ...]) -> list[Mutant]:
    """Those of all members, each file once, mutants before hostile ones."""
    mutants = [m for t in tasks for m in t.mutants]
    return list({m.file: m for m in (*mutants, *(h for t in tasks for h in t.hostile))}.values())


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in _lowered(text).strip().splitlines()) + "\n"


def _lowered(text: str) -> str:
    """Headings of a prompt as bold lines: they are not this page's."""
    lines = [f"**{line.lstrip('# ')}**" if line.startswith("#") else line for line in text.splitlines()]
    return "\n".join(lines)


def _workloads(tasks: tuple[Task, ...]) -> str:
    seen = {w.name: w for t in tasks for w in t.workloads}
    order = {"smoke": 0, "check": 1, "bench": 2}
    rows = [
        [
            f"`{w.name}`",
            w.role.value,
            " ".join(f"{n}={v}" for n, v in w.dimensions.items()),
            _words(getattr(w, "source", "") or ""),
        ]
        for w in sorted(seen.values(), key=lambda w: order[w.role.value])
    ]
    return _table(("workload", "role", "sizes", "source"), rows)


def _bounds(tasks: tuple[Task, ...]) -> str:
    rows = []
    for task in {t.member: t for t in tasks}.values():
        for output, bound in task.tolerance.items():
            numbers = (
                ["exact", "", ""] if bound.exact else [f"{bound.l2:g}", f"{bound.row_l2:g}", _element(bound)]
            )
            lower = task.lower_precision.get(output)
            rows.append([f"`{task.member}`", f"`{output}`", *numbers, lower.value if lower else ""])
    columns = ("member", "output", "whole (l2)", "worst row", "worst element", "must reject")
    return _table(columns, rows)


def _element(bound: Tolerance) -> str:
    own = f" + {bound.element_relative:g} of itself" if bound.element_relative else ""
    return f"{bound.element:g}{own}"


def _panel(tasks: tuple[Task, ...]) -> str:
    experts = {e.name: e for t in tasks for e in t.experts}
    rows = [[f"`{e.name}`", _words(e.title), ", ".join(e.packages)] for e in experts.values()]
    return _table(("expert", "what it is", "packages"), rows) if rows else "No expert is named.\n"


def _standings(tasks: tuple[Task, ...]) -> str:
    """What the panel's ranking on each GPU says, fastest first, and its share of the ceiling."""
    text = ""
    for file in sorted(panels.SHIPPED.glob("*.json")):
        known = panels.PanelFile.model_validate_json(file.read_bytes()).panels
        ceilings = next((c for c in all_ceilings() if c.slug == file.stem), None)
        rows, older = [], False
        for task in tasks:
            panel = known.get(task.id)
            older |= panel is not None and not is_release_of(panel.release, task)
            for workload in dict.fromkeys(s.workload for s in panel.standings) if panel else {}:
                ranked = panel.ranked(workload) if panel else ()
                times = ", ".join(f"{s.expert} {s.microseconds:.1f}" for s in ranked) or "none ran"
                share = _of_the_ceiling(task, workload, ranked, ceilings)
                rows.append([f"`{task.member}@{task.target.value}`", f"`{workload}`", times, share])
        if rows:
            text += (
                f"Experts on {file.stem}, microseconds of cold samples, fastest first, and how much of the "
            )
            text += "[card's ceiling](../measurement.md#the-opponent) the fastest reaches:\n\n"
            text += _table(("task", "workload", "experts", "of the ceiling"), rows)
            if tasks[0].opponent_note:
                text += f"\nWhy no more: {_words(tasks[0].opponent_note)}\n"
            if older:
                text += "\nSome of these were ranked for an earlier release of the task.\n"
    return text


def _of_the_ceiling(
    task: Task, workload: str, ranked: tuple[panels.Standing, ...], ceilings: Ceilings | None
) -> str:
    """The fastest expert's share in per cent; "" where it is not known or the workload is gone."""
    found = next((w for w in task.workloads if w.name == workload), None)
    if not ranked or ceilings is None or found is None or not ranked[0].microseconds:
        return ""
    best = ceiling_us(work(task, found), ceilings, arithmetic(task))
    return f"{best / ranked[0].microseconds:.0%}"


def _verdict_table(verdicts: list[Correct]) -> str:
    rows = []
    for v in verdicts:
        if v.timing.kind == "timed":
            t = v.timing
            figure = f"{t.ratio:.3f} [{t.low:.3f}, {t.high:.3f}]"
            rows.append([f"`{v.candidate}`", f"`{v.task}`", v.fingerprint.device, t.outcome, figure])
    if not rows:
        return ""
    return (
        "\nCommitted verdicts (ratio: the expert's time over the candidate's, 99 % interval):\n\n"
        + _table(("candidate", "task", "GPU", "outcome", "ratio"), rows)
    )


def _words(text: str) -> str:
    """Text for a table cell or a sentence: one line, nothing that Markdown would read."""
    return " ".join(text.split()).replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")


def _table(columns: tuple[str, ...], rows: list[list[str]]) -> str:
    head = "| " + " | ".join(columns) + " |\n|" + "---|" * len(columns) + "\n"
    return head + "".join("| " + " | ".join(row) + " |\n" for row in rows)
