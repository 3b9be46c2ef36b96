"""Every family on the CPU judge: its simplest member in the default tier, all tasks in the slow one.

Each task is a test of its own, so that workers can share them; about 20 seconds of one processor from a cold
cache."""

import os

import pytest

from cudahercules.judge.lint import lint
from cudahercules.judge.lint_log import first_members
from cudahercules.judge.mechanical import mechanical_rows
from cudahercules.task.load import all_tasks, load_task

FIRST = {t.id for t in first_members(all_tasks())}
OTHERS = [t.id for t in all_tasks() if t.id not in FIRST]
WORKERS = 1 if "PYTEST_XDIST_WORKER" in os.environ else 2


def prove(name: str) -> None:
    report = lint(load_task(name), "cpu", workers=WORKERS)
    assert [row for row in report.rows if row.outcome == "failed"] == []
    assert any(row.sort == "mutant" for row in report.rows)
    assert any(row.sort == "honest" and row.got == "correct" for row in report.rows)


@pytest.mark.parametrize("name", sorted(FIRST))
def test_a_member_of_each_family(name):
    prove(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_all_others(name):
    prove(name)


LOOKED_AT = ("kernel/gemm", "kernel/rotary", "kernel/syrk", "module/layernorm_fwd")
"""Families in which every change by machine that passes was looked at."""


@pytest.mark.slow
@pytest.mark.parametrize("family", LOOKED_AT)
def test_mistakes_made_by_machine_are_seen(family):
    (name,) = [n for n in FIRST if n.startswith(f"{family}/")]
    rows = mechanical_rows(load_task(name), workers=WORKERS)
    assert [row for row in rows if row.outcome == "failed"] == []
    assert rows[0].outcome == "ok"
