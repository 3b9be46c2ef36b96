"""Are the opponents strong? Every panel's winner against the card's ceiling and the best published figure.

``python -m cudahercules.suite.opponents [--gpu nvidia-h200] [--require]`` prints the table as Markdown, from
the shipped panels. With ``--require`` it fails where a winner is weak and its family does not say why.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cudahercules.errors import HerculesError, UsageError
from cudahercules.measure import panel as panels
from cudahercules.measure.ceilings import Ceilings, all_ceilings, arithmetic, rates
from cudahercules.measure.panel import PanelFile, Standing, TaskPanel
from cudahercules.measure.published import Published, published
from cudahercules.task.load import all_tasks, work
from cudahercules.task.model import Task, Workload, WorkloadRole
from cudahercules.task.releases import is_release_of

ENOUGH = 0.85
"""Of the ceiling: what a winner must reach."""
ENOUGH_OF_PUBLISHED = 0.95
"""Of the best figure published for the same card, which will do as well."""


@dataclass(frozen=True)
class Opponent:
    """The winner of one workload. Rates are in operations and bytes a second; ``of_measured`` and
    ``of_datasheet`` are fractions of the ceiling, the larger of its two parts (``bound`` names it)."""

    task: Task
    workload: Workload
    winner: Standing
    flops: float
    bytes: float
    bound: str
    of_measured: float
    of_datasheet: float
    best: Published | None
    same_card: bool
    current: bool  # ranked for the task as it is

    @property
    def of_published(self) -> float | None:
        if self.best is None:
            return None
        return (self.flops if self.best.unit == "flops" else self.bytes) / self.best.rate

    @property
    def strong(self) -> bool:
        beside = self.of_published if self.same_card else None
        return self.of_measured >= ENOUGH or (beside is not None and beside >= ENOUGH_OF_PUBLISHED)


def opponents(tasks: Iterable[Task], known: dict[str, TaskPanel], ceilings: Ceilings) -> list[Opponent]:
    """The winner of every bench workload that was ranked on such a GPU."""
    found = []
    for task in tasks:
        panel = known.get(task.id)
        for workload in task.workloads_of(WorkloadRole.BENCH) if panel else ():
            winner = panel.winner(workload.name) if panel else None
            if panel is not None and winner is not None and winner.microseconds:
                found.append(_opponent(task, workload, winner, panel, ceilings))
    return found


def _opponent(
    task: Task, workload: Workload, winner: Standing, panel: TaskPanel, ceilings: Ceilings
) -> Opponent:
    counted, dtype, seconds = work(task, workload), arithmetic(task), (winner.microseconds or 0.0) / 1e6
    moved = counted.bytes_read + counted.bytes_written

    def least_s(measured: bool) -> tuple[float, str]:
        bandwidth, rate = rates(ceilings, dtype, measured=measured)
        return max((moved / bandwidth, "memory"), (counted.flops / rate if rate else 0.0, dtype.value))

    (measured_s, bound), (datasheet_s, _) = least_s(True), least_s(False)
    best = published(task)
    return Opponent(
        task=task,
        workload=workload,
        winner=winner,
        flops=counted.flops / seconds,
        bytes=moved / seconds,
        bound=bound,
        of_measured=measured_s / seconds,
        of_datasheet=datasheet_s / seconds,
        best=best,
        same_card=best is not None and best.gpu in ceilings.names,
        current=is_release_of(panel.release, task),
    )


def page(found: Sequence[Opponent], gpu: str) -> str:
    """The table as Markdown, with the families that are weak and say why, and those that do not."""
    weak = [o for o in found if not o.strong]
    reasons = {o.task.family: " ".join(o.task.opponent_note.split()) for o in weak}
    silent = unexplained(found)
    lines = [
        f"# Opponents on {gpu}\n",
        f"The fastest correct expert of each bench workload, {len(found)} in all; {len(found) - len(weak)} "
        f"reach {ENOUGH:.0%} of the ceiling (or {ENOUGH_OF_PUBLISHED:.0%} of the best figure published for "
        "this card). *Bound* is what limits the textbook algorithm: memory, or arithmetic in the precision "
        "that is named. Rates count that algorithm's operations, and every operand moved once. *Measured* "
        "and *datasheet* are shares of the card's ceiling by the best rates that were measured and by the "
        "datasheet's.\n",
        "| task | workload | winner | µs | bound | rate | measured | datasheet | published | |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *map(_line, found),
    ]
    if any(not o.current for o in found):
        lines.append("\n* ranked before the task was changed.")
    if any(o.best is not None for o in found):
        lines.append("\n## Published figures\n")
        lines += dict.fromkeys(_cited(o) for o in found if o.best is not None)
    lines.append("\n## Weak, and why\n")
    lines += [f"* `{family}`: {why}" for family, why in reasons.items() if why] or ["None."]
    if silent:
        lines.append("\n## Weak, without a reason\n")
        lines += [f"* `{family}`: {shares}" for family, shares in silent.items()]
    return "\n".join(lines)


def unexplained(found: Iterable[Opponent]) -> dict[str, str]:
    """Families with a weak winner that have no ``opponent_note``, each with its shares of the ceiling."""
    shares: dict[str, list[float]] = {}
    for opponent in found:
        if not opponent.strong and not opponent.task.opponent_note:
            shares.setdefault(opponent.task.family, []).append(opponent.of_measured)
    return {
        family: f"{len(s)} workloads, {min(s):.0%} to {max(s):.0%}" for family, s in sorted(shares.items())
    }


def _line(o: Opponent) -> str:
    rate = f"{o.bytes / 1e12:.2f} TB/s" if o.bound == "memory" else f"{o.flops / 1e12:.1f} TFLOP/s"
    beside = ""
    if o.of_published is not None and o.best is not None:
        beside = f"{o.of_published:.0%}" + ("" if o.same_card else f" ({o.best.gpu})")
    cells = (
        f"`{o.task.id}`" + ("" if o.current else " *"),
        f"`{o.workload.name}`",
        f"{o.winner.expert}" + (", eager" if o.winner.method == "eager" else ""),
        f"{o.winner.microseconds:.1f}",
        o.bound,
        rate,
        f"{o.of_measured:.0%}",
        f"{o.of_datasheet:.0%}",
        beside,
        "" if o.strong else "weak",
    )
    return f"| {' | '.join(cells)} |"


def _cited(o: Opponent) -> str:
    assert o.best is not None
    unit = "TFLOP/s" if o.best.unit == "flops" else "TB/s"
    other = "" if o.same_card else ": not the same card"
    figure = f"{o.best.rate / 1e12:g} {unit} on {o.best.gpu}{other}"
    return f"* `{o.best.tasks}`: {figure}. {o.best.what} ({o.best.source})."


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m cudahercules.suite.opponents", description=__doc__)
    parser.add_argument("--gpu", default="nvidia-h200", help="the name of a panel file")
    parser.add_argument("--panels", type=Path, default=panels.SHIPPED, help="where panel files lie")
    parser.add_argument("--require", action="store_true", help="fail where a weak winner has no reason")
    options = parser.parse_args(arguments)
    try:
        ceilings = next((c for c in all_ceilings() if c.slug == options.gpu), None)
        file = options.panels / f"{options.gpu}.json"
        if ceilings is None or not file.is_file():
            raise UsageError(f"--gpu {options.gpu}: there are no ceilings, or there is no {file}")
        found = opponents(all_tasks(), PanelFile.model_validate_json(file.read_bytes()).panels, ceilings)
    except (HerculesError, ValueError) as error:
        print(error, file=sys.stderr)
        return getattr(error, "exit_code", 2)
    print(page(found, ceilings.names[0]))
    return 1 if options.require and unexplained(found) else 0


if __name__ == "__main__":
    sys.exit(main())
