"""Evaluations that are interrupted or killed go on where they stopped: nothing is asked or paid twice."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip("inspect_ai")
pytest.importorskip("openai")

from chat_server import Say, serving

SAMPLES, AT_A_TIME = 12, 2


def command(server, logs, *more):
    arguments = ["eval", "openai-api/local/m", "--base-url", server.url, "--tasks", "softmax/fp32"]
    arguments += ["--device", "cpu", "--samples", str(SAMPLES), "--connections", str(AT_A_TIME)]
    return [sys.executable, "-m", "cudahercules", *arguments, "--logs", str(logs), *more]


def start(server, logs, *more):
    environment = {**os.environ, "LOCAL_API_KEY": "none"}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command(server, logs, *more), env=environment, stdout=pipe, stderr=pipe, text=True
    )


def wait_for(condition, limit_s=60.0):
    until = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.02)


KILLED = pytest.param(signal.SIGKILL, id="kill -9", marks=pytest.mark.slow)


@pytest.mark.parametrize("how", [pytest.param(signal.SIGINT, id="ctrl-c"), KILLED])
def test_a_stopped_evaluation_goes_on_without_asking_again(tmp_path, how):
    logs = tmp_path / "logs"
    with serving(Say("I have no code for you."), pause_s=0.25) as server:
        process = start(server, logs)
        wait_for(lambda: server.answered >= 4)
        process.send_signal(how)
        out, err = process.communicate(timeout=60)
        asked = len(server.requests)
        assert 4 <= asked < SAMPLES
        if how == signal.SIGINT:
            assert process.returncode == 130, err
            assert "--resume" in err and "Traceback" not in err and out == ""
        server.pause_s = 0.0
        again = start(server, logs, "--resume")
        out, err = again.communicate(timeout=120)
        assert again.returncode == 0, err
        assert re.search(rf"no_code {SAMPLES}\n", out) and f"{SAMPLES} answers, 1 task" in out
        # Only what was under way when it stopped may have been asked twice.
        assert SAMPLES <= len(server.requests) <= SAMPLES + AT_A_TIME


def test_an_interruption_while_answers_are_judged_ends_soon(tmp_path):
    """Work that has begun is stopped with its compilers and emulators, and what waits is taken back."""
    arguments = ["eval", "replay/demo", "--tasks", "gemm/fp32", "--samples", "40", "--device", "cpu"]
    logs = tmp_path / "logs"
    process = subprocess.Popen(
        [sys.executable, "-m", "cudahercules", *arguments, "--logs", str(logs), "--display", "plain"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    while line := process.stdout.readline():
        if re.search(r"Samples:\s+[1-9]\d*/", line):
            break
    process.send_signal(signal.SIGINT)
    started = time.monotonic()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert time.monotonic() - started < 20
