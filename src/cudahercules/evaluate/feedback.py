"""A guidance verdict as the words that a model gets: what is wrong and where, or how fast and why not faster.

No seed, no held-back workload and no source of an expert goes in.
"""

from __future__ import annotations

from collections.abc import Iterator

from cudahercules.evaluate.trajectory import Round, Trajectory
from cudahercules.judge.verdict import Correct, KernelReport, Timed, Verdict
from cudahercules.names import demangled
from cudahercules.report.features import features, only_in, total
from cudahercules.report.paragraph import explanation
from cudahercules.report.text import diagnostics, sizes
from cudahercules.task.model import Task

THREADS = 6
"""Groups of threads that a report of a deadlock shows."""


def feedback(task: Task, verdict: Verdict | None, extraction: str) -> str:
    """What guidance found, in Markdown. ``extraction`` says what was taken from the answer; without a verdict
    there was no code in it."""
    if verdict is None:
        return f"{extraction} Nothing was graded."
    lines = [f"**{verdict.kind}**. {explanation(verdict)}", *_details(task, verdict)]
    return "\n".join(lines)


def _details(task: Task, verdict: Verdict) -> Iterator[str]:
    if verdict.kind == "build_error" and verdict.diagnostics:
        yield ""
        yield from (line.strip() for line in diagnostics(verdict.diagnostics))
    if verdict.kind == "crash":
        yield from (f"* {threads}" for threads in verdict.fault.threads[:THREADS])
    name = getattr(verdict, "workload", "")
    for workload in task.workloads:
        if workload.name == name:
            yield f"\nSizes of {name}: {sizes(workload.dimensions)}."
    if verdict.kind == "correct":
        yield from _speed(verdict)
        yield ""
        yield from kernel_lines(verdict.kernels)
        yield from _features(verdict)


def _speed(verdict: Correct) -> Iterator[str]:
    if verdict.timing.kind != "timed":
        return
    yield ""
    yield "| workload | yours, us | expert, us | expert / yours | interval | of the ceiling |"
    yield "|---|---|---|---|---|---|"
    for w in verdict.timing.workloads:
        ceiling = f"{w.ceiling_fraction:.0%}" if w.ceiling_fraction > 0 else "not known"
        yield (
            f"| {w.workload} | {w.candidate_us:.1f} | {w.expert_us:.1f} | {w.ratio:.3f} "
            f"| {w.low:.3f} to {w.high:.3f} | {ceiling} |"
        )


def kernel_lines(kernels: tuple[KernelReport, ...]) -> Iterator[str]:
    """One line a kernel: launches, registers, shared memory, spills."""
    for k in kernels:
        spills = f", spills {k.spill_stores + k.spill_loads} bytes" if k.spill_stores + k.spill_loads else ""
        yield (
            f"* `{demangled(k.name)}`: {k.launches} launches, {k.registers} registers a thread, "
            f"{k.static_shared} bytes of static shared memory{spills}"
        )


def _features(verdict: Correct) -> Iterator[str]:
    mine = total(k.instruction_mix for k in verdict.kernels)
    if mine:
        yield f"* Machine code: {feature_text(mine)}"
    if isinstance(verdict.timing, Timed):
        for w in verdict.timing.workloads:
            if missing := only_in(w.expert_instructions, mine):
                yield f"* In {w.workload} the expert has what this has not: {'; '.join(missing)}"


def feature_text(mix: dict[str, int]) -> str:
    """What the machine code shows: tensor cores, wide loads, asynchronous copies, ..."""
    found = features(mix)
    return (
        "; ".join(f"{phrase} [{ops}]" for phrase, ops in found.items()) or "nothing beyond plain arithmetic"
    )


# --- rounds --------------------------------------------------------------------------------------


def round_message(trajectory: Trajectory, found: str, number: int, of: int) -> str:
    """The message that asks for round ``number``: what the last round came to, and the best so far."""
    last, best = trajectory.rounds[-1], trajectory.best
    parts = [f"What your answer of round {last.number} came to:\n\n{found}", *_remarks(last, best)]
    if best is not None and best.number != last.number:
        parts.append(f"The best so far is round {best.number} ({standing(best)}):\n\n{fenced(best.files)}")
    parts.append(f"{round_heading(number, of)}\n\n{_what_next(best)} Answer with the complete program.")
    return "\n\n".join(parts)


def round_heading(number: int, of: int) -> str:
    return f"## Round {number} of {of}"


def standing(of: Round) -> str:
    """A round's outcome in a few words."""
    return f"{of.outcome}, {of.speed:.3f} times the expert's speed" if of.speed is not None else of.outcome


def _remarks(last: Round, best: Round | None) -> Iterator[str]:
    if last.repeats is not None:
        yield f"This is the code of round {last.repeats} again: try something else."
    elif last.drift:
        yield "This is right, but slower than what you had."
    elif last.regression and best is not None:
        yield f"This is a step back: round {best.number} was {standing(best)}."


def _what_next(best: Round | None) -> str:
    if best is None or best.outcome != "correct":
        return "Make it right first."
    if best.speed is None:
        return "It is right. Make it faster (speed cannot be measured here), and keep it right."
    return "Make it faster, and keep it right."


def fenced(files: dict[str, str]) -> str:
    """Sources as the blocks that an answer consists of."""
    if len(files) == 1:
        return f"```cuda\n{next(iter(files.values())).rstrip()}\n```"
    return "\n\n".join(f"```cuda file={name}\n{text.rstrip()}\n```" for name, text in files.items())
