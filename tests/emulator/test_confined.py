"""Device code becomes native code here: the process that runs it sees nothing of the machine."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from emulated import KERNELS, Program, compile_ptx
from hosts import host_of

from cudahercules.build import sandbox
from cudahercules.emulator import native
from cudahercules.errors import MachineError, PlanError

TRY_EVERYTHING = """
const char* reached = "nothing";
char memory_of_the_judge[64];
snprintf(memory_of_the_judge, sizeof memory_of_the_judge, "/proc/%d/mem", getppid());
for (const char* path : {"/etc/passwd", "/proc/self/environ", (const char*)memory_of_the_judge, "/tmp"})
  if (open(path, O_RDONLY) >= 0) reached = path;
if (open("/tmp/hercules-junk", O_WRONLY | O_CREAT, 0600) >= 0) reached = "writing";
if (socket(AF_INET, SOCK_STREAM, 0) >= 0) reached = "the network";
dprintf(result, "{\\"kind\\": \\"refused\\", \\"message\\": \\"reached %s\\"}", reached);
"""


@pytest.fixture
def program(tmp_path):
    program = Program(compile_ptx(KERNELS / "faults.cu"), tmp_path)
    program.array("out", np.zeros(64, "u4"))
    program.launch("trap", 1, 32, "out")
    return program


def test_the_process_reaches_nothing(program, monkeypatch, tmp_path):
    if "landlock" not in sandbox.features() or "seccomp" not in sandbox.features():
        pytest.skip(f"this kernel offers only: {sandbox.level()}")
    host = host_of(TRY_EVERYTHING, tmp_path)
    monkeypatch.setattr(native, "host_program", lambda *_: host)
    with pytest.raises(PlanError, match=r"^reached nothing$"):
        program.run()


def test_the_attempts_succeed_without_a_sandbox(program, monkeypatch, tmp_path):
    host = host_of(TRY_EVERYTHING, tmp_path)
    monkeypatch.setattr(native, "host_program", lambda *_: host)
    monkeypatch.setattr(sandbox, "features", lambda: "capabilities")
    with pytest.raises(PlanError, match=r"^reached the network$"):
        program.run()
    Path("/tmp/hercules-junk").unlink(missing_ok=True)


def test_a_sandbox_that_cannot_be_entered_is_the_machine(program, monkeypatch):
    monkeypatch.setattr(sandbox, "features", lambda: "antigravity")
    with pytest.raises(MachineError, match="sandbox cannot start host"):
        program.run()


def test_device_code_that_takes_too_long_to_compile_is_unsupported_and_tried_once(program, monkeypatch):
    native.host_program()
    translating = []
    monkeypatch.setattr(native, "_COMPILE_LIMITS", dataclasses.replace(native._COMPILE_LIMITS, wall_s=0.02))
    monkeypatch.setattr(native, "toolchain_digest", lambda: "another compiler")
    compiled = native.compile_kernels
    monkeypatch.setattr(native, "compile_kernels", lambda *args: (translating.append(args), compiled(*args)))
    for _ in range(2):
        outcome = program.run()
        assert outcome.kind == "unsupported"
        assert "takes minutes to translate" in outcome.instructions[0].instruction
    assert len(translating) == 1
