"""Every tuned example of every task, and the CUB candidate: correct on the CPU judge, host code included."""

from __future__ import annotations

import pytest

from cudahercules.judge.grade import grade
from cudahercules.task.load import all_tasks

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

EXAMPLES = [
    pytest.param(task, file, id=f"{task.id}-{file}")
    for task in all_tasks()
    for file in task.candidates
    if "tuned" in file or "cub" in file
]


def test_each_family_with_a_tuned_example_is_here():
    families = {p.values[0].family for p in EXAMPLES}  # type: ignore[union-attr]
    assert len(families) >= 8 and len(EXAMPLES) >= 30


@pytest.mark.parametrize(("task", "file"), EXAMPLES)
def test_correct(task, file):
    verdict = grade(task, task.directory / file, "cpu", limit_s=120)
    assert verdict.kind == "correct", verdict
    assert {row.workload for row in verdict.checks} == {
        w.name for w in task.workloads if w.role.value != "bench"
    }
