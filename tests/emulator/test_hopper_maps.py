"""Tensor maps that kernels change: each field, both ways into global memory, and what is refused."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hopper import MODES, HopperProgram
from test_hopper_tensor import described

from cudahercules.emulator.examine import Examination, examine
from cudahercules.emulator.tensor_map import encode

UNCHANGED = 0xFFFFFFFF


@pytest.fixture
def program(tmp_path):
    return HopperProgram("hopper_maps.cu", tmp_path)


def change(base=0, dims=(0, 0), stride=0, box=(0, 0), step=0, swizzle=UNCHANGED, fill=0, type_=0, rank=0):
    return struct.pack("<QIIQIIIIIIIxxxx", base, *dims, stride, *box, step, swizzle, fill, type_, rank)


def address_of(program, name):
    return next(b.address for b in program.buffers if b.name == name)


def run(program, map_, changes, at, size, mode="late"):
    program.array("made", np.zeros(128, np.uint8))
    out = program.array("out", np.zeros(-(-size // 128) * 128, np.uint8))
    x, y = (np.int32(c) for c in at)
    program.launch("remade", 1, 32, map_, changes, "made", x, y, np.uint32(size), "out", shared=16384)
    program.complete(asynchrony=mode)
    return out


@pytest.mark.parametrize("mode", MODES)
def test_another_tensor_of_another_size(program, mode):
    program.array("first", np.arange(40 * 24, dtype=np.float32).reshape(40, 24), "input")
    second = np.arange(5000, 5000 + 50 * 36, dtype=np.float32).reshape(50, 36)
    program.array("second", second, "input")
    template = program.tensor_map("first", (16, 8))
    new = change(base=address_of(program, "second"), dims=(30, 41), stride=36 * 4)
    out = run(program, template, new, (20, 37), 16 * 8 * 4, mode)
    assert np.array_equal(out, described(second[:41, :30], (16, 8), (20, 37)))


@pytest.mark.parametrize("swizzle", [0, 1, 2, 3])
def test_box_and_swizzle(program, swizzle):
    a = np.arange(64 * 64, dtype=np.uint16).reshape(64, 64)
    program.array("a", a, "input")
    box = ((8, 16, 32, 64)[swizzle], 12)
    out = run(program, program.tensor_map("a", (8, 8)), change(box=box, swizzle=swizzle), (8, 5), box[0] * 24)
    assert np.array_equal(out, described(a, box, (8, 5), swizzle))


def test_steps_and_fill(program):
    a = np.arange(32 * 16, dtype=np.float32).reshape(32, 16)
    program.array("a", a, "input")
    map_ = program.tensor_map("a", (8, 12))
    out = run(program, map_, change(step=3, fill=1), (12, 25), 8 * 4 * 4)
    expected = described(a, (8, 12), (12, 25), steps=(1, 3), fill=np.float32(np.nan))
    got, wanted = out.view(np.float32), expected.view(np.float32)
    assert np.array_equal(np.isnan(got), np.isnan(wanted)) and np.isnan(got).any()
    assert np.array_equal(got[~np.isnan(got)], wanted[~np.isnan(wanted)])


def test_element_types_are_counted_as_ptx_counts_them(program):
    """9 is f64 and 10 bf16 there, 8 and 9 in cuTensorMapEncode: seen by how many bytes are filled."""
    a = np.ones((4, 16), np.float16)
    program.array("a", a, "input")
    map_ = program.tensor_map("a", (8, 4))
    out = run(program, map_, change(fill=1, type_=10), (16, 0), 64)
    assert set(out[:64].view(np.uint16).tolist()) == {0x7FF7}
    wide = HopperProgram("hopper_maps.cu", program.artifact.directory)
    wide.array("a", a, "input")
    new = change(fill=1, type_=9, dims=(4, 4), box=(2, 4))
    out = run(wide, wide.tensor_map("a", (8, 4)), new, (4, 0), 64)
    assert set(out[:64].view(np.uint64).tolist()) == {0x7FF7_7FF7_7FF7_7FF7}


def test_rank_is_one_less(program):
    a = np.arange(8 * 16, dtype=np.float32).reshape(1, 8, 16)
    program.array("a", a, "input")
    out = run(program, program.tensor_map("a", (16, 4, 1)), change(rank=1), (0, 2), 256)
    assert np.array_equal(out, described(a[0], (16, 4), (0, 2)))


def test_map_in_global_memory_changed_in_place(program):
    a = np.arange(20 * 16, dtype=np.float32).reshape(20, 16)
    program.array("a", a, "input")
    program.tensor_map("a", (16, 8))
    program.array("map", np.frombuffer(encode(program.maps[0]), np.uint8).copy())
    out = program.array("out", np.zeros(512, np.uint8))
    base = np.uint64(address_of(program, "a") + 3 * 64)
    numbers = base, np.int32(0), np.int32(4), np.uint32(512)
    program.launch("remade_in_place", 1, 32, "map", *numbers, "out", shared=16384)
    program.complete()
    assert np.array_equal(out, described(a[3:10], (16, 8), (0, 4)))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (change(stride=40), "no multiple of 16"),
        (change(base=1 << 20 | 8), "not aligned to 16 bytes"),
        (change(box=(257, 0)), "a box dimension outside 1 to 256"),
        (change(step=9), "an element stride outside 1 to 8"),
    ],
)
def test_values_that_no_map_can_have(program, wrong, message):
    program.array("a", np.zeros((8, 16), np.float32), "input")
    map_ = program.tensor_map("a", (16, 4))
    program.array("made", np.zeros(128, np.uint8))
    program.array("out", np.zeros(256, np.uint8))
    numbers = np.int32(0), np.int32(0), np.uint32(256)
    program.launch("remade", 1, 32, map_, wrong, "made", *numbers, "out", shared=16384)
    fault = program.fault()
    assert fault.what == "bulk_copy" and message in fault.message and "tensormap.replace" in fault.instruction


def test_bytes_that_are_no_map(program):
    program.launch("no_map", 1, 32)
    fault = program.fault()
    assert fault.what == "bulk_copy" and "no tensor map of cuTensorMapEncode" in fault.message


def test_the_checking_build_finds_nothing_wrong_with_it(program):
    program.array("a", np.arange(40 * 24, dtype=np.float32).reshape(40, 24), "input")
    map_ = program.tensor_map("a", (16, 8))
    program.array("made", np.zeros(128, np.uint8))
    program.array("out", np.zeros(512, np.uint8))
    numbers = np.int32(0), np.int32(0), np.uint32(512)
    program.launch("remade", 1, 32, map_, change(dims=(20, 30)), "made", *numbers, "out", shared=16384)
    found = examine(program.plan(), program.artifact, program.contents(), 60)
    assert isinstance(found, Examination) and (found.ending, found.findings) == ("completed", ())
