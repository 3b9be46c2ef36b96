"""Two candidates side by side, for a person at a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudahercules.names import demangled
from cudahercules.report.features import only_in, total
from cudahercules.report.paragraph import explanation
from cudahercules.report.terminal import clean, colour, cut, is_wide, say, table
from cudahercules.report.text import NAME_WIDTH, sizes, timing_table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from cudahercules.judge.compare import Comparison
    from cudahercules.judge.verdict import Correct, Timed, Verdict


def print_comparison(comparison: Comparison, out: Console) -> None:
    """Both verdicts, what decides between them, then the tables."""
    from rich.text import Text

    sides = (("A", comparison.first), ("B", comparison.second))
    for letter, verdict in sides:
        line = Text(f"{letter}  {clean(verdict.candidate)}  ", style="bold")
        out.print(line.append(verdict.kind, style=f"bold {colour(verdict.kind)}"))
        if verdict.kind != "correct":
            say(out, explanation(verdict), indent=3)
    say(out, summary(comparison))
    if comparison.speed.kind == "timed":
        out.print(timing_table(comparison.speed, is_wide(out)))
    if comparison.counts:
        out.print(_counts(comparison, is_wide(out)))
        say(out, "Instructions: PTX instructions that all threads execute, counted in the emulator.")
    if comparison.first.kind == comparison.second.kind == "correct":
        out.print(_kernels(comparison, is_wide(out)))
    say(out, f"{comparison.task} on {comparison.device}; seed {comparison.seed}", style="dim")


def summary(comparison: Comparison) -> str:
    """Who is faster, or why nothing can be said; and what one side uses that the other does not."""
    speed = comparison.speed
    text = _speed(speed) if speed.kind == "timed" else f"Not timed: {speed.reason}."
    if comparison.first.kind == comparison.second.kind == "correct":
        mine, other = _mix(comparison.first), _mix(comparison.second)
        for letter, one, two in (("A", mine, other), ("B", other, mine)):
            if uses := only_in(one, two):
                text += f" Only {letter} uses {'; '.join(uses)}."
    return text


def _speed(speed: Timed) -> str:
    figure = f"{speed.ratio:.3f} [{speed.low:.3f}, {speed.high:.3f}] times the speed of B"
    match speed.outcome:
        case "faster":
            return f"A is faster: {figure}."
        case "slower":
            return f"B is faster: A has {figure}."
        case "on_par":
            return f"A and B are equally fast within {speed.margin:.0%}: A has {figure}."
    return f"Which one is faster could not be told: A has {figure}."


def _mix(verdict: Correct) -> dict[str, int]:
    return total(k.instruction_mix for k in verdict.kernels)


def _counts(comparison: Comparison, wide: bool) -> Table:
    """Executed instructions a workload."""
    rows = []
    for count in comparison.counts:
        both = count.first is not None and count.second is not None
        ratio = f"{count.first / count.second:.2f}" if both and count.second else ""  # type: ignore[operator]
        numbers = [f"{n:,}" if n is not None else "too many" for n in (count.first, count.second)]
        rows.append([count.workload, *([sizes(count.dimensions)] if wide else []), *numbers, ratio])
    columns = ("workload", *(("sizes",) if wide else ()), "A instructions", "B instructions", "A/B")
    return table(columns, rows, right=("A instructions", "B instructions", "A/B"))


def _kernels(comparison: Comparison, wide: bool) -> Table:
    """Resources of both sides' kernels, as compiled."""
    rows = []
    verdicts: tuple[tuple[str, Verdict], ...] = (("A", comparison.first), ("B", comparison.second))
    for letter, verdict in verdicts:
        for k in verdict.kernels if verdict.kind == "correct" else ():
            name = demangled(k.name) if wide else cut(demangled(k.name), NAME_WIDTH)
            sass = str(sum(k.instruction_mix.values())) if k.instruction_mix else ""
            spills = f"{k.spill_stores}/{k.spill_loads}"
            rows.append([letter, name, str(k.registers), str(k.static_shared), spills, sass])
    columns = ("", "kernel", "registers", "shared B", "spills B", "SASS")
    return table(columns, rows, right=columns[2:])
