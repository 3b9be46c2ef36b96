"""scripts/gpu/eval.sh on the pretend H200, where no kernel computes anything and every answer that runs is
right: the way from an answer over the GPU's queue to speeds, without their worth."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("inspect_ai")

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_script_times_the_demos_answers_in_all_settings(tmp_path):
    (tmp_path / "python3").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (tmp_path / "python3").chmod(0o755)
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "tests/replay/fake_card"),
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "OUT": str(tmp_path / "out"),
        "WHEELS": str(tmp_path / "none"),
        "TASKS": "kernel/softmax/fp32",
        "SAMPLES": "10",
    }
    done = subprocess.run(
        [ROOT / "scripts/gpu/eval.sh"], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = {}
    for name in ("oneshot", "refine", "agent", "coder_and_judge"):
        (summary,) = json.loads((tmp_path / "out" / f"{name}.json").read_text())
        assert summary["device"] == "gpu"
        found[name] = summary
        rows = {(r["group"], r["metric"], r["weighting"]): r["value"] for r in summary["rows"]}
        assert rows["all", "mean_speed", "task"] > 0
    assert found["oneshot"]["outcomes"] == {
        "correct": 5,  # the wrong answer, too: nothing is computed here
        "contract_error": 1,
        "build_error": 1,
        "no_code": 3,
    }
    assert found["refine"]["rounds"]["rounds"] == 7  # all of them: here speed can guide
    assert "ncu" in (tmp_path / "out" / "tools.txt").read_text()
