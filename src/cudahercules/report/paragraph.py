"""A verdict in words that a person can act on: what is wrong, or how far from the expert and why.

:func:`explanation` is the paragraph, :func:`brief` a few words for one line of a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cudahercules.report.features import only_in, total

if TYPE_CHECKING:
    from cudahercules.judge.verdict import Checked, Correct, Timed, TimedWorkload, Verdict, WrongOutput

_BRIEF = {
    "nan": "are NaN",
    "infinite": "are infinite",
    "unwritten": "never written",
    "outside_buffer": "beside it changed",
    "input_changed": "changed, it is an input",
    "tolerance": "wrong",
    "not_equal": "differ",
}
_HINTS = {
    "unwritten": "Outputs hold poison before the call, and no thread wrote these: look at the size of the "
    "grid and at the masks of the last blocks.",
    "nan": "NaN comes from 0 / 0 and infinity - infinity (an exponential that vanishes or overflows), from a "
    "sum that starts from the output, which holds NaN before the call, or from memory that nobody wrote.",
    "infinite": "Something overflows: look at exponentials and at the type of sums.",
    "input_changed": "Inputs are read-only: take scratch memory from cudaMallocAsync.",
    "outside_buffer": "Look at the last index that is stored.",
}
FEWEST = 0.001
"""Under this share of wrong elements a percentage says nothing."""
FEW = 0.05
"""Up to this share of wrong elements the edges are to blame first, above nine tenths the formula."""


def explanation(verdict: Verdict) -> str:
    """What happened, where, and what to look at."""
    if verdict.kind == "correct":
        timing = verdict.timing
        if timing.kind == "not_timed":
            return f"{_right(verdict.checks)} Not timed: {timing.reason}."
        return " ".join((_speed(timing), *_gap(timing), *_uses(verdict, timing), *_review(timing)))
    workload = getattr(verdict, "workload", "")
    where = f"In workload {workload}: " if workload else ""
    text = f"{where}{verdict.message}{_source(verdict)}"
    if verdict.kind == "crash" and verdict.fault.cause:
        text = f"{text.rstrip('.')}. Likely cause: {verdict.fault.cause}"
    if verdict.kind == "incorrect":
        text = f"{text.rstrip('.')}. {'' if verdict.right_in else hint(verdict.wrong)}".rstrip()
        names = [row.workload for row in verdict.passed]
        if names:
            text += f" Passed before: {', '.join(names)}."
    return text


def hint(wrong: WrongOutput) -> str:
    """Where a person would look first; "" where nothing sensible can be said."""
    if wrong.reason in _HINTS:
        return _HINTS[wrong.reason]
    share = wrong.wrong / max(1, wrong.total)
    if wrong.reason not in ("tolerance", "not_equal"):
        return ""
    if share <= FEW:
        few = f"Only {share:.1%}" if share >= FEWEST else "Very few"
        return f"{few} of the elements: look at edges, tails and special values."
    if share >= 0.9:
        return "Nearly every element: look at the formula, the strides and the precision of sums."
    return ""


def _right(checks: Sequence[Checked]) -> str:
    """That all is right, and how near to the bounds it came."""
    count = len(checks)
    text = f"All outputs of {count} workload{'s' * (count != 1)} are right"
    shares = [(share(o), row.workload) for row in checks for o in row.outputs if not o.exact]
    if shares:
        worst, where = max(shares)
        text += f"; the largest error is {worst:.0%} of its bound (in {where})"
    return text + "."


def share(check) -> float:
    """The largest error of an output as a fraction of its bound."""
    pairs = (
        (check.l2, check.l2_bound),
        (check.row_l2, check.row_l2_bound),
        (check.element, check.element_bound),
    )
    return max((error / bound for error, bound in pairs if bound > 0), default=0.0)


# --- speed ---------------------------------------------------------------------------------------


def opponents(timing: Timed) -> str:
    """The names of the opponents, each once."""
    return ", ".join(dict.fromkeys(w.expert for w in timing.workloads))


def _speed(timing: Timed) -> str:
    """The figure, and what it means."""
    names, many = opponents(timing), len(timing.workloads) > 1
    mean = f" over {len(timing.workloads)} workloads" if many else ""
    figure = f"{timing.ratio:.3f} times the speed of {names} [{timing.low:.3f}, {timing.high:.3f}]{mean}"
    match timing.outcome:
        case "faster":
            return f"Right, and faster than the opponent: {figure}."
        case "on_par":
            return f"Right, and as fast as the opponent within {timing.margin:.0%}: {figure}."
        case "slower":
            return f"Right, but slower: {figure}, so it takes {1 / timing.ratio:.2f} times as long."
    return f"Right; the speed could not be told from the opponent's: {figure}."


def _gap(timing: Timed) -> list[str]:
    """The workload that loses most, with what there is still to be had."""
    worst = min(timing.workloads, key=lambda w: w.ratio)
    if worst.ratio >= 1 - worst.margin:
        return []
    text = (
        f"The largest gap is {worst.workload}: {worst.candidate_us:.1f} us against {worst.expert_us:.1f} us "
        f"of {worst.expert} (ratio {worst.ratio:.3f})"
    )
    if worst.ceiling_fraction > 0:
        theirs = worst.ceiling_fraction * worst.candidate_us / worst.expert_us
        text += (
            f"; that is {worst.ceiling_fraction:.0%} of the card's ceiling, the opponent reaches {theirs:.0%}"
        )
    return [text + "."]


def _uses(verdict: Correct, timing: Timed) -> list[str]:
    """What the opponent's code has and the candidate's lacks, at the largest gap."""
    worst: TimedWorkload = min(timing.workloads, key=lambda w: w.ratio)
    if worst.ratio >= 1 - worst.margin:
        return []
    if not worst.expert_instructions:
        return [f"What {worst.expert} runs was not read (its kernels are a library's or made at run time)."]
    missing = only_in(worst.expert_instructions, total(k.instruction_mix for k in verdict.kernels))
    if not missing:
        return []
    return [f"{worst.expert} uses what this does not: {'; '.join(missing)}."]


def _review(timing: Timed) -> list[str]:
    """Remarks that change how the figure is to be read."""
    texts = [f"{w.workload}: {flag}" for w in timing.workloads for flag in w.flags if "floor" in flag]
    if timing.panel_missing:
        texts.append(f"not in the panel here: {', '.join(timing.panel_missing)}")
    if timing.panel_note:
        texts.append(timing.panel_note)
    return [f"Note: {'; '.join(texts)}."] if texts else []


# --- in short ------------------------------------------------------------------------------------


def brief(verdict: Verdict) -> str:
    """A few words for one line of a table; :func:`explanation` says it in full."""
    if verdict.kind == "correct":
        if verdict.timing.kind == "timed":
            t = verdict.timing
            return f"{t.outcome}: {t.ratio:.3f} times {opponents(t)} [{t.low:.3f}, {t.high:.3f}]"
        count = sum(len(row.outputs) for row in verdict.checks)
        return f"{count} outputs of {len(verdict.checks)} workloads are right"
    workload = getattr(verdict, "workload", "")
    where = f"{workload}: " if workload else ""
    if verdict.kind == "incorrect":
        wrong = verdict.wrong
        return f"{where}{wrong.output}: {wrong.wrong} of {wrong.total} elements {_BRIEF[wrong.reason]}"
    if verdict.kind == "build_error" and verdict.diagnostics:
        first = min(verdict.diagnostics, key=lambda d: d.severity != "error")
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
