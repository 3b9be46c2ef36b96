"""``hercules compare``: two candidates on the same inputs; facts, not speeds, where there is no GPU."""

from __future__ import annotations

import dataclasses

import pytest
from cli_candidates import LAUNCH, PRODUCT, TASK, candidate

from cudahercules.judge import compare as comparing
from cudahercules.judge.compare import Comparison, compare
from cudahercules.judge.verdict import NotTimed, Timed
from cudahercules.report.comparison import summary
from cudahercules.report.features import features, only_in, spills
from cudahercules.task.load import load_task


@pytest.fixture
def two(tmp_path):
    """Two right candidates; the second works twice and keeps the first result."""
    a, b = tmp_path / "a.cu", tmp_path / "b.cu"
    a.write_text(candidate(PRODUCT, LAUNCH))
    b.write_text(candidate(PRODUCT, LAUNCH + LAUNCH))
    return a, b


def test_counts_and_resources_side_by_side(hercules, two):
    ended = hercules("compare", *two, "--task", TASK, "--smoke", "--device", "cpu", "--json")
    comparison = Comparison.model_validate_json(ended.out)
    assert ended.code == 0 and comparison.task == TASK and comparison.device == "cpu emulator"
    assert comparison.first.seed == comparison.second.seed == comparison.seed  # the same inputs
    assert comparison.speed.kind == "not_timed" and "not a speed" in comparison.speed.reason
    (count,) = comparison.counts
    assert count.workload == "smoke" and count.first is not None
    assert count.second == 2 * count.first
    assert [k.launches for v in (comparison.first, comparison.second) for k in v.kernels] == [1, 2]


def test_as_text(hercules, two):
    out = hercules("compare", *two, "-t", TASK, "--smoke", "--device", "cpu", "--seed", "mine").out
    for part in (
        "A  a.cu  correct",
        "B  b.cu  correct",
        "not a speed",
        "A instructions",
        "0.50",
        "seed mine",
    ):
        assert part in out, out


def test_one_that_fails_is_explained_and_decides_the_exit_code(hercules, two):
    a, b = two
    b.write_text(candidate(PRODUCT.replace("p < k", "p < k - 1"), LAUNCH))
    ended = hercules("compare", a, b, "-t", TASK, "--smoke", "--device", "cpu")
    assert ended.code == 1 and "B  b.cu  incorrect" in ended.out
    assert "b.cu did not pass, so there is nothing to compare" in ended.out


@pytest.mark.parametrize("arguments", [("a.cu", "b.cu", "-t", "no/such"), ("none.cu", "b.cu", "-t", TASK)])
def test_wrong_use_is_explained(hercules, two, arguments, monkeypatch):
    monkeypatch.chdir(two[0].parent)
    ended = hercules("compare", *arguments, "--device", "cpu")
    assert ended.code == 2 and ended.err.startswith("hercules: ")


# --- the order of things on a GPU, with verdicts made here -----------------------------------------


class Played:
    """Stands for gradings on a card: pops a prepared verdict, remembers how it was asked."""

    def __init__(self, script, log):
        self.script, self.log = script, log

    def __call__(self, task, path, kind, *, roles, **_options):
        @dataclasses.dataclass
        class Candidate:
            sha256: str

        outer = self

        class One:
            candidate = Candidate(path.stem * 4)

            def verdict(self, rival=None):
                outer.log.append((path.name, roles is None, rival is not None))
                return outer.script.pop(0)

        return One()


@pytest.fixture
def made(hercules, two, monkeypatch):
    """Verdicts of the smoke workload from the CPU judge to play with, and a pretended card."""
    right = Comparison.model_validate_json(
        hercules("compare", *two, "-t", TASK, "--smoke", "--device", "cpu", "--json").out
    )
    monkeypatch.setattr(comparing, "choose_device", lambda _device: "gpu")

    def play(*script, **options):
        log = []
        monkeypatch.setattr(comparing, "Grading", Played(list(script), log))
        return compare(load_task(TASK), *two, **options), log

    first = right.first.model_copy(update={"candidate_sha256": "aaaa"})
    second = right.second.model_copy(update={"candidate_sha256": "bbbb"})
    return play, first, second


TIMED = Timed(outcome="faster", ratio=1.2, low=1.19, high=1.21, margin=0.01, workloads=())


def test_on_a_card_the_second_is_checked_first_and_then_takes_the_experts_place(made):
    play, first, second = made
    comparison, log = play(second, first.model_copy(update={"timing": TIMED}))
    assert log == [("b.cu", False, False), ("a.cu", True, True)]
    assert comparison.speed == TIMED and comparison.counts == ()
    assert isinstance(comparison.first.timing, NotTimed)  # the speed is the comparison's
    assert "A is faster: 1.200 [1.190, 1.210] times the speed of B" in summary(comparison)


def test_on_a_card_nothing_is_timed_against_a_wrong_answer(made):
    play, first, second = made
    wrong = load_wrong(second)
    comparison, log = play(wrong, first)
    assert log == [("b.cu", False, False), ("a.cu", False, False)]
    assert comparison.speed.kind == "not_timed" and comparison.exit_code == 3


def test_on_a_card_a_second_that_fails_at_a_timed_size_gets_its_own_verdict(made):
    play, first, second = made
    wrong = load_wrong(second)
    comparison, log = play(second, wrong, first)
    assert log == [("b.cu", False, False), ("a.cu", True, True), ("a.cu", False, False)]
    assert comparison.second.kind == wrong.kind and comparison.first.kind == "correct"


def load_wrong(verdict):
    from cudahercules.judge.verdict import InfrastructureError

    facts = {name: getattr(verdict, name) for name in ("task", "candidate", "candidate_sha256", "seed")}
    return InfrastructureError(
        message="lost", seconds=verdict.seconds, fingerprint=verdict.fingerprint, **facts
    )


# --- instruction mixes in words --------------------------------------------------------------------


def test_features_are_named_with_their_opcodes():
    mix = {"HGMMA.64x128x16.F32.BF16": 4, "LDG.128": 2, "LDG.32": 9, "FFMA": 100, "SHFL": 0, "UTMALDG": 1}
    found = features(mix)
    assert found["tensor-core products of a warp group"] == "HGMMA"
    assert found["16-byte loads"] == "LDG.128"
    assert "warp shuffles" not in found and "tensor-core products of a warp" not in found


def test_what_only_one_side_uses_and_nothing_where_a_mix_is_unknown():
    plain, tuned = {"LDG.32": 4, "FFMA": 1}, {"LDG.128": 1, "LDGSTS.128": 3, "LDS.128": 8, "FFMA": 64}
    assert only_in(tuned, plain)[0].startswith("asynchronous copies")
    assert only_in(plain, tuned) == [] and only_in(tuned, {}) == [] and only_in({}, plain) == []
    assert spills({"LDL.64": 2, "STL": 1, "LDG.32": 5}) == 3
