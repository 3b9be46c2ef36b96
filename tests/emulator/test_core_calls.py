"""Calls, module variables, generic addresses, 128-bit and double arithmetic."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from emulated import KERNELS, Program, compile_ptx

from cudahercules.record.plan import SYMBOL_BASE, Copy, Memset, Relocation, Symbol, Upload


@pytest.fixture
def program(tmp_path):
    return Program(compile_ptx(KERNELS / "calls.cu"), tmp_path)


def test_structs_by_value_and_recursion(program):
    out = program.array("out", np.zeros(22, np.int32))
    program.launch("structs", 1, 1, "out", struct.pack("<i4xd20s4x", 5, 2.0, b"x" * 20), np.int32(4))
    program.complete()
    assert (out[0], out[1]) == (5 + 10, 2 * 24)
    assert bytes(out[2:].astype(np.uint8)) == b"xbcde" + b"x" * 15


def test_function_pointers(program):
    out = program.array("out", np.zeros(8, np.int32))
    program.launch("pointers", 1, 1, "out", np.int32(8))
    program.complete()
    assert list(out) == [i * i if i % 2 else i * 3 for i in range(8)]


def test_module_variables_keep_their_values_between_launches(program):
    out = program.array("out", np.zeros(4, np.int32))
    program.launch("variables", 1, 1, "out", np.int32(1))
    program.launch("read_variables", 1, 1, "out")
    program.complete()
    assert list(out) == [3 + 2, 5, 40, 77 + 40]
    program.complete()
    assert list(out) == [3 + 2, 5, 40, 77 + 40]  # every run begins with the initial values


def test_host_operations(program):
    out = program.array("out", np.zeros(4, np.int32))
    other = program.array("other", np.zeros((4, 4), np.int32))
    program.symbols.append(Symbol(module=0, name="numbers", space="global", address=SYMBOL_BASE, size=16))
    program.symbols.append(
        Symbol(module=0, name="middle", space="global", address=SYMBOL_BASE + 4096, size=8)
    )
    out_at, other_at = (b.address for b in program.buffers)
    program.operations.append(
        Upload(stream=0, destination=SYMBOL_BASE, data=np.array([10, 20, 30, 40], np.int32).tobytes())
    )
    program.operations.append(
        Upload(
            stream=0,
            destination=SYMBOL_BASE + 4096,
            data=bytes(8),
            relocations=(Relocation(offset=0, kind="symbol", index=0, addend=8),),
        )
    )
    program.launch("variables", 1, 1, "out", np.int32(1))
    program.operations.append(Copy(stream=0, destination=other_at, source=out_at, width=16))
    program.operations.append(
        Memset(stream=0, address=other_at + 20, value=0x01020304, element_size=4, width=2, height=3, pitch=16)
    )
    program.complete()
    assert list(out[:3]) == [40 + 20, 5, 40]
    assert np.array_equal(other[0], out)
    assert (other[1:, 1:3] == 0x01020304).all() and (other[1:, [0, 3]] == 0).all()


def test_recursion_with_two_calls(program):
    out = program.array("out", np.zeros(16, np.int32))
    program.launch("fib", 1, 16, "out")
    program.complete()
    assert list(out) == [0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610]


def test_generic_addresses(program):
    out = program.array("out", np.zeros(49, np.int32))
    program.launch("generic", 1, 1, "out")
    program.complete()
    assert np.array_equal(out[:48].reshape(3, 16), np.tile(np.arange(16), (3, 1)))
    assert out[48] == 1 | 2 | 4 | 16


def test_branch_table(program):
    out = program.array("out", np.zeros(6, np.int32))
    program.launch("jump", 1, 6, "out", np.int32(3))
    program.complete()
    assert list(out) == [10, 20, 30] * 2


def test_index_outside_a_branch_table(program):
    program.array("out", np.zeros(6, np.int32))
    program.launch("jump", 1, 6, "out", np.int32(6))
    fault = program.fault()
    assert fault.what == "illegal_instruction"
    assert "branch index 3 is outside its table" in fault.message


def test_128_bit_arithmetic(program):
    values = [0x0123456789ABCDEF, 0xFEDCBA9876543210, 0x0FEDCBA987654321, 0xFFFFFFFFFFFFFFFF]
    program.array("in", np.array(values, np.uint64), "input")
    out = program.array("out", np.zeros(6, np.uint64))
    program.launch("carry", 1, 1, "out", "in")
    program.complete()
    a, b = values[0] << 64 | values[1], values[2] << 64 | values[3]
    got = [int(out[i]) << 64 | int(out[i + 1]) for i in (0, 2, 4)]
    assert got == [(a + b) % 2**128, a * b % 2**128, (a - b) % 2**128]


def test_double_library(program):
    out = program.array("out", np.zeros(6))
    x = 1.3
    program.launch("library", 1, 1, "out", np.float64(x))
    program.complete()
    expected = [math.sin(x), math.exp(x), x**1.7, math.erf(x), math.log1p(x), math.gamma(x)]
    assert np.allclose(out, expected, rtol=4e-15)


def test_parameter_struct_reached_by_index(program):
    out = program.array("out", np.zeros(32, np.float32))
    values = np.arange(300, dtype=np.float32)
    program.launch("big_parameter", 1, 32, "out", values.tobytes(), np.int32(5))
    program.complete()
    assert np.array_equal(out, (np.arange(32) * 7 + 5) % 300)
