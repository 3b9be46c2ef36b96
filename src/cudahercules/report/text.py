"""Verdicts for a person at a terminal: headline, paragraph, tables, footer.

The paragraph comes from :mod:`cudahercules.report.paragraph`, colours and widths from
:mod:`cudahercules.report.terminal`. Tables have a narrow form for 80 columns; ``--json`` has every number.
"""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote
from typing import TYPE_CHECKING

from cudahercules.names import demangled
from cudahercules.report.paragraph import brief, explanation, opponents
from cudahercules.report.terminal import clean, colour, coloured, console, cut, is_wide, say, table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from cudahercules.build.artifact import CompilerMessage
    from cudahercules.judge.verdict import Checked, KernelReport, OutputCheck, Timed, Verdict

__all__ = ["brief", "clean", "coloured", "console", "cut", "explanation", "print_verdict", "say", "table"]

NAME_WIDTH = 30
"""Columns of a kernel's name in the narrow table; templates have long ones."""


def print_verdict(verdict: Verdict, out: Console) -> None:
    """One verdict: headline, what to make of it, then what is behind it."""
    from rich.text import Text

    headline = Text(clean(verdict.candidate), style="bold")
    headline.append("  ")
    headline.append(verdict.kind, style=f"bold {colour(verdict.kind)}")
    if verdict.kind == "correct":
        timing = verdict.timing
        headline.append(f"  {timing.kind if timing.kind == 'not_timed' else timing.outcome}")
    out.print(headline)
    say(out, explanation(verdict))
    if verdict.kind == "build_error":
        # The message is made of the first.
        for line in diagnostics([d for d in verdict.diagnostics if not _is_said(d, verdict.message)]):
            say(out, line)
    if verdict.kind == "crash":
        for thread in verdict.fault.threads:
            say(out, thread, indent=2)
    if verdict.kind == "crash" and verdict.fault.printed:
        say(out, "printed by the device: " + verdict.fault.printed[:2000])
    if verdict.kind == "correct" and verdict.timing.kind == "timed":
        out.print(timing_table(verdict.timing, is_wide(out)))
    checked = verdict.checks if verdict.kind == "correct" else getattr(verdict, "passed", ())
    if checked:
        out.print(checks_table(checked, is_wide(out)))
    if verdict.kind == "correct":
        out.print(kernels_table(verdict.kernels, is_wide(out)))
    if step := next_step(verdict):
        say(out, step)
    for line in footer(verdict):
        say(out, line, style="dim")


def _is_said(diagnostic: CompilerMessage, message: str) -> bool:
    place = f"{diagnostic.file}:{diagnostic.line}" if diagnostic.line else diagnostic.file
    return place in message and diagnostic.text in message


def diagnostics(messages: Sequence, limit: int = 8) -> list[str]:
    """Compiler messages as ``file:line: severity: text``, errors first, cut after ``limit``."""
    ordered = sorted(messages, key=lambda m: m.severity != "error")
    lines = [f"  {m.file}:{m.line}: {m.severity}: {m.text}" for m in ordered[:limit]]
    if len(ordered) > limit:
        lines.append(f"  and {len(ordered) - limit} more messages (--json has them all)")
    return lines


def sizes(dimensions: dict[str, int]) -> str:
    return " ".join(f"{name}={value}" for name, value in dimensions.items())


def checks_table(rows: Sequence[Checked], wide: bool) -> Table:
    """Errors beside their bounds, or in the narrow form as a share of them; an exact output shows none."""
    cells = []
    for row in rows:
        for check in row.outputs:
            errors = [_error(check, name, wide) for name in ("l2", "row_l2", "element")]
            more = [str(row.launches), f"{row.seconds:.2f}"] if wide else []
            cells.append([row.workload, sizes(row.dimensions), check.output, *errors, *more])
    columns: tuple[str, ...] = ("workload", "sizes", "output", "error/bound", "row", "element")
    if wide:
        columns = (*columns[:3], "error / bound", "worst row", "worst element", "launches", "s")
    return table(columns, cells, right=columns[3:], whole=("workload", "output", *columns[3:]))


def _error(check: OutputCheck, name: str, wide: bool) -> str:
    if check.exact:
        return "exact" if name == "l2" else ""
    error, bound = getattr(check, name), getattr(check, f"{name}_bound")
    if wide:
        return f"{error:.1e} / {bound:.0e}"
    return f"{error / bound:.1%}" if bound else f"{error:.1e}"


def kernels_table(kernels: Sequence[KernelReport], wide: bool) -> Table:
    """Resources as compiled and the most frequent SASS instructions."""
    rows = [
        [
            demangled(k.name) if wide else cut(demangled(k.name), NAME_WIDTH),
            str(k.launches),
            str(k.registers),
            str(k.static_shared),
            f"{k.spill_stores}/{k.spill_loads}",
            instructions(k.instruction_mix, 6 if wide else 2),
        ]
        for k in kernels
    ]
    if wide:
        columns = ("kernel", "launches", "registers", "shared B", "spills B", "instructions")
    else:
        columns = ("kernel", "runs", "regs", "shared", "spills", "instructions")
    return table(columns, rows, right=columns[1:5], whole=columns[1:5])


def instructions(mix: dict[str, int], most: int) -> str:
    """The most frequent ones."""
    ordered = sorted(mix.items(), key=lambda item: -item[1])
    return " ".join(f"{name}:{count}" for name, count in ordered[:most])


def timing_table(timing: Timed, wide: bool) -> Table:
    """One row a bench workload; times in microseconds."""
    many = "," in opponents(timing)
    rows = []
    for w in timing.workloads:
        interval = f"[{w.low:.3f}, {w.high:.3f}]"
        row = [
            w.workload,
            w.outcome,
            f"{w.ratio:.3f}",
            interval,
            f"{w.candidate_us:.1f}",
            f"{w.expert_us:.1f}",
        ]
        row += [w.expert] if wide or many else []
        rows.append([*row, f"{w.pairs} in {w.instances}"] if wide else row)
    columns = ["workload", "outcome", "ratio", "interval", "us", "opponent us"]
    columns += ["opponent"] if wide or many else []
    columns += ["pairs in instances"] if wide else []
    return table(columns, rows, right=("ratio", "interval", "us", "opponent us"), whole=columns[:6])


def next_step(verdict: Verdict) -> str:
    """The command that looks for the cause of what the CPU judge saw; "" where it cannot."""
    if verdict.fingerprint.device != "cpu emulator" or not getattr(verdict, "workload", ""):
        return ""
    if verdict.kind not in ("incorrect", "crash", "timeout") or getattr(verdict, "stage", "run") != "run":
        return ""
    if verdict.kind == "crash" and verdict.fault.what == "host_code":
        return ""
    order = getattr(verdict, "asynchrony", "")
    more = f" --async {order}" if order else ""
    return (
        f"To look closer: hercules debug {verdict.task} {quote(verdict.candidate)} "
        f"--workload {verdict.workload}{more} --seed {verdict.seed}"
    )


def footer(verdict: Verdict) -> tuple[str, str]:
    """Where and with what; how long it took."""
    f, s = verdict.fingerprint, verdict.seconds
    return (
        f"{verdict.task} on {f.device}, sm_{f.architecture}; seed {verdict.seed}",
        f"build {s.build:.2f} s, record {s.record:.2f} s, run {s.run:.2f} s, check {s.check:.2f} s, "
        f"total {s.total:.2f} s",
    )
