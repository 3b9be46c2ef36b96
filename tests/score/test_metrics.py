"""Metrics on pools whose values are known by hand, and the words where there is none."""

from __future__ import annotations

import csv
import io
import itertools
import json

import numpy as np
import pytest

from cudahercules.errors import UsageError
from cudahercules.score.bootstrap import interval
from cudahercules.score.metrics import NOT_JUDGED, NOT_TIMED, Value, compute, metrics, pass_at, pools
from cudahercules.score.record import Record, Speed, Usage
from cudahercules.score.summary import summaries
from cudahercules.score.table import render


def record(family: str, task: str, outcome: str = "correct", speed: float | None = None, **more) -> Record:
    fields = {
        "model": "m",
        "setting": "oneshot",
        "task": f"kernel/{family}/{task}@hopper",
        "family": f"kernel/{family}",
        "task_class": "kernel",
        "target": "hopper",
        "domain": "d",
        "epoch": 1,
        "device": "gpu",
        "compiled": outcome not in ("no_code", "build_error"),
        "speed": Speed(ratio=speed, low=speed - 0.06) if speed is not None else None,
    }
    return Record(outcome=outcome, **{**fields, **more})


def value(name: str, records, weighting="task") -> Value:
    metric = next(m for m in metrics(records) if m.name == name)
    return compute(metric, records, weighting)


FOUR = [
    record("a", "x", speed=1.1),
    record("a", "y", "incorrect"),
    record("a", "z", "build_error"),
    record("b", "x", speed=0.9),
]


def test_rates_and_speeds_by_hand_in_both_weightings():
    assert value("compile_rate", FOUR).value == 3 / 4
    assert value("pass_rate", FOUR).value == 2 / 4
    assert value("pass_rate", FOUR, "family").value == pytest.approx((1 / 3 + 1) / 2)
    assert value("mean_speed", FOUR).value == pytest.approx(2.0 / 4)  # zeros in
    assert value("mean_speed", FOUR, "family").value == pytest.approx((1.1 / 3 + 0.9) / 2)
    assert value("fast_0.8", FOUR).value == 2 / 4
    assert value("fast_1.05", FOUR).value == 1 / 4
    assert value("fast_1.05_strict", FOUR).value == 0  # the interval begins at 1.04
    got = value("pass_rate", FOUR)
    assert (got.tasks, got.families, got.answers) == (4, 2, 4)


def test_a_threshold_is_met_by_equality():
    assert value("fast_1", [record("a", "x", speed=1.0)]).value == 1.0


@pytest.mark.parametrize(("n", "c", "k"), [(5, 2, 3), (4, 0, 2), (4, 4, 1), (6, 1, 6), (3, 2, 2)])
def test_pass_at_k_is_the_share_of_draws_that_hold_a_right_answer(n, c, k):
    outcomes = np.array([1.0] * c + [0.0] * (n - c))
    draws = list(itertools.combinations(outcomes, k))
    assert pass_at(k)(outcomes) == pytest.approx(sum(any(d) for d in draws) / len(draws))


def test_pass_at_k_leaves_small_pools_out_and_counts_the_rest():
    big = [record("a", "x", o, epoch=i) for i, o in enumerate(["correct", "incorrect", "incorrect"])]
    records = [*big, record("b", "x")]
    assert value("pass@1", records).value == pytest.approx((1 / 3 + 1) / 2)
    got = value("pass@3", records)
    assert got.value == 1.0 and got.tasks == 1 and got.answers == 3
    assert [m.name for m in metrics(records) if m.name.startswith("pass@")] == ["pass@1", "pass@2", "pass@3"]
    with pytest.raises(ValueError, match="pool of 2"):
        pass_at(3)(np.array([1.0, 0.0]))


@pytest.mark.parametrize("kind", ["unsupported_on_cpu", "infrastructure_error", "invalid_measurement"])
def test_what_could_not_be_judged_is_in_no_denominator(kind):
    records = [record("a", "x"), record("b", "x", kind)]
    assert value("pass_rate", records).value == 1.0
    assert value("pass_rate", [record("a", "x", kind)]).note == NOT_JUDGED
    assert list(pools(records)) == ["kernel/a/x@hopper"]
    assert "1 not judged" in render(summaries(records), "md")


def test_a_right_answer_without_an_opponent_has_no_speed_rather_than_none():
    records = [record("a", "x", speed=0.8), record("b", "x")]
    assert value("mean_speed", records).value == 0.8 and value("mean_speed", records).answers == 1
    assert value("pass_rate", records).value == 1.0


def test_the_cpu_judge_has_no_speed_and_says_so():
    records = [record(f, "x", device="cpu") for f in "abcd"]
    for metric in metrics(records):
        got = compute(metric, records, "task")
        assert (got.value is None) == metric.needs_timing
        assert got.note == (NOT_TIMED if metric.needs_timing else "")
    table = render(summaries(records), "md")
    assert "| mean_speed, fast_0.5, " in table and "fast_1.05_strict | not timed | not timed | |" in table
    rows = list(csv.DictReader(io.StringIO(render(summaries(records), "csv"))))
    assert {r["value"] for r in rows if r["metric"].startswith(("fast", "mean"))} == {""}
    data = json.loads(render(summaries(records), "json"))
    assert all(r["value"] is None for r in data[0]["rows"] if r["metric"] == "mean_speed")


def test_an_interval_covers_the_value_and_needs_three_units():
    records = [record(f, "x", "correct" if i % 2 else "incorrect") for i, f in enumerate("abcdefghij")]
    got = value("pass_rate", records)
    assert got.low < got.value < got.high
    assert 0.15 <= got.low <= 0.3 and 0.7 <= got.high <= 0.85  # of ten coin tosses
    assert value("pass_rate", records[:2]).low is None
    many_tasks_one_family = [record("a", str(i)) for i in range(9)]
    assert value("pass_rate", many_tasks_one_family, "family").low is None


def test_the_family_interval_is_wider_where_tasks_of_a_family_go_together():
    outcomes = {"a": 1.0, "b": 0.0, "c": 1.0, "d": 0.0}
    families = [[np.array([v])] * 10 for v in outcomes.values()]
    task = interval(lambda v: v.mean(axis=-1), families, "task")
    family = interval(lambda v: v.mean(axis=-1), families, "family")
    assert family[1] - family[0] > 2 * (task[1] - task[0])


def test_intervals_repeat():
    records = [record(f, str(i), "correct" if i % 3 else "crash") for f in "abc" for i in range(4)]
    assert value("pass_rate", records) == value("pass_rate", records)


def test_summaries_keep_models_settings_and_judges_apart():
    records = [record("a", "x"), record("a", "x", setting="refine"), record("a", "x", device="cpu")]
    assert [(s.setting, s.device) for s in summaries(records)] == [
        ("oneshot", "gpu"),
        ("refine", "gpu"),
        ("oneshot", "cpu"),
    ]


def test_groups_effort_and_rounds_are_printed():
    usage = Usage(input_tokens=10, output_tokens=5, money=0.5, seconds=2.0)
    played = {"usage": usage, "rounds": 3, "regressions": 1, "cycles": 1, "drifts": 0, "guided_correct": True}
    records = [record("a", "x", **played), record("b", "x", "incorrect", **played)]
    text = render(summaries(records), "md")
    assert "| kernel/a |" in text and "| kernel/b |" in text
    assert "20 tokens in, 10 out, 1.00 US$, 4 s" in text
    assert "6 rounds (for an agent, checks) in 2 answers: 2 regressions, 2 cycles, 0 drifts" in text
    assert "not right in the final verdict 1" in text


def test_unknown_prices_are_not_zero():
    records = [record("a", "x", usage=Usage(money=1.0)), record("b", "x", usage=Usage())]
    assert summaries(records)[0].effort.money is None
    assert "price not known" in render(summaries(records), "md")


def test_an_unknown_format_is_explained():
    with pytest.raises(UsageError, match="md, csv, json"):
        render([], "xml")
