"""The corpus says what it must about every case, covers the known hacks, and its page is current."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from cudahercules.errors import TaskError, UsageError
from cudahercules.judge.lint import lint
from cudahercules.judge.verdict import Verdict
from cudahercules.redteam import corpus
from cudahercules.redteam.corpus import CLASSES, GROUND, REFUSED, chosen, load_corpus
from cudahercules.redteam.table import updated
from cudahercules.task.load import load_family

PAGE = Path(__file__).parents[2] / "docs/threat-model.md"
CASES = load_corpus()
KNOWN_ROWS = {"A": 14, "B": 12, "C": 5, "D": 14}
"""The list of known hacks: not doing the work, passing without it, other people's kernels, the instrument."""
NOT_EXPRESSIBLE = {
    "C2": "a candidate that inherits from the reference: there are no classes behind a C ABI",
}
"""Its rows for which no CUDA candidate can be written, and why."""


def test_page_is_current():
    assert PAGE.read_text() == updated(PAGE.read_text()), (
        "run: python -m cudahercules.redteam.table docs/threat-model.md"
    )


def test_there_are_enough():
    assert sum(not c.honest for c in CASES) >= 60
    assert sum(c.honest for c in CASES) >= 25
    assert {c.group for c in CASES} == set(CLASSES)


def test_every_known_hack_has_an_exploit():
    known = {f"{letter}{n}" for letter, last in KNOWN_ROWS.items() for n in range(1, last + 1)}
    covered = {row for c in CASES for row in c.rows}
    assert covered <= known
    assert known - covered == set(NOT_EXPRESSIBLE)


KINDS = {t.model_fields["kind"].default for t in get_args(get_args(Verdict)[0])}


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_a_case_is_complete(case):
    workloads = {w.name for w in case.task.workloads}
    for expected in case.expected.values():
        assert set(expected.verdict.split(" or ")) <= KINDS | {REFUSED}
        assert set(filter(None, expected.workload.split(" or "))) <= workloads
        re.compile(expected.says)
    assert case.expected["cpu"].says or "correct" in case.expected["cpu"].verdict, "say the reason, too"
    for text in (case.does, case.seen, case.stops):
        assert len(text) < 140 and not text.endswith(".")


def test_no_two_are_the_same():
    assert len({c.sha256 for c in CASES}) == len(CASES)
    assert len({c.does for c in CASES}) == len(CASES)


@pytest.mark.parametrize("name", ["product", "doubled", "pair"])
def test_the_ground_proves_its_bounds(name):
    (task, *_) = load_family(GROUND / "kernel" / name)
    report = lint(task, "cpu")
    assert report.ok, [r for r in report.rows if r.outcome == "failed"]


def test_patterns():
    assert {c.group for c in chosen(CASES, "plans")} == {"plans"}
    assert [c.name for c in chosen(CASES, "deep_nesting")] == ["plans/deep_nesting"]
    assert all("cache" in c.name for c in chosen(CASES, "*cache*"))
    with pytest.raises(UsageError, match="no case has this name"):
        chosen(CASES, "nonsense")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"attack.cu": "// does: x\n"}, "has no expect.yaml"),
        ({"expect.yaml": "cpu: {verdict: correct}\n"}, "neither attack.cu"),
        ({"expect.yaml": "cpu: 1\n", "attack.cu": "// does: x\n"}, "expect.yaml"),
        ({"expect.yaml": "cpu: {verdict: correct}\n", "attack.cu": "// does: x\n"}, "do not say seen, stops"),
    ],
)
def test_an_incomplete_case_is_named(tmp_path, files, message):
    folder = tmp_path / "work" / "mine"
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    with pytest.raises(TaskError, match=f"work/mine.*{message}"):
        corpus._load(folder)
