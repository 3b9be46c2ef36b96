"""Host code is cut off: it cannot touch the judge, read the machine, or leave anything behind."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from recording import COMMON, LIMITS, bench, read_cases

from cudahercules.build import sandbox
from cudahercules.errors import MachineError, UsageError
from cudahercules.process import Confinement, run_limited
from cudahercules.record import recorder
from cudahercules.record.plan import LaunchPlan

ATTACKS = {name: body for name, (body, _) in read_cases("sandbox.cases").items()}
HEADERS = """
#include <cerrno>
#include <fcntl.h>
#include <initializer_list>
#include <stdexcept>
#include <sched.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <thread>
"""
REACHED = "static void reached(const char* what) { throw std::runtime_error(what); }"
ALONE = {
    "memory_of_the_judge": ("landlock", "namespaces,seccomp", "capabilities,seccomp"),
    "limits_of_the_judge": ("seccomp",),
    "network": ("seccomp",),
    "kernel_doors": ("seccomp",),
    "memory_in_files": ("seccomp",),
    "files_of_the_machine": ("landlock",),
    "proc": ("landlock", "namespaces,view"),
    "writing": ("landlock,seccomp", "namespaces,view,seccomp"),
}
"""Which features stop an attack without the others."""


@pytest.fixture(scope="module")
def attacks():
    common = COMMON + HEADERS + f"\nstatic const int PARENT = {os.getpid()};\n{REACHED}"
    return bench(common, tuple(ATTACKS.items()))


def everything() -> set[str]:
    return {word.partition("=")[0] for word in sandbox.features().split(",")}


def only(monkeypatch, wanted: str) -> None:
    """Let the sandbox consist of ``wanted`` alone; skips where this kernel lacks one of them."""
    have = {word.partition("=")[0]: word for word in sandbox.features().split(",")}
    if missing := [name for name in wanted.split(",") if name not in have]:
        pytest.skip(f"this kernel has no {missing[0]}")
    chosen = ",".join(have[name] for name in wanted.split(","))
    monkeypatch.setattr(sandbox, "features", lambda: chosen)


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_is_stopped(attacks, name):
    if not {"landlock", "capabilities", "seccomp"} <= everything():
        pytest.skip(f"this kernel offers only: {sandbox.level()}")
    result = attacks.record(name)
    assert isinstance(result, LaunchPlan), result


@pytest.mark.parametrize(("name", "wanted"), [(n, w) for n, several in ALONE.items() for w in several])
def test_one_feature_is_enough(attacks, monkeypatch, name, wanted):
    if wanted == "capabilities,seccomp" and os.getuid() != 0:
        pytest.skip("for an ordinary user this process is made undumpable instead")
    only(monkeypatch, wanted)
    result = attacks.record(name)
    assert isinstance(result, LaunchPlan), result


def test_the_attacks_work_without_a_sandbox(attacks, monkeypatch):
    """Else the tests above would prove nothing."""
    monkeypatch.setattr(sandbox, "features", lambda: "capabilities")
    for name in ("proc", "files_of_the_machine", "network", "programs", "memory_in_files"):
        failure = attacks.failure(name)
        assert "nobody caught a std::runtime_error" in failure.message, (name, failure)


def test_nothing_is_left_behind(attacks):
    before = {p for d in ("/tmp", "/dev/shm") for p in Path(d).glob("hercules*")}
    attacks.record("writing")
    assert {p for d in ("/tmp", "/dev/shm") for p in Path(d).glob("hercules*")} <= before


def test_the_level_is_one_short_phrase():
    level = recorder.sandbox_level()
    assert 20 < len(level) < 160 and "\n" not in level
    assert sandbox.phrase("landlock=7,namespaces,view,capabilities,seccomp") == (
        "full: own file system, files and signals by Landlock 7, own network, process and IPC namespaces, "
        "no capabilities, system calls filtered"
    )
    assert sandbox.phrase("") == (
        "limits: no file system of its own, no Landlock, no user namespaces, capabilities kept, no seccomp"
    )


@pytest.mark.parametrize(
    ("features", "level"),
    [
        ("landlock=7,namespaces,view,capabilities,seccomp", "full"),
        ("namespaces,view,capabilities,seccomp", "full"),
        ("landlock=1,namespaces,capabilities,seccomp", "files"),
        ("landlock=1,capabilities,seccomp", "files"),
        ("namespaces,capabilities,seccomp", "calls"),
        ("landlock=7,namespaces,view,seccomp", "limits"),
        ("", "limits"),
    ],
)
def test_levels(monkeypatch, features, level):
    assert sandbox.level_of(features) == level
    monkeypatch.setattr(sandbox, "features", lambda: features)
    order = list(sandbox.LEVELS)
    for asked in order:
        monkeypatch.setenv(sandbox.STRICT, asked)
        if order.index(asked) >= order.index(level):
            sandbox.require(asked)
            assert sandbox.level() == sandbox.phrase(features)
        else:
            for refused in (partial(sandbox.require, asked), sandbox.level, sandbox.confinement):
                with pytest.raises(MachineError, match=f"reaches level {level} .*; {asked} is asked for"):
                    refused()
    monkeypatch.setenv(sandbox.STRICT, "fort-knox")
    with pytest.raises(UsageError, match="choose one of full, files, calls, limits"):
        sandbox.confinement()


def test_a_promised_feature_that_is_refused_is_a_machine_error(attacks, monkeypatch):
    monkeypatch.setattr(sandbox, "features", lambda: "landlock=7,antigravity")
    with pytest.raises(MachineError, match="sandbox cannot start launcher"):
        attacks.record("threads_work")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"memory": 1 << 20}, "the recorder cannot run|sandbox cannot start|was killed by"),
        ({"wall_s": 0.001}, "did not begin within 0.001 s"),
    ],
)
def test_before_host_code_begins_it_is_the_machine(attacks, change, sentence):
    with pytest.raises(MachineError, match=sentence):
        attacks.record("threads_work", **change)


def test_a_program_cannot_claim_that_it_was_not_started():
    """Exit status 125 is the launcher's, but the pipe for its complaints is closed by then."""
    confined = sandbox.confinement(read=(Path("/bin"), Path("/usr")))
    said = 'for f in 3 4 5 6 7 8 9; do eval "echo lie >&$f"; done 2>/dev/null; exit 125'
    done = run_limited(["/bin/sh", "-c", said], LIMITS, confined=confined)
    assert done.status == 125


@pytest.mark.parametrize(("script", "status"), [("exit 7", 7), ("kill -9 $$", -9), ("kill -11 $$", -11)])
def test_the_end_of_a_program_is_handed_on(script, status):
    confined = sandbox.confinement(read=(Path("/bin"), Path("/usr")))
    assert run_limited(["/bin/sh", "-c", script], LIMITS, confined=confined).status == status


def test_a_program_that_is_not_there(tmp_path):
    confined = Confinement(sandbox.program(), sandbox.features(), read=sandbox.LIBRARIES)
    with pytest.raises(MachineError, match="No such file"):
        run_limited([tmp_path / "absent"], LIMITS, confined=confined)


def test_without_landlock_and_namespaces_this_process_is_made_undumpable():
    """An ordinary user's child could else write to its memory through /proc."""
    code = """
import ctypes
from cudahercules.build import sandbox
from cudahercules.process import Finished
sandbox.program = lambda: "confine"
sandbox.run_limited = lambda argv, limits: Finished(0, b"capabilities,seccomp,\\n", b"", 0.0)
assert ctypes.CDLL(None).prctl(3, 0, 0, 0, 0) == 1
assert sandbox.level().startswith("calls: no file system of its own, no Landlock, no user namespaces, ")
assert ctypes.CDLL(None).prctl(3, 0, 0, 0, 0) == 0
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
