"""scripts/gpu/suite.sh from end to end on the pretend H200, where no kernel computes anything: everybody's
answer is right there, so that mutants are not as expected, and honest candidates and experts are."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TASKS = ("kernel/softmax/bf16@general", "module/layernorm_fwd/fp32_4096@general")


@pytest.fixture
def script(tmp_path):
    """``script(*arguments, **environment)`` → finished process; results in ``tmp_path``."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python3").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (tmp_path / "bin/python3").chmod(0o755)

    def run(*arguments, **more):
        environment = {
            **os.environ,
            "PYTHONPATH": str(HERE / "fake_card"),
            "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "OUT": str(tmp_path),
            "WHEELS": str(tmp_path / "none"),
            **more,
        }
        command = [ROOT / "scripts/gpu/suite.sh", *arguments]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=280, check=False
        )

    return run


def reports(path):
    return [json.loads(line) for line in (path / "suite.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_tasks_are_proved_and_a_later_call_goes_on(script, tmp_path):
    first = script(TASKS[0])
    errors = (tmp_path / "suite.err").read_text()
    assert first.returncode == 1, first.stdout + errors  # mutants: no kernel computes anything here
    (report,) = reports(tmp_path)
    assert report["task"] == TASKS[0] and report["machine"].startswith("NVIDIA H200")
    rows = {r["subject"]: r for r in report["rows"]}
    assert rows["naive.cu"]["outcome"] == "ok" and rows["naive.cu"]["share"] == 0.0
    assert rows["tuned on gpt2_vocabulary"]["outcome"] == "ok"
    assert rows["mutants/no_maximum.cu"]["got"] == "correct"
    assert not any(r["sort"] == "answer" for r in report["rows"])
    panel = json.loads((tmp_path / "nvidia-h200.json").read_text())["panels"][TASKS[0]]
    outcomes = {s["expert"]: s["outcome"] for s in panel["standings"]}
    assert outcomes["tuned"] == "ranked" and outcomes["torch_compile"] == "missing"
    assert {"coming up", "grading", "ranking"} <= set(report["seconds"])

    script(*TASKS)
    assert [r["task"] for r in reports(tmp_path)] == list(TASKS)
    third = script(*TASKS)
    assert len(reports(tmp_path)) == 2 and "2 tasks on NVIDIA H200" in third.stdout


@pytest.mark.slow
def test_panels_alone(script, tmp_path):
    assert script(TASKS[0], "--no-candidates").returncode == 1  # the pretend PyTorch has no softmax
    (report,) = reports(tmp_path)
    assert {r["sort"] for r in report["rows"]} == {"expert"}
    assert report["panel"]["standings"]


@pytest.mark.slow
def test_a_budget_that_ends_says_what_is_left(script, tmp_path):
    done = script(*TASKS, BUDGET="5")
    assert done.returncode == 10, done.stdout
    assert f"out of time: {TASKS[0]}, and 1 more left of 2 tasks" in done.stdout
    assert reports(tmp_path) == []


def test_wrong_use_is_one_sentence(script, tmp_path):
    done = script("--shard", "3/2", TASKS[0])
    assert done.returncode == 2 and "give K/N" in done.stdout and "Traceback" not in done.stdout
