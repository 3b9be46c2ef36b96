"""What is refused, and what happens when the child or the user interferes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
from emulated import KERNELS, Program, compile_ptx
from hosts import host_of

from cudahercules.emulator import native, run
from cudahercules.emulator.check import unsupported
from cudahercules.emulator.outcome import Unsupported
from cudahercules.errors import MachineError, PlanError

HEAD = ".version 8.4\n.target sm_80\n.address_size 64\n"


def kernel(body: str, parameters: str = ".param .u64 p") -> str:
    return (
        f"{HEAD}.visible .entry k({parameters}) {{\n.reg .b32 %r<9>;\n.reg .b64 %rd<9>;\n.reg .pred %p<4>;\n"
        f'.reg .f32 %f<9>;\n.loc 1 7 3\n{body}\nret;\n}}\n.file 1 "/tmp/x/mine.cu"\n'
    )


@pytest.mark.parametrize(
    "line",
    [
        "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%f0,%f1,%f2,%f3,%f4,%f5,%f6,%f7}, {%r0,%r1}, "
        "{%r4,%r5}, {%f0,%f1,%f2,%f3,%f4,%f5,%f6,%f7};",
        "cp.async.cg.shared.global [%r0], [%rd0], 8;",
        "ld.global.L1::evict_sometimes.u32 %r0, [%rd0];",
        "ld.global.u32.unheard %r0, [%rd0];",
        "add.rn.s32 %r0, %r1, %r2;",
        "shfl.down.b32 %r0, %r1, 1, 31;",
        "atom.global.add.b32 %r0, [%rd0], 1;",
        "mov.u32 %r0, %pm0;",
        "bar.sync.everyone 0;",
        "fence.proxy.everywhere;",
        "tex.1d.v4.f32.s32 {%f0,%f1,%f2,%f3}, [texture, {%r0}];",
        "prefetch.global.L7 [%rd0];",
    ],
)
def test_unknown_opcodes_and_modifiers_are_refused(line):
    found = unsupported(kernel(line))
    assert len(found) == 1
    assert found[0].instruction.startswith(line.split()[0].rstrip(";"))
    assert (found[0].kernel, found[0].line) == ("k", 7)
    assert found[0].file.endswith("mine.cu")


@pytest.mark.parametrize(
    "line",
    [
        "ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%r0, %r1, _, %r3}, [%rd0+-16];",
        "ld.relaxed.gpu.global.u64 %rd1, [%rd0];",
        "createpolicy.fractional.L2::evict_last.b64 %rd1, 0f3F800000;",
        "ld.global.L2::cache_hint.u32 %r0, [%rd0], %rd1;",
        "prefetch.global.L2 [%rd0];",
        "@!%p1 bra L; L: nanosleep.u32 20;",
        "barrier.cta.red.popc.aligned.u32 %r0, 0, 64, !%p0;",
        "vote.ballot.sync.b32 %r0, %p0, -1;",
        "{ .reg .b32 t; bra L; L: mov.b32 t, 0x10; } { bra L; L: membar.gl; }",
    ],
)
def test_known_forms_are_accepted(line):
    assert unsupported(kernel(line)) == ()


def test_calls_to_unknown_functions_are_refused():
    text = kernel(
        "{ .param .b64 a; .param .b64 b; st.param.b64 [a], 8; call.uni (b), malloc, (a); }"
    ).replace(".visible", ".extern .func (.param .b64 r) malloc (.param .b64 n);\n.visible", 1)
    (found,) = unsupported(text)
    assert found.instruction == "call.uni (b), malloc, (a)"


def test_text_that_is_no_ptx():
    (found,) = unsupported("this is not PTX")
    assert "PTX line 1" in found.instruction


def test_nothing_runs_with_an_unsupported_instruction(tmp_path):
    program = Program(kernel("cp.async.bulk.commit_groups;"), tmp_path)
    out = program.array("out", np.zeros(4, np.float32))
    program.launch("k", 1, 1, "out")
    outcome = program.run()
    assert isinstance(outcome, Unsupported)
    assert outcome.instructions[0].instruction == "cp.async.bulk.commit_groups"
    assert not out.any()


def test_a_managed_variable_is_unsupported(tmp_path):
    text = kernel("").replace(".visible", ".global .attribute(.managed) .b32 m;\n.visible", 1)
    program = Program(kernel(""), tmp_path)
    (tmp_path / "m.ptx").write_text(text)
    outcome = program.run()
    assert isinstance(outcome, Unsupported)
    assert ".attribute" in outcome.instructions[0].instruction


@pytest.fixture
def program(tmp_path):
    made = Program(compile_ptx(KERNELS / "faults.cu"), tmp_path)
    made.array("out", np.zeros(64, np.float32))
    return made


@pytest.mark.parametrize(
    ("grid", "block", "shared", "text"),
    [
        (1, 2048, 0, "a block of 2048 threads"),
        (1, (1, 1, 128), 0, "a block of 128 threads"),
        ((1, 70000), 1, 0, "grid dimensions that no device takes"),
        (0, 1, 0, "grid dimensions that no device takes"),
        (1, 1, 256 << 10, "more than 227 KiB of shared memory"),
    ],
)
def test_launches_that_hardware_refuses(program, grid, block, shared, text):
    program.launch("write_before", grid, block, "out", shared=shared)
    with pytest.raises(PlanError, match=text):
        program.run()


def test_parameters_of_the_wrong_size(program):
    program.launch("write_before", 1, 1, "out")
    launch = program.operations[0]
    program.operations[0] = launch.model_copy(update={"parameters": b"1234", "relocations": ()})
    with pytest.raises(PlanError, match="4 bytes of parameters, not 8"):
        program.run()


def test_a_plan_that_wants_more_memory_than_the_emulator_gives(program, monkeypatch):
    program.launch("trap", 1, 32, "out")
    monkeypatch.setattr(run, "MEMORY_LIMIT", 8)
    outcome = program.run()
    assert isinstance(outcome, Unsupported)
    assert "GiB of device memory" in outcome.instructions[0].instruction


def test_a_child_killed_from_outside_is_the_machine(program, monkeypatch, tmp_path):
    program.launch("trap", 1, 32, "out")
    killed = host_of("raise(SIGKILL);", tmp_path)
    monkeypatch.setattr(native, "host_program", lambda *_: killed)
    with pytest.raises(MachineError, match="killed from outside"):
        program.run()


def test_a_child_that_dies_is_a_fault(program, monkeypatch):
    program.launch("trap", 1, 32, "out")
    monkeypatch.setattr(native, "host_program", lambda *_: Path("/bin/false").resolve())
    fault = program.fault()
    assert fault.what == "illegal_instruction"
    assert "ended with status 1 and without a result" in fault.message


def test_interrupt_leaves_no_orphan(tmp_path):
    """A SIGINT in the middle ends the child too."""
    script = tmp_path / "run.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import sys
            sys.path.insert(0, {str(Path(__file__).parent)!r})
            import numpy as np
            from pathlib import Path
            from emulated import KERNELS, Program, compile_ptx
            program = Program(compile_ptx(KERNELS / "faults.cu"), Path({str(tmp_path)!r}))
            program.array("out", np.zeros(64, np.float32))
            program.launch("endless", 1, 64, "out")
            print("begins", flush=True)
            program.run(wall_s=60)
            """
        )
    )
    child = subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None and child.stdout.readline() == b"begins\n"
    deadline = time.monotonic() + 30
    while not (hosts := descendants(child.pid)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert hosts
    child.send_signal(signal.SIGINT)
    child.wait(timeout=30)
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in hosts) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [pid for pid in hosts if Path(f"/proc/{pid}").exists()]


def descendants(pid: int) -> list[int]:
    """Processes below ``pid`` that run the emulator's host program."""
    parents, hosts = {}, []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path(f"/proc/{entry}/stat").read_text()
                command = Path(f"/proc/{entry}/exe").readlink()
            except OSError:
                continue
            parents[int(entry)] = int(stat.rsplit(")", 1)[1].split()[1])
            if command.name == "host":
                hosts.append(int(entry))

    def below(child: int) -> bool:
        return child == pid or (child in parents and below(parents[child]))

    return [host for host in hosts if below(host)]
