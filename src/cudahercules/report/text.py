"""Verdicts and tables for a person at a terminal.

Names, messages and compiler output come from candidates: everything is shown through :func:`clean`, so
that no control character reaches the terminal, and never read as rich's markup.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TextIO

from cudahercules.names import demangled

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from cudahercules.judge.verdict import Checked, KernelReport, Timed, Verdict

PLAIN_WIDTH = 132
"""Columns where the output is not a terminal."""

_BRIEF = {
    "nan": "are NaN",
    "infinite": "are infinite",
    "unwritten": "never written",
    "outside_buffer": "beside it changed",
    "input_changed": "changed, it is an input",
    "tolerance": "wrong",
    "not_equal": "differ",
}
_COLOURS = {
    "correct": "green",
    "unsupported_on_cpu": "yellow",
    "invalid_measurement": "yellow",
    "infrastructure_error": "yellow",
}


def console(stream: TextIO | None = None) -> Console:
    """A console that neither guesses at highlights nor wraps a file's output at 80 columns."""
    from rich.console import Console

    stream = stream or sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else PLAIN_WIDTH
    return Console(file=stream, width=width, highlight=False, soft_wrap=False, markup=False)


def clean(text: str) -> str:
    """``text`` without control characters; line breaks and tabs stay."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    *,
    right: Sequence[str] = (),
) -> Table:
    """A plain table; columns named in ``right`` are aligned to the right."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for name in columns:
        grid.add_column(name, justify="right" if name in right else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(cell if isinstance(cell, Text) else Text(clean(cell)) for cell in row))
    return grid


def cut(text: str, width: int) -> str:
    """The first line of ``text``, with an ellipsis where it is longer than ``width``."""
    line = text.split("\n", 1)[0]
    return line if len(line) <= width else line[: max(0, width - 1)] + "\N{HORIZONTAL ELLIPSIS}"


def coloured(kind: str) -> Text:
    """A verdict's kind in its colour."""
    from rich.text import Text

    return Text(kind, style=_COLOURS.get(kind, "red"))


def print_verdict(verdict: Verdict, out: Console) -> None:
    """One verdict: headline, explanation, then what is behind it."""
    from rich.text import Text

    headline = Text(clean(verdict.candidate), style="bold")
    headline.append("  ")
    headline.append(verdict.kind, style=f"bold {_COLOURS.get(verdict.kind, 'red')}")
    if verdict.kind == "correct":
        headline.append(
            f"  {verdict.timing.kind if verdict.timing.kind == 'not_timed' else verdict.timing.outcome}"
        )
    out.print(headline)
    out.print(Text(clean(explanation(verdict))), soft_wrap=True)
    if verdict.kind == "build_error":
        for line in diagnostics(verdict.diagnostics):
            out.print(Text(clean(line)), soft_wrap=True)
    if verdict.kind == "crash":
        for thread in verdict.fault.threads:
            out.print(Text(clean(f"  {thread}")), soft_wrap=True)
    if verdict.kind == "crash" and verdict.fault.printed:
        out.print(Text(clean("printed by the device: " + verdict.fault.printed[:2000])), soft_wrap=True)
    checked = verdict.checks if verdict.kind == "correct" else getattr(verdict, "passed", ())
    if checked:
        out.print(_checks(checked))
    if verdict.kind == "correct":
        out.print(_kernels(verdict.kernels))
        if verdict.timing.kind == "timed":
            out.print(_timing(verdict.timing))
    out.print(Text(_footer(verdict), style="dim"), soft_wrap=True)


def explanation(verdict: Verdict) -> str:
    """One sentence: what happened, and where."""
    if verdict.kind == "correct":
        count = len(verdict.checks)
        text = f"All outputs of {count} workload{'s' * (count != 1)} are right"
        if verdict.timing.kind == "not_timed":
            return f"{text}. Not timed: {verdict.timing.reason}."
        t = verdict.timing
        return f"{text}; {t.ratio:.3f} times the expert's speed [{t.low:.3f}, {t.high:.3f}]."
    workload = getattr(verdict, "workload", "")
    where = f"In workload {workload}: " if workload else ""
    return f"{where}{verdict.message}{_source(verdict)}"


def brief(verdict: Verdict) -> str:
    """A few words for one line of a table; :func:`explanation` says it in full."""
    if verdict.kind == "correct":
        count = sum(len(row.outputs) for row in verdict.checks)
        return f"{count} outputs of {len(verdict.checks)} workloads are right"
    workload = getattr(verdict, "workload", "")
    where = f"{workload}: " if workload else ""
    if verdict.kind == "incorrect":
        wrong = verdict.wrong
        return f"{where}{wrong.output}: {wrong.wrong} of {wrong.total} elements {_BRIEF[wrong.reason]}"
    if verdict.kind == "build_error" and verdict.diagnostics:
        first = verdict.diagnostics[0]
        return f"{first.file}:{first.line}: {first.text}"
    return (where + verdict.message).splitlines()[0]


def _source(verdict: Verdict) -> str:
    """Where the fault happened, if the message does not already say so."""
    if verdict.kind != "crash" or not verdict.fault.kernel:
        return ""
    fault = verdict.fault
    parts = [f"kernel {fault.kernel}"] if fault.kernel not in fault.message else []
    if fault.block is not None and "block" not in fault.message:
        parts.append(f"block {fault.block}")
    if fault.thread is not None and "thread" not in fault.message:
        parts.append(f"thread {fault.thread}")
    if fault.file and f"{fault.file}:{fault.line}" not in fault.message:
        parts.append(f"{fault.file}:{fault.line}")
    return f" ({', '.join(parts)})" if parts else ""


def diagnostics(messages: Sequence, limit: int = 8) -> list[str]:
    """Compiler messages as ``file:line: severity: text``, errors first, cut after ``limit``."""
    ordered = sorted(messages, key=lambda m: m.severity != "error")
    lines = [f"  {m.file}:{m.line}: {m.severity}: {m.text}" for m in ordered[:limit]]
    if len(ordered) > limit:
        lines.append(f"  and {len(ordered) - limit} more messages (--json has them all)")
    return lines


def sizes(dimensions: dict[str, int]) -> str:
    return " ".join(f"{name}={value}" for name, value in dimensions.items())


def _checks(rows: Sequence[Checked]) -> Table:
    """Errors beside their bounds; an exact output shows none."""
    cells = []
    for row in rows:
        for check in row.outputs:
            errors = (
                ["exact", "", ""]
                if check.exact
                else [
                    f"{check.l2:.1e} / {check.l2_bound:.0e}",
                    f"{check.row_l2:.1e} / {check.row_l2_bound:.0e}",
                    f"{check.element:.1e} / {check.element_bound:.0e}",
                ]
            )
            launches, seconds = str(row.launches), f"{row.seconds:.2f}"
            cells.append([row.workload, sizes(row.dimensions), check.output, *errors, launches, seconds])
    columns = ("workload", "sizes", "output", "error / bound", "worst row", "worst element", "launches", "s")
    return table(columns, cells, right=("error / bound", "worst row", "worst element", "launches", "s"))


def _kernels(kernels: Sequence[KernelReport]) -> Table:
    rows = [
        [
            demangled(k.name),
            str(k.launches),
            str(k.registers),
            str(k.static_shared),
            f"{k.spill_stores}/{k.spill_loads}",
            " ".join(
                f"{name}:{count}"
                for name, count in sorted(k.instruction_mix.items(), key=lambda i: -i[1])[:6]
            ),
        ]
        for k in kernels
    ]
    columns = ("kernel", "launches", "registers", "shared B", "spills B", "instructions")
    return table(columns, rows, right=columns[1:5])


def _timing(timing: Timed) -> Table:
    rows = [
        [
            w.workload,
            w.outcome,
            f"{w.ratio:.3f}",
            f"[{w.low:.3f}, {w.high:.3f}]",
            f"{w.candidate_us:.1f}",
            f"{w.expert_us:.1f}",
            w.expert,
            f"{w.pairs} in {w.instances}",
        ]
        for w in timing.workloads
    ]
    columns = ("workload", "outcome", "ratio", "interval", "candidate us", "expert us", "expert", "pairs")
    return table(columns, rows, right=("ratio", "interval", "candidate us", "expert us"))


def _footer(verdict: Verdict) -> str:
    f, s = verdict.fingerprint, verdict.seconds
    return (
        f"{verdict.task} on {f.device}, sm_{f.architecture}; build {s.build:.2f} s, record {s.record:.2f} s, "
        f"run {s.run:.2f} s, check {s.check:.2f} s, total {s.total:.2f} s; seed {verdict.seed}"
    )
