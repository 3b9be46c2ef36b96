"""What ``debug`` found, for a person at a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cudahercules.report.paragraph import hint
from cudahercules.report.terminal import BAD, GOOD, clean, say

if TYPE_CHECKING:
    from rich.console import Console

    from cudahercules.emulator.findings import Finding
    from cudahercules.judge.debug import DebugReport


_WITHOUT_KERNEL = ("race", "missing_wait", "missing_fence", "uninitialised", "mbarrier_misuse")
"""Kinds whose sentence does not name the kernel."""


def print_report(report: DebugReport, out: Console) -> None:
    """Headline, findings in the order in which they came, whether the answer was right, how to repeat it."""
    from rich.text import Text

    count = len(report.findings)
    words = f"{count} finding{'s' * (count != 1)}" if count else "nothing found"
    headline = Text(clean(report.candidate), style="bold")
    headline.append("  ")
    headline.append(words, style=f"bold {GOOD if report.is_clean else BAD}")
    out.print(headline)
    for number, finding in enumerate(report.findings, 1):
        _print_finding(number, finding, out)
    say(out, _answer(report))
    if report.printed:
        say(out, "printed by the device: " + report.printed[:2000])
    say(
        out,
        f"{report.task}, workload {report.workload}; asynchronous work {report.asynchrony}; "
        f"seed {report.seed}; {report.seconds:.1f} s",
        style="dim",
    )


def _print_finding(number: int, finding: Finding, out: Console) -> None:
    say(out, f"{number}. {finding.message}")
    for line in (*_details(finding), f"Likely cause: {finding.cause}" if finding.cause else ""):
        if line:
            say(out, line, indent=3)


def _details(finding: Finding) -> list[str]:
    """What the sentence does not say."""
    lines = []
    place = finding.place
    if finding.kind in _WITHOUT_KERNEL and place.kernel:
        block = ",".join(map(str, place.block)) if place.block else ""
        if f"kernel {place.kernel}" not in finding.message:
            lines.append(f"kernel {place.kernel}" + (f", block {block}" if block else ""))
    count = getattr(finding, "count", 1)
    if count > 1 and lines:
        lines[0] += f"; {count} times"
    if finding.kind == "deadlock" or finding.kind == "mismatched_mask":
        lines += [group.message for group in finding.groups]
    return lines


def _answer(report: DebugReport) -> str:
    if report.answer == "right":
        return "The answer is right." if report.is_clean else "The answer is right here, as luck has it."
    if report.wrong is None:
        return "The answer is unknown: the run did not end."
    text = f"The answer is wrong: {report.wrong.message.rstrip('.')}."
    return text if report.findings else f"{text} {hint(report.wrong)}".rstrip()
