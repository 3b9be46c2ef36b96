"""mbarrier in all its forms, linear bulk copies, cp.async arrivals; misuse and deadlocks."""

from __future__ import annotations

import numpy as np
import pytest
from hopper import MODES, HopperProgram, line_of

from cudahercules.errors import UsageError

SOURCE = "hopper_mbarrier.cu"


@pytest.fixture
def program(tmp_path):
    return HopperProgram(SOURCE, tmp_path)


def test_states(program):
    out = program.array("out", np.full(17, 999, np.uint32))
    program.launch("states", 1, 1, "out")
    program.complete()
    expected = [5, 4, 4, 2, 0, 1, 11, 4, 1, 0, 0, 1, 3, 2, 3, 1048575, 257]
    assert list(out) == expected


@pytest.mark.parametrize("how", [0, 1, 2])
def test_a_token_goes_round(program, how):
    out = program.array("out", np.zeros(1, np.int32))
    program.launch("round_trip", 1, 64, "out", np.int32(20), np.int32(how))
    program.complete()
    token = 0
    for i in list(range(64)) * 20:
        token = token * 3 % 1000003 + i
    assert out[0] == token


@pytest.mark.parametrize("mode", MODES)
def test_linear_copies_and_reductions(program, mode):
    x = program.array("x", np.random.default_rng(1).integers(-99, 99, (6, 256)).astype(np.int32), "input")
    out = program.array("out", np.zeros_like(x))
    sums = program.array("sums", np.zeros(256, np.int32))
    lowest = program.array("lowest", np.zeros(128, np.int32))
    program.launch("there_and_back", 6, 32, "x", "out", "sums", "lowest")
    program.complete(mode, threads=2)
    assert np.array_equal(out, x + 1)
    assert np.array_equal(sums, (x + 1).sum(0))
    assert np.array_equal(lowest, np.minimum(0, (x + 1)[:, :128].min(0)))


def test_reductions_of_other_types(program):
    rng = np.random.default_rng(2)
    halves = program.array("halves", rng.standard_normal(64).astype(np.float16), "input")
    floats = program.array("floats", rng.standard_normal(64).astype(np.float32), "input")
    total = program.array("total", rng.standard_normal(64).astype(np.float32))
    tiny, least = 1e-40, 2.0**-126
    floats[:6] = [tiny, tiny, -tiny, least, np.inf, 3e38]
    total[:6] = [0, tiny, tiny, -least + tiny, -np.inf, 3e38]
    sum_ = program.array("sum", np.full(64, 0.5, np.float16))
    bits = program.array("bits", np.full(2, 0xFFFF, np.uint64))
    before = total.copy()
    program.launch("reduce_halves", 1, 32, "halves", "sum", "floats", "total", "bits")
    program.complete()
    assert np.array_equal(sum_, np.float16(0.5) + halves)
    with np.errstate(all="ignore"):
        wanted = before + floats  # subnormal numbers are kept
    assert np.array_equal(total, wanted, equal_nan=True) and total.view(np.uint32)[4] == 0x7FFFFFFF
    assert list(bits) == [0x0F0F, 0xF00FFF ^ 0x0000FF ^ 0xFF ^ 0x00]


@pytest.mark.parametrize("left", [0, 1, 2])
def test_waiting_for_some_groups(program, left):
    program.array("x", np.arange(1, 13, dtype=np.int32), "input")
    out = program.array("out", np.zeros(12, np.int32))
    seen = program.array("seen", np.zeros(3, np.int32))
    program.launch("groups", 1, 1, "x", "out", "seen", np.int32(left))
    program.complete("late")
    assert list(seen) == [[1, 5, 9], [1, 5, 0], [1, 0, 0]][left]
    assert np.array_equal(out, np.arange(1, 13))
    program.complete("eager")
    assert list(seen) == [1, 5, 9]


@pytest.mark.parametrize("counted", [0, 1])
@pytest.mark.parametrize("mode", MODES)
def test_copies_that_arrive(program, mode, counted):
    x = program.array("x", np.arange(64, dtype=np.int32), "input")
    out = program.array("out", np.zeros(64, np.int32))
    program.launch("copies_that_arrive", 1, 64, "x", "out", np.int32(counted))
    program.complete(mode)
    assert np.array_equal(out, x.reshape(2, 32)[:, ::-1].reshape(-1))


def test_waiting_for_another_barrier(program):
    program.array("x", np.arange(1, 9, dtype=np.int32), "input")
    out = program.array("out", np.zeros(3, np.int32))
    program.launch("waits_for_another", 1, 1, "x", "out")
    program.complete("eager")
    assert list(out) == [1, 5, 1]
    program.complete("late")
    assert list(out) == [-1, 5, 1]


def test_random_orders_differ(program):
    """Some seed shows the early reader stale data, another does not; a seed gives the same run again."""
    program.array("x", np.arange(1, 9, dtype=np.int32), "input")
    out = program.array("out", np.zeros(3, np.int32))
    program.launch("waits_for_another", 1, 1, "x", "out")
    seen = []
    for seed in range(8):
        program.complete(f"random:{seed}")
        first = list(out)
        program.complete(f"random:{seed}")
        assert list(out) == first
        seen.append(first[0])
    assert set(seen) == {-1, 1}


@pytest.mark.parametrize("mode", MODES)
def test_barriers_of_the_library(program, mode):
    x = program.array("x", np.arange(64, dtype=np.int32), "input")
    out = program.array("out", np.zeros(32, np.int32))
    program.launch("through_the_library", 1, 32, "x", "out")
    program.complete(mode)
    assert np.array_equal(out, x[::-1][:32] + x[:32][::-1])


@pytest.mark.parametrize("mode", ["", "sometimes", "random", "random:x"])
def test_unknown_modes(program, mode):
    program.array("out", np.zeros(17, np.uint32))
    program.launch("states", 1, 1, "out")
    program.asynchrony = mode
    with pytest.raises(UsageError, match="eager, late or random:SEED"):
        program.run()


@pytest.mark.parametrize(
    ("which", "what", "text"),
    [
        (0, "mbarrier_misuse", "the mbarrier at byte 256 of shared memory was not initialised"),
        (1, "mbarrier_misuse", "a count of 0 arrivals"),
        (2, "mbarrier_misuse", "a count of 1048576 arrivals"),
        (
            3,
            "mbarrier_misuse",
            "3 arrivals at the mbarrier at byte 256 of shared memory, whose phase waits for 2",
        ),
        (
            4,
            "mbarrier_misuse",
            "whose phase waits for 0 (initialised with 1) and for bytes that have not come",
        ),
        (
            5,
            "mbarrier_misuse",
            "the transaction count of the mbarrier at byte 256 of shared memory overflows: 1048576",
        ),
        (6, "mbarrier_misuse", "an arrival marked noComplete completes the phase"),
        (7, "mbarrier_misuse", "was not initialised"),
        (8, "mbarrier_misuse", "is initialised while a copy that signals it is under way"),
        (9, "mbarrier_misuse", "is invalidated while a copy that signals it is under way"),
        (10, "misaligned", "misaligned 8-byte atomic operation at byte 260"),
        (11, "out_of_bounds", "input buffer 'x' is read-only"),
        (12, "mbarrier_misuse", "overflows: -1048576 bytes"),
        (20, "bulk_copy", "the destination of a bulk copy is not aligned to 16 bytes"),
        (21, "bulk_copy", "the source of a bulk copy is not aligned to 16 bytes"),
        (22, "bulk_copy", "the size of a bulk copy is no multiple of 16 bytes (40)"),
        (23, "out_of_bounds", "out-of-bounds 1024-byte"),
        (24, "out_of_bounds", "256-byte read at byte 128 of buffer 'x' (256 bytes)"),
        (25, "out_of_bounds", "input buffer 'x' is read-only"),
    ],
)
def test_misuse(program, which, what, text):
    program.array("x", np.zeros(64, np.int32), "input")
    program.launch("misuse", 1, 1, np.int32(which), "x")
    fault = program.fault()
    assert fault.what == what and text in fault.message
    assert fault.file == SOURCE and fault.line and fault.thread == (0, 0, 0)


def test_an_object_that_is_not_in_shared_memory(program):
    program.array("x", np.zeros(64, np.int32))
    program.launch("misuse", 1, 1, np.int32(11), "x")
    fault = program.fault()
    assert fault.what == "mbarrier_misuse" and "does not lie in shared memory" in fault.message


@pytest.mark.parametrize("how", [2, 3])
def test_deadlock_with_pauses(program, how):
    program.launch("nobody_arrives", 1, 64, np.int32(how))
    fault = program.fault()
    assert fault.what == "deadlock" and len(fault.threads) == 2
    assert any("(39 of 40 arrivals missing, 96 bytes missing)" in t for t in fault.threads)


@pytest.mark.parametrize("how", [0, 1])
def test_deadlock_names_barriers(program, how):
    program.launch("nobody_arrives", 1, 64, np.int32(how))
    fault = program.fault()
    assert fault.what == "deadlock"
    assert "none of the 64 living threads (of 64) can go on" in fault.message
    text = "try_wait.parity.relaxed" if how == 0 else "test_wait.parity"
    assert set(fault.threads) == {
        "32 threads wait on the mbarrier at byte 8 of shared memory for the phase of parity 0 "
        "(39 of 40 arrivals missing, 96 bytes missing) "
        f"at {SOURCE}:{line_of(SOURCE, text)}: (32,0,0)-(63,0,0)",
        f"32 threads wait at barrier 0 at {SOURCE}:{line_of(SOURCE, '// the others')}: (0,0,0)-(31,0,0)",
    }
