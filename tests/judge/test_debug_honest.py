"""No false alarm: every honest candidate of every bundled task runs its smoke workload without a finding."""

from __future__ import annotations

import pytest

from cudahercules.judge.bundled import bundled
from cudahercules.judge.debug import NotExamined, debug
from cudahercules.task.load import all_tasks

QUICK = {
    ("kernel/gemm/fp32@general", "tiled.cu", "late"),
    ("kernel/gemm/bf16@hopper", "tuned_hopper.cu", "random:1"),
}


def _cases() -> list[object]:
    cases = []
    for task in all_tasks():
        for candidate in bundled(task):
            if candidate.sort != "honest":
                continue
            orders = ("late", "random:1") if "@hopper" in task.id else ("late",)
            for order in orders:
                key = (task.id, candidate.file, order)
                marks = () if key in QUICK else (pytest.mark.slow,)
                beyond = candidate.file in task.beyond_emulator
                cases.append(pytest.param(*key, beyond, marks=marks, id=" ".join(key)))
    return cases


@pytest.mark.parametrize(("task", "file", "order", "may_be_beyond"), _cases())
def test_nothing_is_found(task, file, order, may_be_beyond):
    (candidate,) = [c for t in all_tasks() if t.id == task for c in bundled(t) if c.file == file]
    try:
        report = debug(task, candidate.path, asynchrony=order, seed="honest")
    except NotExamined:
        assert may_be_beyond
        return
    assert report.findings == () and report.answer == "right", report
