"""``hercules watch``: saves are noticed once each, and a line says what changed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from cli_candidates import LAUNCH, PRODUCT, TASK, candidate

from cudahercules.cli.watching import Saves, Session
from cudahercules.judge.verdict import VERDICT


class Editor:
    """A sleep that plays a script of saves: one entry each time the watcher sleeps."""

    def __init__(self, *script):
        self.script = list(script)

    def __call__(self, _seconds):
        if not self.script:
            raise KeyboardInterrupt
        step = self.script.pop(0)
        if step is not None:
            step()


def seen(path, *script) -> list[str]:
    """The contents at each save that was noticed."""
    contents = []
    with pytest.raises(KeyboardInterrupt):
        for _ in Saves(path, 0.1, Editor(*script)):
            contents.append(path.read_text() if path.is_file() else "directory")
    return contents


def writes(path, text):
    return lambda: path.write_text(text)


def replaces(path, text):
    def save():
        other = path.with_suffix(".tmp")
        other.write_text(text)
        other.rename(path)

    return save


def test_what_is_there_is_graded_at_once_and_each_save_once(tmp_path):
    file = tmp_path / "k.cu"
    file.write_text("one")
    assert seen(file, None, None, None, writes(file, "two!"), None, None, None) == ["one", "two!"]


def test_steps_of_one_save_are_one_save(tmp_path):
    file = tmp_path / "k.cu"
    script = [None, writes(file, "a"), writes(file, "ab"), writes(file, "abc"), None, None, None]
    assert seen(file, *script) == ["abc"]


def test_saving_the_same_again_is_no_save(tmp_path):
    file = tmp_path / "k.cu"
    file.write_text("one")
    again = [None, None, lambda: os.utime(file, (1, 1)), None, None, replaces(file, "one"), None, None]
    assert seen(file, *again) == ["one"]


def test_a_file_that_goes_away_and_comes_back(tmp_path):
    file = tmp_path / "k.cu"
    file.write_text("one")
    script = [None, None, file.unlink, None, replaces(file, "two"), None, None, None]
    assert seen(file, *script) == ["one", "two"]


def test_a_directory_is_watched_with_all_its_sources(tmp_path):
    (tmp_path / "k.cu").write_text("one")
    script = [
        None,
        None,
        writes(tmp_path / "part.cuh", "new"),
        None,
        None,
        writes(tmp_path / "notes.txt", "x"),
    ]
    assert len(seen(tmp_path, *script, None, None, None)) == 2


@pytest.fixture
def verdicts(graded):
    right = graded().verdict
    wrong = graded(PRODUCT.replace("p < k", "p < k - 1")).verdict
    return right, wrong


def timed(verdict, ratio, low, high):
    from cudahercules.judge.verdict import Timed

    timing = Timed(outcome="slower", ratio=ratio, low=low, high=high, margin=0.01, workloads=())
    return verdict.model_copy(update={"timing": timing})


def test_lines_say_what_changed(verdicts):
    right, wrong = verdicts
    session = Session(clock=lambda: "12:00:00")
    assert "correct  1 workload right" in session.line(right) and "not timed" in session.line(right)
    line = session.line(wrong)
    assert "incorrect (was correct)  smoke: c:" in line and "\n" not in line
    assert "0.500 [0.490, 0.510]" in session.line(timed(right, 0.5, 0.49, 0.51))
    assert "+20.0% against the best so far, 0.500" in session.line(timed(right, 0.6, 0.59, 0.61))
    assert "-16.7% against the best so far, 0.600" in session.line(timed(right, 0.5, 0.49, 0.51))
    assert "lies in the interval" in session.line(timed(right, 0.602, 0.59, 0.61))
    assert "not graded  empty" in session.refused("empty")
    assert session.summary() == "\n7 graded, 6 correct; best 0.602 times the expert's speed"


def test_a_line_fits_a_terminal(verdicts):
    session = Session(width=80)
    assert all(len(session.line(v)) <= 80 for v in verdicts)


def test_the_program_from_first_save_to_ctrl_c(tmp_path):
    file = tmp_path / "mine.cu"
    command = [sys.executable, "-m", "cudahercules", "watch", TASK, str(file), "--smoke", "--device", "cpu"]
    process = subprocess.Popen(
        [*command, "--json", "--poll", "0.05"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        time.sleep(0.3)  # there is no file yet: nothing to say
        file.write_text(candidate(PRODUCT, LAUNCH))
        assert VERDICT.validate_json(process.stdout.readline()).kind == "correct"
        replaces(file, candidate(PRODUCT.replace("p < k", "p < k - 1"), LAUNCH))()
        assert VERDICT.validate_json(process.stdout.readline()).kind == "incorrect"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert (process.returncode, out, err) == (0, "", "")


def test_wrong_use_is_told_before_watching(hercules, tmp_path):
    assert hercules("watch", "no/such", tmp_path / "k.cu", "--device", "cpu").code == 2


def test_a_directory_that_does_not_exist_is_refused(hercules, tmp_path):
    ended = hercules("watch", TASK, tmp_path / "nowhere" / "mine.cu", "--device", "cpu")
    assert ended.code == 2 and "there is no directory" in ended.err and ended.out == ""
