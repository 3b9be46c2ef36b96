"""The compiler sees itself and the candidate, whatever the source asks for and whoever has taken it over."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from building import EMPTY, HEADER, ORDINARY, compile_text, refused

import cudahercules
from cudahercules.build import sandbox, view
from cudahercules.build.artifact import Artifact
from cudahercules.build.compile import LIMITS
from cudahercules.build.diagnostics import Refused
from cudahercules.build.steps import Workshop
from cudahercules.build.toolchain import find_toolchain
from cudahercules.errors import MachineError, UsageError
from cudahercules.task.model import LibraryPolicy

FAMILY = Path(cudahercules.__file__).parent / "tasks/kernel/gemm"
LEVELS = {
    "full": ("namespaces", "view", "capabilities", "seccomp"),
    "files": ("landlock", "capabilities", "seccomp"),
}


@pytest.fixture(params=LEVELS)
def level(request, monkeypatch):
    """Each level that confines files, by the features that it needs at least."""
    have = {word.partition("=")[0]: word for word in sandbox.features().split(",")}
    if missing := [name for name in LEVELS[request.param] if name not in have]:
        pytest.skip(f"this kernel has no {missing[0]}")
    chosen = ",".join(have[name] for name in LEVELS[request.param])
    monkeypatch.setattr(sandbox, "features", lambda: chosen)
    return request.param


@pytest.fixture
def secret(tmp_path):
    file = tmp_path / "hunter2.h"
    file.write_text("int hunter2 = bad syntax;\n")
    return file


def test_a_toolkit_that_is_reached_through_a_link(tmp_path, monkeypatch, level):
    link = tmp_path / "cuda"
    link.symlink_to(find_toolchain().root)
    monkeypatch.setenv("PATH", f"{link / 'bin'}:{os.environ['PATH']}")
    not_in_the_cache = f"{ORDINARY}// {tmp_path}\n"
    assert isinstance(compile_text(not_in_the_cache), Artifact)


INCLUDES = {
    "absolute": '#include "{secret}"\n',
    "system": "#include <{secret}>\n",
    "dots": '#include "../../../../../../../../../../../../../..{secret}"\n',
    "next": "#include_next <{secret}>\n",
    "proc": '#include "/proc/self/environ"\n',
    "through proc": '#include "/proc/self/root{secret}"\n',
    "computed": '#define A "{secret}"\n#include A\n',
    "imported": '#import "{secret}"\n',
    "reference": f'#include "{FAMILY}/family.py"\n',
    "experts": f'#include "{FAMILY}/experts.py"\n',
    "directory": '#include "/"\n',
    "device": '#include "/dev/stdin"\n',
}
READS = {
    "incbin": 'asm(".incbin \\"{secret}\\"");\n',
    "assembler's include": 'asm(".include \\"{secret}\\"");\n',
    "dots": 'asm(".incbin \\"../../../../../../../../../../../../../..{secret}\\"");\n',
}
REFUSED_SOMEHOW = {
    "embed": 'const unsigned char b[] = {{\n#embed "{secret}"\n}};\n',
    "pragma dependency": '#pragma GCC dependency "{secret}"\n#pragma GCC error "seen"\n',
    "precompiled": '#pragma GCC pch_preprocess "{secret}"\nint x = ;\n',
}


@pytest.mark.parametrize("how", INCLUDES)
def test_includes_of_the_machine(fresh_cache, level, secret, how):
    failure = refused(INCLUDES[how].format(secret=secret) + EMPTY)
    assert failure.kind == "contract"
    assert "neither a file of the candidate nor a header of the compiler" in failure.message
    assert "bad syntax" not in failure.model_dump_json()


@pytest.mark.parametrize("how", READS)
def test_files_that_the_assembler_reads(fresh_cache, level, secret, how):
    failure = refused(READS[how].format(secret=secret) + EMPTY)
    assert failure.kind == "contract"
    assert "inline assembly of the host code reads the file" in failure.message
    assert "bad syntax" not in failure.model_dump_json()


@pytest.mark.parametrize("how", REFUSED_SOMEHOW)
def test_other_ways_to_read_a_file(fresh_cache, level, secret, how):
    assert "bad syntax" not in refused(REFUSED_SOMEHOW[how].format(secret=secret) + EMPTY).model_dump_json()


@pytest.mark.parametrize(
    "place", [FAMILY / "family.py", FAMILY / "experts.py", "/etc/passwd", "/proc/self/environ"]
)
def test_whether_a_file_exists_is_not_to_be_learnt(fresh_cache, level, place):
    """Where Landlock alone hides files, the preprocessor stumbles over those that exist: no build then."""
    result = compile_text(f'#if __has_include("{place}")\n#error seen\n#endif\n{EMPTY}')
    if level == "full":
        assert isinstance(result, Artifact), result
    elif not isinstance(result, Artifact):
        assert (
            "neither a file of the candidate nor a header" in result.message and "seen" not in result.message
        )


def test_a_missing_file_of_ones_own_is_a_mistake_and_no_attack(fresh_cache, level):
    failure = refused({"a.cu": f'#include "sub/x.cuh"\n{EMPTY}', "sub/x.cuh": '#include "../gone.cuh"\n'})
    assert (failure.kind, failure.message) == (
        "error",
        "sub/x.cuh:1: error: ../gone.cuh: No such file or directory",
    )


def test_both_levels_build_the_same(fresh_cache, level, compiled):
    again = compile_text(ORDINARY, architecture="90a")
    assert isinstance(again, Artifact)
    assert again.key == compiled.key
    assert again.path("0/solution.cubin").read_bytes() == compiled.path("0/solution.cubin").read_bytes()
    assert again.path("host.so").read_bytes() == compiled.path("host.so").read_bytes()


def test_an_artifact_of_a_weaker_sandbox_is_built_again(fresh_cache, monkeypatch):
    strong = compile_text(EMPTY)
    monkeypatch.setattr(sandbox, "features", lambda: "seccomp")
    weak, cached = compile_text(EMPTY), compile_text(EMPTY)
    assert isinstance(strong, Artifact) and isinstance(weak, Artifact) and isinstance(cached, Artifact)
    assert (weak.cached, cached.cached) == (False, True)
    assert weak.key == strong.key


@pytest.fixture
def workshop(tmp_path):
    made = Workshop(tmp_path / "shop", find_toolchain(), "80", LibraryPolicy.RUNTIME, (), LIMITS)
    for directory in (made.sources, made.temporary, made.directory / "0"):
        directory.mkdir(parents=True)
    (made.sources / "solution.cu").write_text(EMPTY)
    (made.sources / "solve.h").write_text(HEADER)
    return made


def taken_over(workshop: Workshop, script: str):
    return workshop._run(
        ["/bin/sh", "-c", script],
        workshop.sources,
        workshop.toolchain.environment(workshop.temporary),
        workshop.directory / "0",
    )


@pytest.fixture
def reach(workshop, secret, tmp_path):
    """A command line that prints all that it reaches from inside the workshop."""
    program = workshop.sources / "reach"
    subprocess.run(["g++", "-x", "c", "-w", Path(__file__).with_name("reach.c"), "-o", program], check=True)
    return f"{program} {secret} {tmp_path} {os.getpid()}"


def test_a_compiler_that_was_taken_over_reaches_nothing(workshop, level, reach, monkeypatch):
    monkeypatch.setenv("HERCULES_TEST_SECRET", "hunter2")
    done = taken_over(workshop, reach)
    reached = set(done.stdout.decode().split())
    assert done.status == 0, done
    may = set() if level == "full" else {"names"}
    assert reached <= may, reached
    assert (workshop.sources / "solution.cu").read_text() == EMPTY


def test_it_reaches_things_without_the_sandbox(workshop, reach, monkeypatch):
    """Else the test above would prove nothing."""
    monkeypatch.setattr(sandbox, "features", lambda: "capabilities")
    reached = set(taken_over(workshop, reach).stdout.decode().split())
    assert {"secret", "passwords", "environment", "devices", "elsewhere", "network", "names"} <= reached
    Path("/tmp/hercules-left-behind").unlink(missing_ok=True)


def test_it_sees_no_other_name(workshop, level):
    done = taken_over(workshop, f"ls {FAMILY} {Path.home()} /etc /dev; ls ..; true")
    seen = set(done.stdout.decode().split())
    assert {"0", "source", "tmp"} <= seen
    assert seen <= {"0", "source", "tmp", "/etc:", "alternatives", "ld.so.cache", "/dev:", "null"}


@pytest.mark.parametrize(
    "left", ["ln -s /etc/passwd ../0/unit.ii", "mkfifo ../tmp/stage", "mkdir ../0/x.cubin"]
)
def test_a_link_that_it_leaves_is_not_followed(workshop, level, left):
    with pytest.raises(Refused, match="which is no plain file"):
        taken_over(workshop, left)


def test_what_it_starts_ends_with_it(workshop, level):
    taken_over(workshop, "(sleep 47; touch ../tmp/late) & (sleep 47 & sleep 47) & exit 0")
    running = [p.read_bytes() for p in Path("/proc").glob("[0-9]*/cmdline") if p.exists()]
    assert b"sleep\x0047\x00" not in running


ENDLESS = """
import sys
from pathlib import Path
from cudahercules.build import sandbox
from cudahercules.build.steps import Workshop
from cudahercules.build.toolchain import find_toolchain
from cudahercules.process import Limits
features, shop = sys.argv[1:]
sandbox.features = lambda: features
made = Workshop(Path(shop), find_toolchain(), "80", None, (), Limits(wall_s=60))
print("ready", flush=True)
made._run(["/bin/sh", "-c", "sleep 48 & sleep 48"], made.sources, {"PATH": "/bin"}, made.directory / "0")
"""


def running(command: bytes) -> int:
    found = 0
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += file.read_bytes() == command
        except OSError:
            continue
    return found


def test_what_it_starts_ends_with_a_judge_that_is_killed(workshop, level):
    command = [sys.executable, "-c", ENDLESS, sandbox.features(), workshop.directory]
    judge = subprocess.Popen(command, stdout=subprocess.PIPE)
    try:
        assert judge.stdout is not None and judge.stdout.readline() == b"ready\n"
        end = time.monotonic() + 30
        while running(b"sleep\x0048\x00") < 2:
            assert time.monotonic() < end
            time.sleep(0.02)
    finally:
        judge.kill()
        judge.communicate()
    end = time.monotonic() + 10
    while running(b"sleep\x0048\x00"):
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_stage_that_is_killed_from_outside_is_the_machines_fault(workshop, level):
    environment = workshop.toolchain.environment(workshop.temporary)
    with pytest.raises(MachineError, match="sh was killed from outside"):
        workshop._run_steps(["sh -c 'kill -9 $$'"], environment, "solution.cu", workshop.directory / "0")


def test_output_is_cut(workshop, level):
    done = taken_over(
        workshop, "while :; do echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; done & sleep 1; kill $!"
    )
    assert len(done.stdout) == LIMITS.output and done.output_cut


@pytest.mark.skipif(os.getuid() == 0, reason="the kernel never limits root's processes")
def test_processes_are_limited(workshop, level):
    if level == "full":
        done = taken_over(workshop, "for i in $(seq 400); do sleep 5 & done; wait")
        assert b"fork" in done.stderr


# --- what is shown ---------------------------------------------------------------------------------


def test_neither_package_nor_tasks_nor_cache_are_shown_with_their_surroundings(tmp_path, monkeypatch):
    for name in ("python/ours", "python/theirs", "cc/lib", "cache"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "alias").symlink_to(tmp_path / "python")
    monkeypatch.setattr(view, "secret_places", lambda: (tmp_path / "python/ours", tmp_path / "cache"))
    assert list(view.without_secrets([tmp_path])) == [tmp_path / "cc"]
    assert list(view.without_secrets([tmp_path / "cc", tmp_path / "python"])) == [
        tmp_path / "cc",
        tmp_path / "python/theirs",
    ]
    assert list(view.without_secrets([tmp_path / "python/ours/runtime"])) == [
        tmp_path / "python/ours/runtime"
    ]


def test_the_toolchain_is_shown_and_little_else():
    toolchain = find_toolchain()
    shown = sandbox.compiler_confinement(toolchain.host_compiler, toolchain).read
    assert all(path.is_absolute() and len(path.parts) > 1 for path in shown)
    for path in (
        Path("/"),
        Path("/etc"),
        Path("/home"),
        Path("/root"),
        Path("/usr"),
        Path("/usr/local"),
        Path("/opt"),
    ):
        assert path not in shown


def test_below_the_wanted_level_nothing_is_compiled(fresh_cache, monkeypatch):
    monkeypatch.setattr(sandbox, "features", lambda: "capabilities,seccomp")
    monkeypatch.setenv(sandbox.STRICT, "files")
    with pytest.raises(MachineError, match=r"reaches level calls .*; files is asked for"):
        compile_text(EMPTY)
    monkeypatch.setenv(sandbox.STRICT, "strict")
    with pytest.raises(UsageError, match="sandbox level 'strict': choose one of full, files, calls, limits"):
        compile_text(EMPTY)
