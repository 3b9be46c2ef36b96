"""libcu++'s barriers and atomics; memory from alloca."""

from __future__ import annotations

import numpy as np
import pytest
from emulated import ARCHITECTURE, KERNELS, Program, compile_ptx


@pytest.fixture(params=["80", "90"])
def program(request, tmp_path):
    architecture = request.param if ARCHITECTURE == "80" else ARCHITECTURE
    return Program(compile_ptx(KERNELS / "phases.cu", architecture), tmp_path)


def test_barrier_phases(program):
    out = program.array("out", np.zeros(96, np.int32))
    program.launch("phases", 1, 96, "out", np.int32(5))
    program.complete()
    assert np.array_equal(out, (np.arange(96) + 5) % 96)


def test_arrive_and_drop(program):
    out = program.array("out", np.zeros(64, np.int32))
    program.launch("dropping", 1, 64, "out")
    program.complete()
    assert (out[1::2] == 0).all() and (out[::2] == 2).all()


def test_transaction_bytes(tmp_path):
    program = Program(compile_ptx(KERNELS / "phases.cu", max(ARCHITECTURE, "90")), tmp_path)
    out = program.array("out", np.zeros(3, np.int32))
    program.launch("bytes", 1, 1, "out")
    program.complete()
    assert list(out) == [0, 0, 1]


@pytest.mark.parametrize("threads", [1, 2])
def test_tickets_across_blocks(program, threads):
    a = program.array("a", np.zeros(3, np.int32))
    out = program.array("out", np.zeros(256, np.int32))
    program.launch("tickets", 4, 64, "a", "out")
    program.complete(threads=threads)
    assert list(a) == [256, 255, 256]
    assert np.array_equal(out, 1 + 2 * np.arange(256))


def test_alloca(program):
    v = program.array("v", np.arange(120, dtype=np.int32).reshape(4, 30))
    expected = v[:, ::-1].copy()
    program.launch("reversed", 1, 4, "v", np.int32(30))
    program.complete()
    assert np.array_equal(v, expected)


def test_alloca_that_is_too_large(program):
    program.array("v", np.zeros(4, np.int32))
    program.launch("reversed", 1, 1, "v", np.int32(1 << 28))
    assert program.fault().what == "stack_overflow"


def test_staged_copies(program):
    x = np.random.default_rng(1).standard_normal(256 * 5).astype(np.float32)
    valid = 256 * 4 + 101
    program.array("x", x[:valid].copy(), "input")
    out = program.array("out", np.zeros((5, 64, 4), np.float32))
    program.launch("staged", 1, 64, "x", "out", np.int32(5), np.int32(valid))
    program.complete()
    x[valid:] = 0
    assert np.array_equal(out, x.reshape(5, 64, 4)[:, ::-1])


def test_a_forgotten_wait_shows(program):
    program.array("x", np.ones(128, np.float32), "input")
    out = program.array("out", np.zeros(128, np.float32))
    program.launch("forgotten_wait", 1, 32, "x", "out")
    program.complete()
    assert np.isnan(out).all()


def test_copies_that_arrive_on_a_barrier(program):
    x = program.array("x", np.arange(64, dtype=np.int32), "input")
    out = program.array("out", np.zeros(64, np.int32))
    program.launch("copies_on_a_barrier", 1, 64, "x", "out")
    program.complete()
    assert np.array_equal(out, x[::-1])
