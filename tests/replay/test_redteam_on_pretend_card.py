"""scripts/gpu/redteam.sh from end to end on the pretend H200, where no kernel computes anything: what ends
before the card is as it must be, and what comes after it gets a timed verdict."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


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
            **more,
        }
        command = [ROOT / "scripts/gpu/redteam.sh", *arguments]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=250, check=False
        )

    return run


def rows(path):
    return {r["case"]: r for r in map(json.loads, (path / "redteam.jsonl").read_text().splitlines())}


def test_what_ends_before_the_card(script, tmp_path):
    done = script("--only", "plans/*inp*")
    assert done.returncode == 0, done.stdout + done.stderr
    found = rows(tmp_path)
    assert set(found) == {"plans/copies_over_inputs", "plans/scratch_over_an_input"}
    assert {r["got"] for r in found.values()} == {"contract_error"}
    assert "2 cases, 0 not as expected, 0 not tried" in done.stdout


@pytest.mark.slow
def test_controls_are_timed_and_a_second_call_goes_on(script, tmp_path):
    first = script("--only", "controls/*graph*", LIMIT="4")
    assert first.returncode == 124 and "call it again" in first.stdout
    done = script("--only", "controls/*graph*", LIMIT="200")
    assert "0 not tried" in done.stdout, done.stdout + done.stderr
    found = rows(tmp_path)
    assert {r["got"] for r in found.values()} == {"correct"} and all(r["ratio"] for r in found.values())
    assert all("NVIDIA H200" in r["machine"] for r in found.values())
