"""All metrics of all groups: what ``hercules score`` prints, as typed rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from cudahercules.score.metrics import WEIGHTINGS, Metric, Value, compute, metrics
from cudahercules.score.record import NO_CODE, Record
from cudahercules.task.model import Model

GROUPINGS = ("task_class", "target", "domain", "family")
EVERYTHING = "all"


class Row(Model):
    """One metric of one group in one weighting. ``value`` is None where ``note`` says why; ``low`` and
    ``high`` are None where there are too few units for an interval."""

    group: str
    member: str
    metric: str
    weighting: str
    value: float | None
    low: float | None
    high: float | None
    tasks: int
    families: int
    answers: int
    not_judged: int
    note: str
    is_share: bool


class Effort(Model):
    """Totals over all answers. ``money`` is None where a model's price is not known for all of them."""

    answers: int
    input_tokens: int
    output_tokens: int
    money: float | None
    seconds: float | None


class Rounds(Model):
    """Settings with rounds: over the answers that had them. ``misled`` are answers that were right under
    guidance and not in the final verdict; of ``guided_correct`` many."""

    answers: int
    rounds: int
    regressions: int
    cycles: int
    drifts: int
    guided_correct: int
    misled: int


class Summary(Model):
    """One model in one setting on one kind of judge. ``outcomes`` counts all answers."""

    model: str
    setting: str
    device: str
    outcomes: dict[str, int]
    rows: tuple[Row, ...]
    definitions: dict[str, str]
    effort: Effort
    rounds: Rounds | None


def summaries(records: Sequence[Record]) -> tuple[Summary, ...]:
    """One summary for each combination of model, setting and judge, in the order of their first record."""
    found: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        found.setdefault((record.model, record.setting, record.device), []).append(record)
    return tuple(_summary(*key, group) for key, group in found.items())


def _summary(model: str, setting: str, device: str, records: Sequence[Record]) -> Summary:
    chosen = metrics(records)
    return Summary(
        model=model,
        setting=setting,
        device=device,
        outcomes=_outcomes(records),
        rows=tuple(_rows(chosen, records)),
        definitions={m.name: m.definition for m in chosen},
        effort=_effort(records),
        rounds=_rounds(records),
    )


def _outcomes(records: Sequence[Record]) -> dict[str, int]:
    counts = Counter(r.outcome for r in records)
    order = ("correct", "incorrect", "crash", "timeout", "contract_error", "build_error", NO_CODE)
    names = [*(o for o in order if o in counts), *sorted(set(counts) - set(order))]
    return {name: counts[name] for name in names}


def _rows(chosen: Sequence[Metric], records: Sequence[Record]) -> Iterator[Row]:
    groups: list[tuple[str, str, Sequence[Record]]] = [(EVERYTHING, "", records)]
    for grouping in GROUPINGS:
        members = sorted({getattr(r, grouping) for r in records})
        groups += [(grouping, m, [r for r in records if getattr(r, grouping) == m]) for m in members]
    for grouping, member, group in groups:
        for metric in chosen:
            for weighting in WEIGHTINGS:
                if grouping == "family" and weighting == "family":
                    continue  # one family: both weightings are the same
                value = compute(metric, group, weighting)
                yield _row(grouping, member, metric, weighting, value, group)


def _row(
    grouping: str, member: str, metric: Metric, weighting: str, value: Value, group: Sequence[Record]
) -> Row:
    return Row(
        group=grouping,
        member=member,
        metric=metric.name,
        weighting=weighting,
        value=value.value,
        low=value.low,
        high=value.high,
        tasks=value.tasks,
        families=value.families,
        answers=value.answers,
        not_judged=sum(not r.judged for r in group),
        note=value.note,
        is_share=metric.is_share,
    )


def _effort(records: Sequence[Record]) -> Effort:
    money = [r.usage.money for r in records]
    seconds = [r.usage.seconds for r in records]
    return Effort(
        answers=len(records),
        input_tokens=sum(r.usage.input_tokens for r in records),
        output_tokens=sum(r.usage.output_tokens for r in records),
        money=None if None in money else sum(m for m in money if m is not None),
        seconds=None if None in seconds else sum(s for s in seconds if s is not None),
    )


def _rounds(records: Sequence[Record]) -> Rounds | None:
    played = [r for r in records if r.rounds is not None]
    if not played:
        return None
    guided = [r for r in played if r.guided_correct]
    return Rounds(
        answers=len(played),
        rounds=sum(r.rounds or 0 for r in played),
        regressions=sum(r.regressions or 0 for r in played),
        cycles=sum(r.cycles or 0 for r in played),
        drifts=sum(r.drifts or 0 for r in played),
        guided_correct=len(guided),
        misled=sum(r.judged and not r.correct for r in guided),
    )
