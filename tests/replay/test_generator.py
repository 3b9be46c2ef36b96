"""The device's generator, compiled for the host, against its specification in NumPy."""

from __future__ import annotations

import ctypes
import math
import random
from pathlib import Path

import numpy as np
import pytest

from cudahercules import cache
from cudahercules.build.elf import read_cubin
from cudahercules.build.toolchain import find_toolchain
from cudahercules.process import Limits, run_limited
from cudahercules.replay import generator
from cudahercules.task import inputs
from cudahercules.task.model import (
    ARCHITECTURES,
    Constant,
    DType,
    Integer,
    LowRank,
    Normal,
    Outliers,
    Partition,
    Role,
    RowScaled,
    Tensor,
    Uniform,
    Wide,
)

HOST_SOURCE = Path(__file__).with_name("generator_on_host.cpp")
DISTRIBUTIONS = (
    Normal(),
    Normal(mean=-3.7, std=0.013),
    Normal(std=3e4),
    Uniform(kind="uniform", low=-0.3, high=1.1),
    Integer(kind="integer", low=-5, high=100),
    Integer(kind="integer", low=0, high=2**32 - 1),
    Constant(kind="constant", value=0.1),
    Outliers(kind="outliers", std=0.7, fraction=0.01, scale=1000.0),
    Wide(kind="wide", low_exponent=-30, high_exponent=30),
    Wide(kind="wide", low_exponent=-126, high_exponent=127),
    RowScaled(kind="row_scaled", low_exponent=-20, high_exponent=20),
    RowScaled(kind="row_scaled", low_exponent=100, high_exponent=127),
    LowRank(kind="low_rank", rank=3, std=2.0),
    Partition(kind="partition", total=97, empty=0.3, spread=6),
    Partition(kind="partition", total=2**24, spread=15),
    Partition(kind="partition", total=61, empty=1.0),
)
INTEGERS = (Integer, Constant, Partition)
SHAPES = ((1,), (7,), (4096,), (13, 5), (3, 4, 9), (64, 33))


@pytest.fixture(scope="module")
def on_host():
    """fill_on_host of generator_on_host.cpp."""
    toolchain = find_toolchain()
    texts = [p.read_bytes() for p in (HOST_SOURCE, *generator.SOURCES, generator.TABLE)]

    def make(directory: Path) -> None:
        flags = ["-std=c++17", "-O1", "-ffp-contract=off", "-shared", "-fPIC", "-w"]
        includes = [generator.SOURCES[0].parent, generator.TABLE.parent, toolchain.include]
        done = run_limited(
            [
                toolchain.host_compiler,
                *flags,
                *(f"-I{d}" for d in includes),
                "-o",
                directory / "f.so",
                HOST_SOURCE,
            ],
            Limits(wall_s=120),
            env=toolchain.environment(directory),
        )
        assert done.status == 0, done.stderr.decode()

    directory, _ = cache.entry("replay-host", cache.digest(toolchain.identity, *texts), make)
    return ctypes.CDLL(str(directory / "f.so")).fill_on_host


def filled(on_host, tensor, shape, distribution, number, seed):
    size = math.prod(shape) * tensor.dtype.size
    raw = np.full(size + 64, 0xA5, np.uint8)
    start = -raw.ctypes.data % 16  # the device's buffers are aligned
    fill = generator.fill_parameters(tensor, shape, distribution, number, seed)
    kernel = generator.fill_kernel(tensor.dtype).encode()
    assert on_host(kernel, ctypes.c_void_p(raw.ctypes.data + start), ctypes.byref(fill)) == 0
    assert (raw[start + size :] == 0xA5).all(), "wrote past the end"
    return raw[start : start + size]


@pytest.mark.parametrize("dtype", list(DType), ids=str)
def test_bit_equal_to_the_specification(on_host, dtype):
    rng = random.Random(str(dtype))
    checked = 0
    for distribution in DISTRIBUTIONS:
        if dtype.is_integer:
            if not isinstance(distribution, INTEGERS):
                continue
            if isinstance(distribution, Partition) and distribution.total >= 256**dtype.size:
                continue
            if isinstance(distribution, Integer):
                distribution = Integer(kind="integer", low=0, high=120)
        elif isinstance(distribution, Partition):
            continue
        for shape in SHAPES:
            if isinstance(distribution, Partition) and math.prod(shape) > 200:
                continue  # each element looks at all: slow on the host
            for layout in ("row", "column") if len(shape) == 2 else ("row",):
                tensor = Tensor(name="t", role=Role.IN, dtype=dtype, shape=shape, layout=layout)
                seed, number = rng.getrandbits(64), rng.randrange(9)
                want = inputs.generate_values(tensor, shape, distribution, number, seed)
                got = filled(on_host, tensor, shape, distribution, number, seed)
                bits = np.frombuffer(want.tobytes("A"), np.uint8)
                assert np.array_equal(got, bits), (distribution, shape, layout)
                checked += 1
    assert checked >= 14


def test_parameters_have_the_layout_of_the_device_struct():
    """Offsets as nvcc lays out ``struct Fill``: eight 8-byte fields, then eight 4-byte ones."""
    assert ctypes.sizeof(generator.Fill) == 96
    assert generator.Fill.kind.offset == 64
    assert generator.Fill.boost.offset == 88


def test_hash_of_the_device_in_numpy_is_the_sum_of_mixed_words():
    data = bytes(range(29))
    words = [int.from_bytes(data[i : i + 8].ljust(8, b"\0"), "little") for i in range(0, 29, 8)]
    total = sum(generator.mixed(w ^ generator.mixed(i + 1)) for i, w in enumerate(words)) % 2**64
    assert generator.hash_bytes(data) == total
    assert generator.hash_bytes(data) != generator.hash_bytes(data[::-1])
    assert generator.hash_bytes(b"") == 0


@pytest.mark.parametrize(
    "architecture", [pytest.param(a, marks=() if a == "90a" else pytest.mark.slow) for a in ARCHITECTURES]
)
def test_device_code_builds_and_wiping_covers_what_it_says(architecture):
    cubin = generator.device_code(architecture, find_toolchain().nvcc)
    kernels = {k.name: k for k in read_cubin(cubin, "")[0]}
    assert {generator.fill_kernel(d) for d in DType} <= set(kernels)
    for size in generator.LOCAL_BYTES:
        assert kernels[f"wipe_local_{size}"].local >= size
    assert kernels["wipe_shared"].registers >= 48  # of 64 a thread: the register file is overwritten
    assert len(kernels["fill_fp32"].parameters) == 2
    assert kernels["fill_fp32"].parameters[1] == (8, ctypes.sizeof(generator.Fill))
