"""Rewards: their values at the edges, and that nothing is made up where nothing was measured."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from made_verdicts import broken, case, timed, wrong

from cudahercules.judge.verdict import NotTimed as NotTimedVerdict
from cudahercules.rewards import (
    NotJudged,
    NotTimed,
    correctness,
    discounted,
    milestone,
    profile_share,
    roofline,
    speed,
)

EXAMPLE = Path(__file__).parents[2] / "examples" / "multi_turn_environment.py"
ON_CPU = case().correct([], [], NotTimedVerdict(reason="no GPU"))
FUNCTIONS = (correctness, speed, milestone, roofline)


@pytest.mark.parametrize("verdict", [wrong(), broken()])
def test_what_is_not_right_earns_nothing(verdict):
    assert correctness(verdict) == speed(verdict) == roofline(verdict) == profile_share(verdict, ["k"]) == 0
    assert milestone(verdict) == -1


@pytest.mark.parametrize("reward", FUNCTIONS)
def test_verdicts_about_us_have_no_reward(reward):
    for verdict in (case().infrastructure_error("fire"), case().invalid_measurement("hot")):
        with pytest.raises(NotJudged):
            reward(verdict)


def test_the_cpu_judge_pays_for_right_answers_and_never_for_speed():
    assert correctness(ON_CPU) == 1
    for reward in (speed, milestone, roofline):
        with pytest.raises(NotTimed):
            reward(ON_CPU)


def test_speed_and_its_strict_form():
    assert speed(timed({"a": 0.5, "b": 2.0})) == pytest.approx(1.0)
    assert speed(timed({"a": 0.9}, width=0.1), strict=True) == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("ratio", "reward"), [(0.3, 1), (0.525, 1), (0.53, 2), (1.0, 2), (1.05, 2), (1.051, 3)]
)
def test_milestones_lie_five_per_cent_above_baseline_and_expert(ratio, reward):
    assert milestone(timed({"a": ratio}), baseline=0.5) == reward


def test_discounted_sums_by_hand():
    assert discounted([1.0, 0.0, 2.0]) == pytest.approx([1 + 0.4 * 0.8, 0.8, 2.0])
    assert discounted([]) == []
    with pytest.raises(ValueError, match="discount"):
        discounted([1.0], 1.0)


def test_roofline_is_a_mean_of_shares_of_one():
    assert roofline(timed({"a": 0.5, "b": 2.0})) == pytest.approx((0.4 + 1.0) / 2)  # 1.6 counts as 1


def test_the_share_of_launches_that_are_the_candidates_own():
    assert profile_share(timed({"a": 1.0}), ["k"]) == 1.0
    assert profile_share(timed({"a": 1.0}), ["elsewhere"]) == 0.0


def test_the_example_plays_an_episode(capsys):
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("mutants/no_maximum.cu: reward 0; **incorrect**")
    assert lines[1].startswith("naive.cu: reward 1; **correct**")
    assert lines[2] == "returns: [0.4, 1.0]"
