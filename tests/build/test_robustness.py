"""The build under bad conditions: damaged cache, two at once, a full disk, Ctrl-C."""

from __future__ import annotations

import errno
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from building import EMPTY, ORDINARY, compile_text

from cudahercules import cache
from cudahercules.build import compile as module
from cudahercules.build.artifact import Artifact
from cudahercules.errors import MachineError


def leftovers(root: Path) -> list[Path]:
    return list(root.rglob("*.part"))


@pytest.mark.parametrize("damaged", ["0/solution.cubin", "host.so", "artifact.json", cache.MANIFEST])
@pytest.mark.parametrize("how", ["changed", "removed"])
def test_a_damaged_entry_is_built_again(compiled, fresh_cache, monkeypatch, damaged, how):
    place = compiled.directory.name
    copy = fresh_cache / "build" / place[:2] / place
    shutil.copytree(compiled.directory, copy)
    intact = compile_text(ORDINARY, architecture="90a")
    assert isinstance(intact, Artifact)
    assert intact.cached
    if how == "changed":
        (copy / damaged).write_bytes((copy / damaged).read_bytes()[:-2] + b"?}")
    else:
        (copy / damaged).unlink()

    def make(_job, _key, private: Path) -> None:
        shutil.copytree(compiled.directory, private, dirs_exist_ok=True)

    monkeypatch.setattr(module, "_make", make)  # compiling again would take a second each
    again = compile_text(ORDINARY, architecture="90a")
    assert isinstance(again, Artifact)
    assert not again.cached
    assert again.modules == compiled.modules
    assert again.path(again.modules[0].cubin).read_bytes() == compiled.path("0/solution.cubin").read_bytes()


def test_two_threads_build_once(fresh_cache):
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: compile_text(EMPTY), range(2))
    assert isinstance(first, Artifact)
    assert isinstance(second, Artifact)
    assert sorted([first.cached, second.cached]) == [False, True]
    assert first.directory == second.directory
    assert not leftovers(fresh_cache)


def _build_in_process(queue) -> None:
    result = compile_text(EMPTY)
    queue.put((result.key, result.cached) if isinstance(result, Artifact) else result.message)


def test_two_processes_build_once(fresh_cache):
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    workers = [context.Process(target=_build_in_process, args=(queue,)) for _ in range(2)]
    for worker in workers:
        worker.start()
    results = [queue.get(timeout=120) for _ in workers]
    for worker in workers:
        worker.join()
    assert results[0][0] == results[1][0]
    assert sorted(r[1] for r in results) == [False, True]


def test_failures_are_not_kept(fresh_cache):
    for _ in range(2):
        assert not isinstance(compile_text("int x = ;"), Artifact)
    assert not leftovers(fresh_cache)
    assert not list(fresh_cache.rglob("*.cu"))


def test_a_full_disk_while_writing(fresh_cache, monkeypatch):
    def full(*_args, **_kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(MachineError, match="no space left"):
        compile_text(EMPTY)
    monkeypatch.undo()
    assert not leftovers(fresh_cache)


def test_a_full_disk_while_compiling(fresh_cache, monkeypatch):
    usage = module.shutil.disk_usage("/")._replace(free=0)
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _path: usage)
    with pytest.raises(MachineError, match="HERCULES_CACHE"):
        compile_text("int x = ;")


@pytest.fixture
def tiny_disk(tmp_path):
    disk = tmp_path / "tiny"
    disk.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True
    ).returncode:
        pytest.skip("mounting needs root")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


def test_a_really_full_disk(tiny_disk, monkeypatch):
    monkeypatch.setenv("HERCULES_CACHE", str(tiny_disk / "cache"))
    with pytest.raises(MachineError, match="no space left"):
        compile_text(ORDINARY)
    assert not leftovers(tiny_disk)


def test_a_cache_that_cannot_be_written(tmp_path, monkeypatch):
    blocker = tmp_path / "file"
    blocker.write_text("")
    monkeypatch.setenv("HERCULES_CACHE", str(blocker / "cache"))
    with pytest.raises((MachineError, OSError)):
        compile_text(EMPTY)


def _children(session_leader_of: int) -> list[str]:
    """Command names of all descendants of a process."""
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "stat").read_text()
            except OSError:
                continue
            names[int(entry.name)] = text[text.index("(") + 1 : text.rindex(")")]
            parents[int(entry.name)] = int(text[text.rindex(")") + 2 :].split()[1])
    found = []
    for pid in parents:
        up = pid
        while up in parents and up != session_leader_of:
            up = parents[up]
        if up == session_leader_of and pid != session_leader_of:
            found.append(f"{pid} {names[pid]}")
    return found


def _runs(pid: str, name: str) -> bool:
    """Whether the process is still there and not merely waiting to be reaped by init."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return f"({name})" in text and text[text.rindex(")") + 2] not in "ZX"


def test_ctrl_c_leaves_no_compiler_behind(fresh_cache):
    script = "from building import BOMB, compile_text\ncompile_text(BOMB)\n"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    child = subprocess.Popen([sys.executable, "-c", script], env=environment, stderr=subprocess.PIPE)
    busy: list[str] = []
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not any("cudafe" in c for c in busy):
        time.sleep(0.05)
        busy = _children(child.pid)
    assert any("cudafe" in c for c in busy), busy
    child.send_signal(signal.SIGINT)
    _, stderr = child.communicate(timeout=30)
    assert b"KeyboardInterrupt" in stderr
    deadline = time.monotonic() + 10  # a killed process may need a moment to give back its memory
    while alive := [process for process in busy if _runs(*process.split())]:
        assert time.monotonic() < deadline, f"still there: {alive}"
        time.sleep(0.05)
    assert not leftovers(fresh_cache)


def test_what_a_killed_process_left_is_cleaned(fresh_cache):
    key = cache.digest("left")
    left = cache.cache_root() / "thing" / key[:2] / f"{key[:12]}.abc.part"
    left.mkdir(parents=True)
    (left / "half").write_text("")
    cache.entry("thing", key, lambda private: None)
    assert leftovers(fresh_cache) == []
