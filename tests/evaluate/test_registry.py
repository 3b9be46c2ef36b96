"""Inspect finds the tasks, the scorer, the agent and the replay provider through the entry point."""

from __future__ import annotations

import tomllib
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

import pytest

pytest.importorskip("inspect_ai")

from inspect_ai import eval

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
DECLARED = PROJECT["entry-points"]["inspect_ai"]


def test_the_entry_point_names_a_module_with_all_that_inspect_should_find():
    module = import_module(DECLARED["cudahercules"])
    for name in ("oneshot", "refine", "agent", "judged", "coder_and_judge", "replay"):
        assert name in module.__all__ and callable(getattr(module, name))


def test_inspect_runs_a_task_by_its_name(tmp_path):
    """Only where the package itself is installed, as it is for users; from a source tree nothing is found."""
    if not [e for e in entry_points(group="inspect_ai") if e.name == "cudahercules"]:
        pytest.skip("the package is not installed with its entry points: pip install -e .")
    folder = tmp_path / "answers"
    (folder / "oneshot").mkdir(parents=True)
    (folder / "oneshot" / "1.md").write_text("I have no code.")
    options = {"tasks": ["kernel/gemm/fp32", "kernel/softmax/fp32"], "device": "cpu"}
    (log,) = eval(
        "cudahercules/oneshot",
        model=f"replay/{folder}",
        task_args=options,
        log_dir=str(tmp_path / "logs"),
        display="none",
    )
    assert log.status == "success" and log.eval.task == "cudahercules/oneshot"
    assert [s.scores["judge"].metadata["record"]["outcome"] for s in log.samples] == ["no_code"] * 2
