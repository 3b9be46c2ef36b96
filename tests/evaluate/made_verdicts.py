"""Verdicts as the GPU judge gives them, made by hand: for everything that only looks at verdicts."""

from __future__ import annotations

from cudahercules.judge.protocol import Case
from cudahercules.judge.verdict import (
    BuildError,
    Correct,
    Incorrect,
    KernelReport,
    Timed,
    TimedWorkload,
    WrongOutput,
)
from cudahercules.task.load import load_task
from cudahercules.task.model import Task

SOFTMAX = load_task("kernel/softmax/fp32@general")


def case(task: Task = SOFTMAX) -> Case:
    return Case(task=task, candidate="solution.cu", candidate_sha256="0" * 64, seed="s", clock=lambda: 1.0)


def timed(speeds: dict[str, float], width: float = 0.02, mix: dict[str, int] | None = None) -> Correct:
    """A right answer with these ratios by workload, each within ``width`` of its interval's ends."""
    rows = tuple(_row(name, ratio, width) for name, ratio in speeds.items())
    ratio = 1.0
    for row in rows:
        ratio *= row.ratio ** (1 / len(rows))
    timing = Timed(
        outcome="slower" if ratio < 1 else "faster",
        ratio=ratio,
        low=ratio - width,
        high=ratio + width,
        margin=0.01,
        workloads=rows,
    )
    return case().correct([], [_kernel(mix or {"FFMA": 100})], timing)


def _row(name: str, ratio: float, width: float) -> TimedWorkload:
    return TimedWorkload(
        workload=name,
        outcome="slower",
        method="events",
        expert="vendor",
        margin=0.01,
        level=0.99,
        pairs=40,
        instances=2,
        looks=1,
        checked_samples=8,
        ratio=ratio,
        low=ratio - width,
        high=ratio + width,
        candidate_us=100.0 / ratio,
        expert_us=100.0,
        floor_us=50.0,
        ceiling_fraction=0.8 * ratio,
        expert_instructions={"FFMA": 10, "LDGSTS.128": 4},
    )


def _kernel(mix: dict[str, int]) -> KernelReport:
    return KernelReport(
        name="k",
        launches=3,
        instruction_mix=mix,
        registers=40,
        static_shared=1024,
        spill_stores=8,
        spill_loads=4,
        parameters=(),
        local=0,
        constant=0,
        max_threads=1024,
    )


def wrong(workload: str = "odd", passed: int = 1) -> Incorrect:
    output = WrongOutput(
        output="y", reason="tolerance", message="y: 3 of 9 elements are wrong", wrong=3, total=9
    )
    return (
        case()
        .incorrect(workload, output, [])
        .model_copy(update={"passed": tuple(_checked() for _ in range(passed))})
    )


def _checked():
    from cudahercules.judge.verdict import Checked

    return Checked(
        workload="smoke",
        role="smoke",
        seed="1",
        dimensions={},
        outputs=(),
        launches=1,
        plan_sha256="",
        seconds=0.1,
    )


def broken() -> BuildError:
    return case().build_error("solution.cu:1: error: no", ())
