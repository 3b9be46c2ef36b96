"""From a measurement to the rows of a verdict, with floor, ceiling and flags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cudahercules.judge.paired import Measured, task_figure
from cudahercules.judge.verdict import Timed, TimedWorkload
from cudahercules.measure.ceilings import arithmetic, ceiling_us, floor_us, load_ceilings
from cudahercules.measure.panel import TaskPanel
from cudahercules.task.load import work
from cudahercules.task.model import Task, Workload
from cudahercules.task.releases import is_release_of


def workload_row(
    task: Task, workload: Workload, expert: str, m: Measured, gpu_name: str, notes: Sequence[str] = ()
) -> TimedWorkload:
    """The verdict's row of one bench workload; ``notes`` become flags."""
    ceilings = load_ceilings(gpu_name)
    amount, dtype = work(task, workload), arithmetic(task)
    floor = floor_us(amount, ceilings, dtype) if ceilings else 0.0
    best = ceiling_us(amount, ceilings, dtype) if ceilings else 0.0
    flags = [*notes, *m.flags]
    fastest = float(m.samples.candidate_us.min())
    if ceilings is None:
        flags.append(f"no ceilings are known for {gpu_name}: no floor, no fraction of the ceiling")
    elif fastest < floor:
        flags.append(
            f"below the floor: a sample of {fastest:.1f} us, and reading the operands takes {floor:.1f} us "
            "at the datasheet's bandwidth; for review, no proof of anything"
        )
    readings = [block.after for block in m.blocks]
    return TimedWorkload(
        workload=workload.name,
        outcome=m.outcome,
        method=m.method,
        expert=expert,
        margin=m.margin,
        level=1 - m.estimate.error,
        pairs=m.samples.pairs,
        instances=m.samples.instances,
        looks=m.looks,
        checked_samples=m.checked,
        ratio=m.estimate.ratio,
        low=m.estimate.low,
        high=m.estimate.high,
        candidate_us=m.candidate_us,
        expert_us=m.expert_us,
        warm_candidate_us=m.warm_candidate_us,
        warm_expert_us=m.warm_expert_us,
        floor_us=floor,
        ceiling_fraction=best / m.candidate_us,
        candidate_samples_us=_flat(m.samples.candidate_us),
        expert_samples_us=_flat(m.samples.expert_us),
        sm_clock_mhz=tuple(r.sm_clock_mhz for r in readings if r.sm_clock_mhz is not None),
        power_w=tuple(round(r.power_w, 1) for r in readings if r.power_w is not None),
        throttle_ns=m.throttle_ns,
        flags=tuple(flags),
        design=m.design.name,
        pause_ms=round(m.pause_ms, 3),
        repeated_blocks=m.repeated,
        temperature_c=tuple(r.temperature_c for r in readings if r.temperature_c is not None),
        solo_expert_us=tuple(round(t, 3) for t in m.solo_us),
        outside_clock=m.outside_clock,
    )


def _flat(times) -> tuple[float, ...]:
    return tuple(round(float(t), 3) for t in times.reshape(-1))


def task_row(
    task: Task,
    rows: Sequence[TimedWorkload],
    measured: Sequence[Measured],
    panel: TaskPanel | None,
    usable: Sequence[str],
    untimed: Mapping[str, str],
    secret: int,
) -> Timed:
    """The task's figure and what of the panel it was judged against. The figure is over the workloads that
    were timed; with others ``untimed`` (why, by their names) it decides nothing."""
    figure = task_figure(measured, secret)
    return Timed(
        outcome="unresolved" if untimed else figure.outcome,
        ratio=figure.estimate.ratio,
        low=figure.estimate.low,
        high=figure.estimate.high,
        margin=figure.margin,
        workloads=tuple(rows),
        panel=tuple(e.name for e in task.experts if e.name in usable),
        panel_missing=tuple(e.name for e in task.experts if e.name not in usable),
        panel_date=panel.date if panel else "",
        panel_note="; ".join(filter(None, (panel_note(task, panel), *_without_opponent(untimed)))),
        untimed=dict(untimed),
    )


def _without_opponent(untimed: Mapping[str, str]) -> list[str]:
    return [f"{workload} was not timed, no opponent is left: {why}" for workload, why in untimed.items()]


def panel_note(task: Task, panel: TaskPanel | None) -> str:
    """What a reader should know about how the opponent was chosen."""
    if panel is None:
        return "the panel was never ranked on this GPU: the opponent is the first expert that runs here"
    if not is_release_of(panel.release, task):
        return f"the panel was ranked on {panel.date} for another release of this task ({panel.release})"
    return ""
