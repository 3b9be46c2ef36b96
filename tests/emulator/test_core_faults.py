"""Every way to go wrong is reported with kernel, block, thread, line and a sentence."""

from __future__ import annotations

import re

import numpy as np
import pytest
from emulated import KERNELS, Program, compile_ptx

from cudahercules.emulator.outcome import OutOfFuel

SOURCE = KERNELS / "faults.cu"


@pytest.fixture
def program(tmp_path):
    made = Program(compile_ptx(SOURCE), tmp_path)
    made.array("out", np.zeros(64, np.float32))
    return made


def line_of(text: str) -> int:
    lines = SOURCE.read_text().splitlines()
    found = [i + 1 for i, line in enumerate(lines) if text in line]
    assert len(found) == 1, (text, found)
    return found[0]


def test_read_past_the_end(program):
    program.array("in", np.zeros(100, np.float32), "input")
    program.launch("read_past_end", 4, 32, "in", "out")
    fault = program.fault(threads=1)
    assert (fault.what, fault.kernel, fault.block, fault.thread) == (
        "out_of_bounds",
        "read_past_end",
        (3, 0, 0),
        (4, 0, 0),
    )
    assert (fault.file, fault.line) == ("faults.cu", line_of("out[i % 4] = in[i]"))
    assert fault.instruction.startswith("ld.global.f32")
    assert fault.message.startswith(
        "out-of-bounds 4-byte read just past the end of buffer 'in' (400 bytes): kernel read_past_end, "
        f"block 3,0,0, thread 4,0,0, at faults.cu:{fault.line} [ld.global.f32"
    )


def test_write_before_the_start(program):
    program.launch("write_before", 1, 1, "out")
    fault = program.fault()
    assert "out-of-bounds 4-byte write 12 bytes before the start of buffer 'out' (256 bytes)" in fault.message


def test_inputs_are_read_only(program):
    program.array("in", np.zeros(64, np.float32), "input")
    program.launch("write_input", 1, 32, "in")
    fault = program.fault()
    assert fault.what == "out_of_bounds"
    assert "out-of-bounds 4-byte write: input buffer 'in' is read-only" in fault.message


def test_null_pointer(program):
    program.launch("null_pointer", 1, 1, "out")
    fault = program.fault()
    assert "out-of-bounds 4-byte read at address 0x0, a null pointer" in fault.message
    assert fault.line == line_of("nullptr")


def test_misaligned(program):
    program.launch("misaligned", 1, 1, "out")
    fault = program.fault()
    assert fault.what == "misaligned"
    assert re.search(
        r"misaligned 8-byte write at byte 4 of buffer 'out' \(256 bytes\) \(address 0x[0-9a-f]+\)",
        fault.message,
    )


def test_shared_past_the_end(program):
    program.launch("shared_past_end", 1, 64, "out", np.int32(8))
    fault = program.fault()
    assert fault.what == "out_of_bounds"
    assert fault.thread is not None and fault.thread[0] >= 56
    offset = 4 * (fault.thread[0] + 8)
    assert f"out-of-bounds 4-byte read at byte {offset} (256 bytes of shared memory)" in fault.message


def test_shared_before_the_start(program):
    program.launch("shared_past_end", 1, 64, "out", np.int32(-2))
    assert "4-byte read at byte -8 (256 bytes of shared memory)" in program.fault().message


def test_shared_misaligned(program):
    program.launch("shared_misaligned", 1, 32, "out", np.int32(6), shared=64)
    fault = program.fault()
    assert fault.what == "misaligned"
    assert (
        "misaligned 4-byte write at byte 6 (64 bytes of shared memory, 64 of them dynamic)" in fault.message
    )


def test_local_past_the_end(program):
    program.launch("local_past_end", 1, 1, "out", np.int32(1 << 20))
    fault = program.fault()
    assert fault.what == "out_of_bounds"
    assert "write at byte" in fault.message and "of local memory" in fault.message


def test_deadlock_groups_threads_by_line(program):
    program.launch("half_barrier", 1, 64, "out")
    fault = program.fault()
    assert fault.what == "deadlock"
    assert "none of the 64 living threads (of 64) can go on" in fault.message
    line = line_of("bar.sync 1, 96")
    assert set(fault.threads) == {
        f"32 threads wait at barrier 1 at faults.cu:{line}: (32,0,0)-(63,0,0)",
        f"32 threads wait at barrier 0 at faults.cu:{line + 2}: (0,0,0)-(31,0,0)",
    }


def test_barrier_divergence(program):
    program.launch("divergent_barrier", 1, 32, "out")
    fault = program.fault()
    assert fault.what == "barrier_divergence"
    assert "threads of one warp meet at barrier 0 from two places" in fault.message
    places = {line_of("if (threadIdx.x & 1) {") + 2, line_of("if (threadIdx.x & 1) {") + 5}
    assert fault.line in places
    (other,) = places - {fault.line}
    assert f"this one and faults.cu:{other}: a barrier in divergent code" in fault.message


def test_mask_without_the_caller(program):
    program.launch("mask_without_self", 1, 32, "out")
    fault = program.fault()
    assert fault.what == "mismatched_mask"
    assert "a thread is not in the lane mask 0xffff0000 that it names itself" in fault.message
    assert fault.line == line_of("0xffff0000u")


def test_masks_that_disagree(program):
    program.launch("masks_disagree", 1, 32, "out")
    fault = program.fault()
    assert fault.what == "mismatched_mask"
    assert len(fault.threads) == 2
    assert all("16 threads wait for the lanes of mask 0xffffffff" in t for t in fault.threads)


def test_trap(program):
    program.launch("trap", 1, 32, "out")
    fault = program.fault()
    assert (fault.what, fault.thread, fault.line) == ("trap", (5, 0, 0), line_of("__trap()"))


def test_assertion(program):
    program.launch("assertion", 1, 1, "out", np.int32(12))
    fault = program.fault()
    assert fault.what == "assertion"
    assert (
        f"assertion `n < 10` failed in void assertion(int *, int) (faults.cu:{line_of('assert(n < 10)')})"
        in fault.message
    )


def test_call_of_no_function(program):
    program.launch("bad_function", 1, 1, "out", np.uint64(0x1234))
    fault = program.fault()
    assert fault.what == "invalid_function"
    assert "call of 0x1234, which is no device function" in fault.message


def test_recursion(program):
    program.launch("recursion", 1, 1, "out", np.int32(20))
    program.complete()


def test_stack_overflow(program):
    program.launch("recursion", 1, 1, "out", np.int32(1 << 20))
    fault = program.fault()
    assert fault.what == "stack_overflow"
    assert fault.line == line_of("int deep(int n")


@pytest.mark.parametrize(
    ("kernel", "text"), [("endless", "out[0] = out[0] + 1"), ("endless_plain", "while (x)")]
)
def test_out_of_fuel_names_the_hot_line(program, kernel, text):
    program.launch(kernel, 1, 64, "out")
    outcome = program.run(wall_s=0.3)
    assert isinstance(outcome, OutOfFuel)
    assert (outcome.kernel, outcome.limit) == (kernel, "0.3 s")
    assert abs(outcome.line - line_of(text)) <= 1


def test_far_pointer(program):
    program.array("p", np.array([0xDEAD0000BEEF0000], np.uint64), "input")
    program.launch("read_dead_pointer", 1, 1, "p", "out")
    assert "at address 0xdead0000beef0000, far from all memory of the kernel" in program.fault().message


def test_a_grid_without_end_ends_at_the_limit(program):
    program.array("in", np.zeros(64, np.float32), "input")
    program.launch("one_each", 2**31 - 1, 1, "in", "out")
    outcome = program.run(wall_s=0.3)
    assert isinstance(outcome, OutOfFuel)
    assert (outcome.kernel, outcome.line) == ("one_each", 0)
