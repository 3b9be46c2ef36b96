"""Nothing that a stranger sends makes a reader fail otherwise than it promises (fuzz.py says how)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from mutate import damaged, mutated, places

from fuzz import fuzz, row

HERE = Path(__file__).parent
LEAST = {"plan": 0.1, "recording": 0.1, "family": 0.05, "evidence": 0.2, "file of verdicts": 0.3}
"""Shares that must be accepted: else the inputs are too damaged to reach what lies behind the parsers."""


@pytest.mark.parametrize(
    "inputs", [3000, pytest.param(100_000, marks=[pytest.mark.slow, pytest.mark.timeout(7200)])]
)
def test_readers_accept_or_refuse(inputs, tmp_path):
    tallies = fuzz(inputs, 20261201, tmp_path)
    for name, tally in tallies.items():
        print(name, row(tally))
        assert not tally.findings, (name, tally.findings)
        assert tally.accepted >= LEAST[name] * tally.inputs, (name, row(tally))
        assert tally.accepted < tally.inputs
    assert sum(t.inputs for t in tallies.values()) == inputs


def test_the_program_ends_with_its_findings():
    """A reader that fails is a finding, and one that hangs is another."""
    code = """
import random, time, fuzz
fuzz.SLOWEST_S = 0.2
tally = fuzz.Tally()
for act in (lambda g: 1 / 0, lambda g: time.sleep(5), lambda g: True, lambda g: False):
    fuzz.try_one(fuzz.Reader("r", 1.0, None, act), tally, "given")
assert tally.inputs == 4 and tally.accepted == 1
said = sorted(finding.split(":")[0] for finding in tally.findings)
assert said == ["ZeroDivisionError at <string>", "took longer than 0.2 s"]
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=HERE, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_changes_are_repeatable_and_leave_the_original_alone():
    import random

    tree = {"a": [1, 2.5, {"b": "text", "c": None}], "d": True}
    before = repr(tree)
    first = [repr(mutated(tree, random.Random(n))) for n in range(200)]
    assert first == [repr(mutated(tree, random.Random(n))) for n in range(200)]
    assert repr(tree) == before and len(set(first)) > 100
    assert len(places(tree)) == 7
    assert damaged(b"x" * 50, random.Random(1)) == damaged(b"x" * 50, random.Random(1)) != b"x" * 50
