"""Threads that meet, vote, shuffle, lock, wait and print."""

from __future__ import annotations

import numpy as np
import pytest
from emulated import KERNELS, Program, compile_ptx


@pytest.fixture
def program(tmp_path):
    return Program(compile_ptx(KERNELS / "threads.cu"), tmp_path)


def test_tiles(program):
    out = program.array("out", np.zeros(64, np.int32))
    program.launch("tiles", 1, 64, "out")
    program.complete()
    i = np.arange(64)
    down = np.where(i % 8 < 6, i + 2, i)
    total = (i // 8 * 8) * 8 + 28
    assert np.array_equal(out, down * 100 + i // 8 + total * 10000)


def test_tiles_of_several_warps(program):
    out = program.array("out", np.zeros(256, np.int32))
    program.launch("big_tiles", 1, 256, "out")
    program.complete()
    i = np.arange(256)
    assert np.array_equal(out, i // 64 * 64 * 64 + 63 * 32 + i // 64)


def test_coalesced_threads(program):
    out = program.array("out", np.full(64, -1, np.int32))
    counter = program.array("counter", np.zeros(1, np.int32))
    program.launch("coalesced", 1, 64, "out", "counter")
    program.complete()
    chosen = np.arange(64) % 3 == 0
    assert counter[0] == chosen.sum()
    assert sorted(out[chosen]) == list(range(chosen.sum()))
    assert (out[~chosen] == -1).all()
    first = out[:32][chosen[:32]]
    assert np.array_equal(first, first[0] + np.arange(first.size))


@pytest.mark.parametrize("threads", [1, 2])
def test_grid_sync(program, threads):
    out = program.array("out", np.zeros(24 * 64, np.int32))
    program.launch("grid_sync", 24, 64, "out", np.int32(5), cooperative=True)
    program.complete(threads=threads)
    assert np.array_equal(out, (np.arange(24 * 64) + 5) % (24 * 64))


def test_votes_of_lanes_that_are_left(program):
    out = program.array("out", np.zeros(192, np.uint32))
    program.launch("votes", 1, 32, "out")
    program.complete()
    i = np.arange(24)
    assert (out[:24] == (1 | 2 | (0xAAAAAA << 4 & 0xFFFFFFFF))).all()
    groups = [sum(1 << j for j in range(24) if j // 5 == k // 5) for k in range(24)]
    assert np.array_equal(out[32:56], groups)
    assert (out[64:88] == 0xFFFFFF + 1).all()
    assert (out[96:120] == i.sum()).all()
    assert (out[128:152].view(np.int32) == 0).all()
    assert (out[160:184] == 0xFFFFFF).all()


def test_shuffles_in_divergent_code(program):
    out = program.array("out", np.zeros(32, np.int32))
    program.launch("divergent_shuffles", 1, 32, "out")
    program.complete()
    v = np.arange(32)
    first = 7 - v[:8]
    first = first + np.concatenate(([first[0]], first[:-1]))
    rest = (v[8:] // 16 * 16 + (v[8:] % 16 ^ 4)) * 2
    expected = np.concatenate((first, rest))
    assert np.array_equal(out, expected + expected[0])


def test_barriers(program):
    out = program.array("out", np.zeros(128, np.int32))
    program.launch("barriers", 1, 128, "out")
    program.complete()
    assert (out == 43 + 2000).all()


@pytest.mark.parametrize("kernel", ["spin_lock", "spin_lock_inner"])
def test_spin_lock_inside_a_warp(program, kernel):
    program.array("lock", np.zeros(1, np.int32))
    counter = program.array("counter", np.zeros(1, np.int32))
    program.launch(kernel, 6, 64, "lock", "counter")
    program.complete(threads=2)
    assert counter[0] == 384


def test_producer_and_consumer_in_one_warp(program):
    out = program.array("out", np.zeros(20, np.int32))
    program.launch("producer_consumer", 1, 32, "out")
    program.complete()
    assert np.array_equal(out, np.arange(20) ** 2)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_block_may_wait_for_a_later_one(program, threads):
    program.array("flags", np.zeros(64, np.int32))
    out = program.array("out", np.zeros(64, np.int32))
    program.launch("waits_for_later", 64, 32, "flags", "out")
    program.complete(threads=threads)
    assert np.array_equal(out, 64 - np.arange(64))


def test_sleeping(program):
    program.array("flag", np.zeros(1, np.int32))
    out = program.array("out", np.zeros(32, np.int32))
    program.launch("sleepers", 1, 32, "flag", "out")
    program.complete()
    assert out.sum() == 31


def test_printf(program):
    program.array("c", np.zeros(1, np.int8))
    program.launch("prints", 1, 3, np.int32(-4), np.float64(2.5), "c")
    printed = program.complete().printed
    assert printed.splitlines()[0] == "n=-4 d=2.500 text q     7|ff  |-5000000000%"
    assert sorted(printed.splitlines()[1:]) == ["t0", "t1", "t2"]


def test_atomics(program):
    u = program.array("u", np.array([0, 0, 0, 0, 0, 0, 0, 0xFFFF, 0, 0, 0, 0], np.uint32))
    f = program.array("f", np.zeros(5, np.float32))
    d = program.array("d", np.zeros(1, np.float64))
    wide = program.array("l", np.zeros(2, np.uint64))
    program.launch("atomics", 4, 64, "u", "f", "d", "l")
    program.complete(threads=2)
    assert u[0] == 256 and u[1] == 255 and u[2].view(np.int32) == -255
    assert u[3] == 256 % 10 and u[4] == (10 - 256 % 10) % 10
    assert u[5] == 0xFFFFFFFF and u[6] == 0 and u[7] == 0
    assert f[0] == 128 and d[0] == 64 and wide[0] == 256 << 33 and wide[1] == 255 << 32
    assert (f[1:] == 64 + 128).all() and (u[8:].view(np.int32) == -192).all()
