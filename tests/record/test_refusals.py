"""What cannot be recorded: each case is a small solve and the sentence that its author reads."""

from __future__ import annotations

import pytest
from recording import COMMON, bench, read_cases

CONTRACT = read_cases("contract.cases")
CRASH = read_cases("crash.cases")
TIMEOUT = {name: CRASH.pop(name) for name in ("sleep", "loop")}


@pytest.fixture(scope="module")
def cases():
    everything = CONTRACT | CRASH | TIMEOUT
    return bench(COMMON, tuple((name, body) for name, (body, _) in everything.items()))


@pytest.mark.parametrize("name", CONTRACT)
def test_contract(cases, name):
    failure = cases.failure(name)
    assert failure.kind == "contract", failure
    assert CONTRACT[name][1] in failure.message


@pytest.mark.parametrize("name", CRASH)
def test_crash(cases, name):
    failure = cases.failure(name)
    assert failure.kind == "crash", failure
    assert CRASH[name][1] in failure.message


@pytest.mark.parametrize("name", TIMEOUT)
def test_timeout(cases, name):
    failure = cases.failure(name, wall_s=1.0)
    assert failure.kind == "timeout"
    assert TIMEOUT[name][1] in failure.message
    assert failure.seconds < 5


def test_cpu_time_is_limited_too(cases):
    failure = cases.failure("loop", cpu_s=1)
    assert failure.kind == "timeout"
    assert "CPU time" in failure.message
