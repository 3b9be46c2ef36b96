"""A full disk, a read-only cache, a clock that jumps: one clear sentence, or no difference at all."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cudahercules import cache
from cudahercules.errors import MachineError
from cudahercules.judge.batch import append

ROOT = Path(__file__).parents[2]
TASKS = ROOT / "benchmarks/gpu/tasks"
TASK = "kernel/scale/fp32@general"
SOURCE = TASKS / "kernel/scale/naive.cu"
ONCE = ("confine", "standin", "emulator-host")
"""What is built once for all candidates."""


def grade(file: Path, *options: str, python_path: Path | None = None, **environment: str):
    """The ended program."""
    path = os.pathsep.join(str(p) for p in (python_path, ROOT / "src") if p)
    return subprocess.run(
        [sys.executable, "-m", "cudahercules", "grade", TASK, file, "--device", "cpu", "--json", *options],
        env={**os.environ, "HERCULES_TASKS": str(TASKS), "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
        timeout=200,
    )


def new_candidate(place: Path) -> Path:
    file = place / "new.cu"
    file.write_text(f"{SOURCE.read_text()}// {time.time_ns()}\n")
    return file


@pytest.fixture(scope="module")
def warm() -> Path:
    """The suite's cache, with all that SOURCE needs in it."""
    done = grade(SOURCE)
    assert done.returncode == 0, done.stderr
    return Path(os.environ["HERCULES_CACHE"])


def mounted(*arguments: str | Path) -> bool:
    return subprocess.run(["mount", *arguments], capture_output=True).returncode == 0


@pytest.fixture
def disk(tmp_path, warm, request):
    """A disk of its own that holds what is built once, and has ``request.param`` KiB left."""
    place = tmp_path / "disk"
    place.mkdir()
    used = sum(p.stat().st_size + 4096 for kind in ONCE for p in (warm / kind).rglob("*"))
    size = (used >> 10) + 64 + request.param
    if not mounted("-t", "tmpfs", "-o", f"size={size}k", "tmpfs", place):
        pytest.skip("mounting needs root")
    for kind in ONCE:
        shutil.copytree(warm / kind, place / "cache" / kind)
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def is_one_clear_sentence(done) -> None:
    assert done.returncode == 3 and done.stdout == "", (done.returncode, done.stdout, done.stderr)
    said = " ".join(done.stderr.split())
    assert said.startswith("hercules: ") and "HERCULES_CACHE" in said
    assert "Traceback" not in said and "fault of CUDAHercules" not in said


@pytest.mark.parametrize("disk", [0, 300, 900], indirect=True, ids=lambda kib: f"{kib} KiB left")
def test_a_disk_that_fills_up_while_grading(disk, tmp_path):
    """The first finds no room at once, the others in the middle of compiling or translating."""
    done = grade(new_candidate(tmp_path), HERCULES_CACHE=str(disk / "cache"))
    if done.returncode == 0:  # this one's files were small enough after all
        assert json.loads(done.stdout)["kind"] == "correct"
    else:
        is_one_clear_sentence(done)
    assert not list(disk.rglob("*.part"))


@pytest.fixture
def read_only(tmp_path, warm):
    """The suite's cache where nobody can write to it."""
    place = tmp_path / "read-only"
    place.mkdir()
    if not mounted("--bind", warm, place):
        pytest.skip("mounting needs root")
    try:
        assert mounted("-o", "remount,bind,ro", place)
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def test_a_read_only_cache(read_only, tmp_path):
    known = grade(SOURCE, HERCULES_CACHE=str(read_only))
    assert known.returncode == 0 and json.loads(known.stdout)["kind"] == "correct", known.stderr
    is_one_clear_sentence(grade(new_candidate(tmp_path), HERCULES_CACHE=str(read_only)))


def test_a_file_that_may_not_grow(tmp_path):
    """What an ordinary user can have instead of a full disk: a limit on the size of files."""
    code = """
import resource, signal, sys
from cudahercules import cache
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    cache.entry("thing", "ab" * 32, lambda private: (private / "big").write_bytes(b"x" * 5000))
except cache.MachineError as error:
    sys.exit(str(error))
"""
    environment = {**os.environ, "HERCULES_CACHE": str(tmp_path), "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 1 and "HERCULES_CACHE" in done.stderr and "Traceback" not in done.stderr
    assert not list(tmp_path.rglob("*.part"))


def test_a_file_of_verdicts_on_a_full_disk(warm):
    from cudahercules.judge.verdict import VERDICT

    verdict = VERDICT.validate_json(grade(SOURCE).stdout)
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    with pytest.raises(MachineError, match="No space left on device: the correct of naive"):
        append(Path("/dev/full"), verdict)


def test_a_clock_that_jumps(warm, tmp_path):
    """An hour forward and two back at every look: durations come from the monotonic clock."""
    (tmp_path / "sitecustomize.py").write_text(
        "import itertools, time\n"
        "real, jumps = time.time, itertools.cycle((0, 3600, -7200, 1e9))\n"
        "time.time = lambda: real() + next(jumps)\n"
        "time.time_ns = lambda: int(time.time() * 1e9)\n"
        "import sys; sys.jumping_clock = True\n"
    )
    assert "jumping_clock" in (tmp_path / "sitecustomize.py").read_text()
    start = time.monotonic()
    done = grade(new_candidate(tmp_path), python_path=tmp_path)
    elapsed = time.monotonic() - start
    assert done.returncode == 0, done.stderr
    verdict = json.loads(done.stdout)
    assert verdict["kind"] == "correct"
    stages = verdict["seconds"]
    assert all(0 <= stages[name] <= elapsed for name in ("build", "record", "run", "check", "total")), stages


def test_no_duration_comes_from_a_clock_that_can_be_set():
    """``time.time()`` is for dates only; nothing of ours measures or waits by it."""
    texts = {p: p.read_text() for p in (ROOT / "src").rglob("*.py")}
    users = [p for p, text in texts.items() if "time.time(" in text or "utcnow(" in text]
    assert users == []


def test_an_entry_that_was_cut_off_is_built_again(tmp_path, monkeypatch):
    """A machine that lost power: names are there, contents are not."""
    monkeypatch.setenv("HERCULES_CACHE", str(tmp_path))

    def make(private: Path) -> None:
        (private / "file").write_bytes(b"whole")

    directory, _ = cache.entry("thing", "cd" * 32, make)
    for name in ("file", cache.MANIFEST):
        (directory / name).write_bytes(b"")
        again, cached = cache.entry("thing", "cd" * 32, make)
        assert not cached and (again / "file").read_bytes() == b"whole"
