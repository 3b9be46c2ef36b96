"""What an agent may still spend, shown with every result of a tool."""

from __future__ import annotations

from collections.abc import Iterator

from inspect_ai.util import sample_limits


def budget_line(measured: int, measurements: int | None) -> str:
    """``[left: 13 of 20 rounds, 7 of 10 measurements, 41000 of 200000 tokens]``; what has no limit is left
    out. ``measurements`` is None where nothing can be measured."""
    parts = [*_limits()]
    if measurements is not None:
        parts.insert(1 if parts else 0, f"{measurements - measured} of {measurements} measurements")
    return f"[left: {', '.join(parts)}]" if parts else ""


def _limits() -> Iterator[str]:
    limits = sample_limits()
    for limit, unit in ((limits.turn, "rounds"), (limits.token, "tokens"), (limits.message, "messages")):
        if limit.limit is not None:
            yield f"{max(0, int(limit.limit - limit.usage))} of {int(limit.limit)} {unit}"
    if limits.cost.limit is not None:
        yield f"{max(0.0, limits.cost.limit - limits.cost.usage):.2f} of {limits.cost.limit:.2f} US$"
    if limits.time.limit is not None:
        yield f"{max(0, int(limits.time.limit - limits.time.usage))} of {int(limits.time.limit)} seconds"
