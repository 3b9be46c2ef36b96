"""Shuffles against the PTX manual's pseudo-code, special registers, unusual atomics."""

from __future__ import annotations

import os

import numpy as np
import pytest
from emulated import ARCHITECTURE, KERNELS, Program, compile_ptx

SOURCE = KERNELS / "lanes.cu"


@pytest.fixture(scope="module")
def ptx():
    # 128-bit atomics need sm_90.
    return compile_ptx(SOURCE, max(ARCHITECTURE, "90"))


def expected_shuffle(mode: int, b: int, c: int) -> tuple[list[int], list[int]]:
    values, inside = [], []
    for lane in range(32):
        own = ((lane * 5 + 2) % 32 if b < 0 else b) & 31
        clamp, segment = c & 31, c >> 8 & 31
        most, least = (lane & segment) | (clamp & ~segment & 31), lane & segment
        j, p = {
            0: (lane - own, lane - own >= most),
            1: (lane + own, lane + own <= most),
            2: (lane ^ own, (lane ^ own) <= most),
            3: (least | (own & ~segment), (least | (own & ~segment)) <= most),
        }[mode]
        values.append((j if p else lane) * 3 + 1)
        inside.append(int(p))
    return values, inside


@pytest.mark.parametrize("mode", range(4))
def test_shuffle_modes(ptx, tmp_path, mode):
    program = Program(ptx, tmp_path)
    cases = [
        (b, c)
        for b in (-1, 0, 1, 7, 16, 31)
        for c in ((0, 0x1000, 0x1800, 0x1C00) if mode == 0 else (31, 0x101F, 0x181F, 0x1E1F, 0x1805))
    ]
    values = program.array("values", np.zeros((len(cases), 32), np.int32))
    inside = program.array("inside", np.zeros((len(cases), 32), np.int32))
    base = {b.name: b.address for b in program.buffers}
    for i, (b, c) in enumerate(cases):
        pointers = (np.uint64(base[n] + i * 128) for n in ("values", "inside"))
        program.launch("shuffles", 1, 32, np.int32(mode), np.int32(b), np.int32(c), *pointers)
    program.complete()
    for i, (b, c) in enumerate(cases):
        expected = expected_shuffle(mode, b, c)
        assert (list(values[i]), list(inside[i])) == expected, (b, hex(c))


def test_special_registers_of_a_three_dimensional_launch(ptx, tmp_path):
    program = Program(ptx, tmp_path)
    out = program.array("out", np.zeros((6, 60, 5), np.uint32))
    program.launch("specials", (3, 2, 1), (5, 4, 3), "out", shared=48)
    program.complete()
    t = np.arange(60)
    lane = (t % 32).astype(np.uint64)
    assert (out[..., 0] == lane).all() and (out[..., 1] == t // 32).all()
    assert (out[..., 2] == (1 << lane) - 1).all()
    assert (out[..., 3] == (0xFFFFFFFF ^ ((1 << lane) - 1))).all()
    assert (out[..., 4] == 48).all()


def test_scratch_is_not_zero(ptx, tmp_path):
    program = Program(ptx, tmp_path)
    program.array("scratch", np.zeros(32, np.uint32), "scratch")
    del program.arrays["scratch"]
    out = program.array("out", np.zeros(32, np.uint32))
    program.launch("scratch_contents", 1, 32, "scratch", "out")
    program.complete()
    assert (out == 0x7FFF7FFF).all()
    assert np.isnan(out.view(np.float32)).all()


def test_atomics_on_halves(ptx, tmp_path):
    program = Program(ptx, tmp_path)
    half = program.array("half", np.zeros(1, np.float16))
    pair = program.array("pair", np.zeros(2, np.float16))
    brain = program.array("brain", np.zeros(1, np.uint16))
    program.launch("half_atomics", 4, 32, "half", "pair", "brain")
    program.complete(threads=2)
    assert half[0] == 128 and list(pair) == [256, 128] and brain[0] == 0x4300


@pytest.mark.parametrize(("before", "after"), [((5, 6), (7, 8)), ((5, 9), (5, 9))])
def test_128_bit_compare_and_swap(ptx, tmp_path, before, after):
    program = Program(ptx, tmp_path)
    p = program.array("p", np.array([before], np.uint64))
    out = program.array("out", np.zeros(2, np.uint64))
    program.launch("wide_cas", 1, 1, "p", "out")
    program.complete()
    assert tuple(out) == before and tuple(p[0]) == after


def test_nothing_stays_behind(ptx, tmp_path):
    program = Program(ptx, tmp_path)
    program.array("out", np.zeros((1, 32, 5), np.uint32))
    program.launch("specials", 1, 32, "out")
    program.complete()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        program.complete()
    assert len(os.listdir("/proc/self/fd")) == before
