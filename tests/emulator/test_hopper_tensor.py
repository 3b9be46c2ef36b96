"""Tensor copies: raw bytes of boxes in shared memory against a description in Python."""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np
import pytest
from hopper import MODES, HopperProgram, line_of

from cudahercules.emulator.outcome import Unsupported
from cudahercules.errors import PlanError

SOURCE = "hopper_tensor.cu"
UNTOUCHED = 0xEE


@pytest.fixture
def program(tmp_path):
    return HopperProgram(SOURCE, tmp_path)


def described(
    tensor: np.ndarray,
    box: Sequence[int],
    at: Sequence[int],
    swizzle: int = 0,
    steps: Sequence[int] | None = None,
    fill: object = 0,
    shift: int = 0,
) -> np.ndarray:
    """The box as bytes of shared memory from ``shift`` bytes behind a multiple of 1024 on.

    ``box``, ``at`` and ``steps`` are innermost first. Said in words: elements follow each other, the
    innermost dimension first; then the 16-byte pieces of each line of 128 bytes change places, piece p
    of line n going to p XOR (n mod 2, 4 or 8).
    """
    steps = (1, *(steps or (1,) * len(box))[1:])
    extents = [-(-b // s) for b, s in zip(box, steps, strict=True)]
    values = np.full(extents[::-1], fill, tensor.dtype)
    for index in np.ndindex(*extents[::-1]):
        where = tuple(c + i * s for c, i, s in zip(at[::-1], index, steps[::-1], strict=True))
        if all(0 <= w < n for w, n in zip(where, tensor.shape, strict=True)):
            values[index] = tensor[where]
    plain = values.reshape(-1).view(np.uint8)
    lines = -(-plain.size // 128)
    whole = np.full(lines * 128, UNTOUCHED, np.uint8)
    modulus = (1, 2, 4, 8)[swizzle]
    for piece in range(plain.size // 16):
        line, inside = divmod(piece, 8)
        target = line * 8 + (inside ^ ((line + shift // 128) % modulus))
        whole[target * 16 : target * 16 + 16] = plain[piece * 16 : piece * 16 + 16]
    return whole


def load(program, rank, map_, at, expected, shift=0, mode="late", announced=None):
    """Runs the load and compares all lines of shared memory that the box touches."""
    out = program.array("out", np.zeros(expected.size, np.uint8))
    place = np.array([*at, *(0,) * (5 - rank)], np.int32).tobytes()
    nbytes = np.uint32(expected.size)
    announced = np.uint32(expected.size if announced is None else announced)
    program.launch(
        f"load_{rank}",
        1,
        64,
        map_,
        place,
        nbytes,
        announced,
        np.uint32(shift),
        "out",
        shared=int(nbytes) + 2048 + shift,
    )
    program.complete(mode)
    assert np.array_equal(out, expected)


def numbered(shape, dtype):
    return (np.arange(np.prod(shape)) % 60000 + 1).reshape(shape).astype(dtype)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("swizzle", [0, 1, 2, 3])
def test_box_of_a_matrix(program, swizzle, mode):
    inner = (64, 8, 16, 32)[swizzle]
    x = program.array("x", numbered((40, 96), np.float32), "input")
    map_ = program.tensor_map("x", (inner, 16), swizzle=swizzle)
    expected = described(x, (inner, 16), (20, 7), swizzle)
    load(program, 2, map_, (20, 7), expected, mode=mode)


@pytest.mark.parametrize("shift", [128, 384, 896])
@pytest.mark.parametrize("swizzle", [1, 2, 3])
def test_the_pattern_follows_the_address(program, swizzle, shift):
    x = program.array("x", numbered((16, 64), np.uint16), "input")
    inner = 8 << swizzle
    map_ = program.tensor_map("x", (inner, 16), swizzle=swizzle)
    expected = described(x, (inner, 16), (8, 0), swizzle, shift=shift)
    load(program, 2, map_, (8, 0), expected, shift=shift)


@pytest.mark.parametrize(
    ("shape", "box", "at"),
    [
        ((300,), (128,), (96,)),
        ((9, 8, 64), (32, 4, 3), (16, 2, 5)),
        ((5, 6, 7, 32), (16, 2, 3, 2), (8, 4, 2, 1)),
        ((3, 4, 5, 6, 16), (16, 3, 2, 2, 2), (0, 2, 1, 2, 1)),
    ],
)
def test_other_ranks(program, shape, box, at):
    x = program.array("x", numbered(shape, np.float32), "input")
    load(program, len(shape), program.tensor_map("x", box), at, described(x, box, at))


@pytest.mark.parametrize(
    "at", [(-4, 3), (88, 3), (20, -6), (20, 35), (-12, -2), (92, 38), (96, 0), (0, 40), (-16, 0)]
)
def test_outside_is_zero(program, at):
    x = program.array("x", numbered((40, 96), np.float32), "input")
    load(program, 2, program.tensor_map("x", (16, 8)), at, described(x, (16, 8), at))


@pytest.mark.parametrize(
    ("data_type", "bits"),
    [(6, 0x7FF7), (9, 0x7FF7), (7, 0x7FF77FF7), (8, 0x7FF77FF77FF77FF7)],
)
def test_outside_is_a_nan_if_asked(program, data_type, bits):
    dtype = {6: np.uint16, 9: np.uint16, 7: np.uint32, 8: np.uint64}[data_type]
    x = program.array("x", numbered((10, 32), dtype), "input")
    map_ = program.tensor_map("x", (16, 8), fill=1, data_type=data_type, swizzle=0)
    load(program, 2, map_, (24, 6), described(x, (16, 8), (24, 6), fill=bits))


def test_a_tensor_smaller_than_its_rows(program):
    """The pitch is the array's, the extents are less: what lies between is outside."""
    x = program.array("x", numbered((20, 32), np.float32), "input")
    map_ = program.tensor_map("x", (16, 8), shape=(13, 21))
    load(program, 2, map_, (12, 8), described(x[:13, :21], (16, 8), (12, 8)))


def test_element_strides(program):
    x = program.array("x", numbered((30, 9, 32), np.float32), "input")
    map_ = program.tensor_map("x", (32, 5, 8), steps=(1, 2, 3))
    load(program, 3, map_, (0, 3, 6), described(x, (32, 5, 8), (0, 3, 6), steps=(1, 2, 3)))


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64, np.float16, np.float64])
def test_element_types(program, dtype):
    x = program.array("x", numbered((12, 64), np.int64).astype(dtype), "input")
    load(program, 2, program.tensor_map("x", (32, 4)), (32, 8), described(x, (32, 4), (32, 8)))


@pytest.mark.parametrize("data_type", [10, 12])
def test_subnormal_floats(program, data_type):
    """Loads keep subnormals, though the types are called FTZ; one of them rounds to tf32."""
    x = np.array([[1e-40, -1e-40, 1.5, -0.0, np.inf, 2**-126, 3e-39, 7.0] * 4] * 8, np.float32)
    program.array("x", x, "input")
    if data_type == 12:
        bits = x.view(np.uint32)
        rounded = ((bits + 0xFFF + (bits >> 13 & 1)) & 0xFFFFE000).astype(np.uint32).view(np.float32)
    else:
        rounded = x
    load(
        program,
        2,
        program.tensor_map("x", (32, 4), data_type=data_type),
        (0, 0),
        described(rounded, (32, 4), (0, 0)),
    )


def test_tf32_is_rounded(program):
    x = (1 + np.arange(256, dtype=np.float64) * 2.0**-14).astype(np.float32).reshape(8, 32)
    program.array("x", x, "input")
    rounded = (np.round(x.astype(np.float64) * 1024) / 1024).astype(np.float32)  # half to even
    load(
        program,
        2,
        program.tensor_map("x", (32, 4), data_type=11),
        (0, 2),
        described(rounded, (32, 4), (0, 2)),
    )


def test_maps_in_global_and_constant_memory(program):
    x = program.array("x", numbered((16, 64), np.float32), "input")
    map_ = program.tensor_map("x", (32, 8), swizzle=3)
    program.array("place", np.zeros(128, np.uint8))
    outs = [program.array(f"out{i}", np.zeros(1024, np.uint8)) for i in range(2)]
    at = np.array([32, 4, 0, 0, 0], np.int32).tobytes()
    (buffer,) = [b for b in program.buffers if b.name == "place"]
    program.upload_map(buffer.address, map_)
    program.launch("load_by_pointer", 1, 32, "place", at, np.uint32(1024), "out0", shared=4096)
    program.symbol("constant_map", "constant", 128)
    program.upload_map(program.symbols[0].address, map_)
    program.launch("load_by_constant", 1, 32, at, np.uint32(1024), "out1", shared=4096)
    program.complete()
    for out in outs:
        assert np.array_equal(out, described(x, (32, 8), (32, 4), 3))


# --- stores ---------------------------------------------------------------------------------------


def stored(program, name, map_, at, raw, mode="late"):
    program.array("raw", raw, "input")
    place = np.array([*at, *(0,) * (5 - len(at))], np.int32).tobytes()
    program.launch(name, 1, 64, map_, place, "raw", np.uint32(raw.size), shared=raw.size + 2048)
    program.complete(mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("swizzle", [0, 1, 2, 3])
def test_store_undoes_load(program, swizzle, mode):
    inner = (64, 16, 32, 64)[swizzle]
    source = numbered((24, 96), np.float16)
    y = program.array("y", np.zeros_like(source))
    raw = described(source, (inner, 16), (24, 3), swizzle)
    stored(program, "store_2", program.tensor_map("y", (inner, 16), swizzle=swizzle), (24, 3), raw, mode)
    expected = np.zeros_like(source)
    expected[3:19, 24 : 24 + inner] = source[3:19, 24 : 24 + inner]
    assert np.array_equal(y, expected)


@pytest.mark.parametrize("at", [(88, 3), (92, 36), (20, 38), (96, 0)])
def test_stores_leave_the_outside_alone(program, at):
    y = program.array("y", np.zeros((40, 96), np.float32))
    box = numbered((8, 16), np.float32)
    stored(program, "store_2", program.tensor_map("y", (16, 8)), at, box.reshape(-1).view(np.uint8))
    expected = np.zeros_like(y)
    for r, c in np.ndindex(box.shape):
        if 0 <= at[1] + r < 40 and 0 <= at[0] + c < 96:
            expected[at[1] + r, at[0] + c] = box[r, c]
    assert np.array_equal(y, expected)


@pytest.mark.parametrize(
    ("shape", "box", "at"),
    [
        ((200,), (64,), (152,)),
        ((5, 6, 32), (16, 3, 2), (8, 4, 2)),
        ((2, 3, 4, 5, 16), (8, 2, 2, 2, 2), (8, 3, 2, 2, 1)),
    ],
)
def test_stores_of_other_ranks(program, shape, box, at):
    source = numbered(shape, np.float32)
    y = program.array("y", np.zeros_like(source))
    raw = described(source, box, at)
    stored(program, f"store_{len(shape)}", program.tensor_map("y", box), at, raw)
    part = tuple(slice(c, c + b) for c, b in zip(at[::-1], box[::-1], strict=True))
    expected = np.zeros_like(source)
    expected[part] = source[part]
    assert np.array_equal(y, expected)


@pytest.mark.parametrize(
    ("operation", "dtype"),
    [
        ("add", np.uint32),
        ("add", np.int32),
        ("add", np.uint64),
        ("add", np.float16),
        ("add", ml_dtypes.bfloat16),
        ("add", np.float32),
        ("min", np.int32),
        ("min", np.float16),
        ("max", np.uint32),
        ("max", ml_dtypes.bfloat16),
        ("inc", np.uint32),
        ("dec", np.uint32),
        ("and", np.uint32),
        ("or", np.uint64),
        ("xor", np.int32),
    ],
)
def test_reductions(program, operation, dtype):
    rng = np.random.default_rng(5)
    before = rng.integers(0, 9, (12, 32)).astype(dtype)
    box = rng.integers(0, 9, (8, 16)).astype(dtype)
    if operation in ("add", "min") and np.dtype(dtype).kind in "if":
        before, box = -before, box
    stored_as = {2: np.uint16, 4: np.uint32, 8: np.uint64}[np.dtype(dtype).itemsize]
    y = program.array("y", before.view(stored_as).copy()).view(dtype)
    number = (
        9
        if dtype == ml_dtypes.bfloat16
        else {"f": {2: 6, 4: 7}, "u": {4: 2, 8: 4}, "i": {4: 3}}[np.dtype(dtype).kind][
            np.dtype(dtype).itemsize
        ]
    )
    map_ = program.tensor_map("y", (16, 8), data_type=number)
    stored(program, f"reduce_{operation}", map_, (24, 2), box.reshape(-1).view(np.uint8))
    a, b = before[2:10, 24:32], box[:, :8]
    expected = before.copy()
    expected[2:10, 24:32] = {
        "add": lambda: a + b,
        "min": lambda: np.minimum(a, b),
        "max": lambda: np.maximum(a, b),
        "inc": lambda: np.where(a >= b, 0, a + 1),
        "dec": lambda: np.where((a == 0) | (a > b), b, a - 1),
        "and": lambda: a & b,
        "or": lambda: a | b,
        "xor": lambda: a ^ b,
    }[operation]()
    assert np.array_equal(y.view(stored_as), expected.view(stored_as))


ENDS = [0, 0x80000000, 1, 0x807FFFFF, 0x116C2, 0x00800000, 0x80800000, 0x3F800000, 0x7F7FFFFF]
ENDS += [0x7F800000, 0xFF800000, 0x7FC00001, 0xFFC12345, 0x7F800001, 0x7C007C01, 0x7E01FC00]
ENDS += [0x03FF8001, 0x04008400, 0x7BFF7BFF, 0x7F7F7F7F, 0x00010080, 0x807F7F80]


def _flushed(x):
    return np.where(np.abs(x) < 2**-126, np.copysign(np.float32(0), x), x)


@pytest.mark.parametrize(
    ("data_type", "dtype"), [(7, np.float32), (10, np.float32), (6, np.float16), (9, ml_dtypes.bfloat16)]
)
def test_sums_at_the_ends_of_the_range(program, data_type, dtype):
    """Subnormals (which type 10, FLOAT32_FTZ, flushes), overflow, infinities and NaNs."""
    rng = np.random.default_rng(8)
    words = rng.choice(np.array(ENDS, np.uint32), (2, 12, 32))
    stored_as = words.dtype if np.dtype(dtype).itemsize == 4 else np.dtype(np.uint16)
    before, box = words[0].view(stored_as), words[1, :8, :16].copy().view(stored_as)
    y = program.array("y", before.copy())
    map_ = program.tensor_map("y", (box.shape[1], 8), data_type=data_type)
    stored(program, "reduce_add", map_, (8, 2), box.reshape(-1).view(np.uint8))
    expected = before.copy()
    with np.errstate(all="ignore"):
        part = expected[2:10, 8 : 8 + box.shape[1]]
        x, y_ = (_flushed(v.view(dtype)) if data_type == 10 else v.view(dtype) for v in (part, box))
        sums = _flushed(x + y_) if data_type == 10 else x + y_
        nan = (1 << 8 * stored_as.itemsize - 1) - 1
        part[:] = np.where(np.isnan(sums.astype(np.float32)), nan, sums.view(stored_as))
    assert np.array_equal(y, expected)


def test_a_reduction_that_the_type_does_not_have(program):
    program.array("y", np.zeros((8, 32), np.float32))
    raw = np.zeros(512, np.uint8)
    program.array("raw", raw, "input")
    place = np.zeros(5, np.int32).tobytes()
    map_ = program.tensor_map("y", (16, 8))
    program.launch("reduce_xor", 1, 32, map_, place, "raw", np.uint32(512), shared=4096)
    assert program.fault().what == "bulk_copy"


def test_prefetch_does_nothing_visible(program):
    program.array("x", np.zeros((8, 32), np.float32), "input")
    out = program.array("out", np.zeros(1, np.int32))
    program.launch(
        "prefetch_box", 1, 1, program.tensor_map("x", (16, 8)), np.zeros(5, np.int32).tobytes(), "out"
    )
    program.complete()
    assert out[0] == 1


@pytest.mark.parametrize("mode", MODES)
def test_ring_of_two_stages(program, mode):
    x = program.array("x", numbered((56, 32), np.float32), "input")
    y = program.array("y", np.zeros_like(x))
    maps = [program.tensor_map(name, (32, 8), swizzle=3) for name in "xy"]
    program.launch("ring", 1, 64, *maps, np.int32(7), np.int32(1), shared=3072)
    program.complete(mode)
    assert np.array_equal(y, 2 * x)


def test_a_stage_that_is_filled_again_too_early(program):
    program.array("x", numbered((32, 32), np.float32), "input")
    y = program.array("y", np.zeros((32, 32), np.float32))
    maps = [program.tensor_map(name, (32, 8), swizzle=3) for name in "xy"]
    program.launch("ring", 1, 64, *maps, np.int32(4), np.int32(0), shared=3072)
    fault = program.fault("eager")
    assert fault.what == "deadlock"
    assert "0 bytes missing" in fault.threads[0] and not y.any()


# --- what is wrong ----------------------------------------------------------------------------------


@pytest.fixture
def boxes(program):
    """A float matrix, a map of boxes of 1024 bytes, and an output."""
    program.array("x", numbered((16, 32), np.float32), "inout")
    program.array("out", np.zeros(64, np.float32))
    return program, program.tensor_map("x", (32, 8))


def test_misaligned_shared_address(boxes):
    program, map_ = boxes
    program.launch("misaligned_box", 1, 1, map_, "out", shared=4096)
    fault = program.fault()
    assert fault.what == "bulk_copy" and "not aligned to 128 bytes" in fault.message
    assert (fault.kernel, fault.file) == ("misaligned_box", SOURCE)
    assert fault.line == line_of(SOURCE, 'LOAD "2d" INTO "[%0], [%1, {%2, %3}], [%4];"')


@pytest.mark.parametrize("at", [(2, 3), (-1, 0), (33, 0)])
def test_rows_begin_at_multiples_of_16_bytes(program, at):
    """Of boxes that are loaded, stored or reduced: anything else is an illegal instruction on an H200."""
    y = program.array("y", np.zeros((16, 32), np.float32))
    program.array("raw", np.zeros(512, np.uint8), "input")
    map_ = program.tensor_map("y", (16, 8))
    place = np.array([*at, 0, 0, 0], np.int32).tobytes()
    for kernel in ("load_2", "store_2", "reduce_add"):
        program.operations.clear()
        if kernel == "load_2":
            rest = (np.uint32(512), np.uint32(512), np.uint32(0), "raw")
        else:
            rest = ("raw", np.uint32(512))
        program.launch(kernel, 1, 64, map_, place, *rest, shared=4096)
        fault = program.fault()
        assert fault.what == "bulk_copy"
        assert f"the innermost coordinate, {at[0]}, is at byte {4 * at[0]} of a row" in fault.message
    assert not y.any()


@pytest.mark.parametrize("at", [(-8, 3), (92, -4), (-100, 0)])
def test_stores_at_negative_coordinates(program, at):
    """Loads may begin there; a store is an illegal instruction on an H200."""
    program.array("y", np.zeros((40, 96), np.float32))
    program.array("raw", np.zeros(512, np.uint8), "input")
    place = np.array([*at, 0, 0, 0], np.int32).tobytes()
    map_ = program.tensor_map("y", (16, 8))
    program.launch("store_2", 1, 64, map_, place, "raw", np.uint32(512), shared=4096)
    assert "a store at a negative coordinate" in program.fault().message


def test_wrong_number_of_coordinates(boxes):
    program, map_ = boxes
    program.launch("wrong_rank", 1, 1, map_, "out", shared=4096)
    fault = program.fault()
    assert fault.what == "bulk_copy" and "3 coordinates for a tensor map of rank 2" in fault.message


def test_a_map_that_the_kernel_changed(boxes):
    program, map_ = boxes
    program.array("place", np.zeros(128, np.uint8))
    (buffer,) = [b for b in program.buffers if b.name == "place"]
    program.upload_map(buffer.address, map_)
    program.launch("changed_map", 1, 1, "place", "out", shared=4096)
    assert "no tensor map of cuTensorMapEncode" in program.fault().message


def test_box_outside_shared_memory(boxes):
    program, map_ = boxes
    program.launch("misaligned_box", 1, 1, map_, "out", shared=0)
    program.launch("wrong_rank", 1, 1, map_, "out", shared=0)
    assert program.fault().what in ("bulk_copy", "out_of_bounds")


def test_a_map_that_leaves_its_buffer(boxes):
    program, _ = boxes
    map_ = program.tensor_map("x", (32, 8), shape=(17, 32))
    at, n = np.array([0, 12, 0, 0, 0], np.int32).tobytes(), np.uint32(1024)
    program.launch("load_2", 1, 32, map_, at, n, n, np.uint32(0), "out", shared=4096)
    fault = program.fault()
    assert fault.what == "out_of_bounds"
    assert "128-byte read just past the end of buffer 'x' (2048 bytes)" in fault.message


def test_a_store_to_an_input(program):
    program.array("x", numbered((16, 32), np.float32), "input")
    program.array("raw", np.zeros(1024, np.uint8), "input")
    place = np.zeros(5, np.int32).tobytes()
    program.launch(
        "store_2", 1, 32, program.tensor_map("x", (32, 8)), place, "raw", np.uint32(1024), shared=4096
    )
    assert "input buffer 'x' is read-only" in program.fault().message


def test_reading_before_the_wait(boxes):
    program, map_ = boxes
    program.launch("no_wait_for_load", 1, 64, map_, "out", shared=1024)
    program.complete("eager")
    assert np.array_equal(program.arrays["out"], np.arange(1, 65))
    program.complete("late")
    assert np.isnan(program.arrays["out"]).all()
    seen = set()
    for seed in range(8):
        program.complete(f"random:{seed}")
        seen.add(bool(np.isnan(program.arrays["out"]).all()))
    assert seen == {True, False}


def test_leaving_before_a_load_is_done(boxes):
    program, map_ = boxes
    program.launch("leaves_before_load", 1, 1, map_, shared=1024)
    program.complete("eager")
    fault = program.fault("late")
    assert fault.what == "missing_wait" and "a copy into its shared memory is under way" in fault.message
    assert fault.instruction.startswith("cp.async.bulk.tensor.2d")


def test_a_source_that_is_written_too_early(boxes):
    program, map_ = boxes
    program.launch("reuses_source", 1, 1, map_, np.int32(1), shared=1024)
    program.complete("late")
    right = np.concatenate([np.arange(256), 1000 + np.arange(256)]).reshape(16, 32)
    assert np.array_equal(program.arrays["x"], right)
    program.operations.clear()
    program.launch("reuses_source", 1, 1, map_, np.int32(0), shared=1024)
    program.complete("eager")
    assert np.array_equal(program.arrays["x"], right)
    program.complete("late")
    assert np.array_equal(program.arrays["x"][:8], 1000 + np.arange(256).reshape(8, 32))


def test_bytes_that_were_not_announced(boxes):
    program, map_ = boxes
    program.launch("announces_nothing", 1, 1, map_, "out", shared=1024)
    fault = program.fault("late")
    assert fault.what == "mbarrier_misuse"
    assert "ends while a copy that signals it is under way" in fault.message
    assert (
        "expect_tx is missing or too small" in fault.message
        and "the copy was issued at hopper_tensor.cu:" in fault.message
    )
    fault = program.fault("eager")
    assert fault.what == "deadlock"
    assert "1024 bytes came that no expect_tx announced" in fault.threads[0]


def test_bytes_that_were_announced_in_part(boxes):
    program, map_ = boxes
    program.launch("announces_too_little", 1, 1, map_, "out", shared=1024)
    for mode in ("eager", "late"):
        fault = program.fault(mode)
        assert fault.what == "deadlock"
        assert "512 bytes came that no expect_tx announced" in fault.threads[0]


def test_bytes_that_never_come(program):
    x = program.array("x", numbered((16, 32), np.float32), "input")
    program.array("out", np.zeros(1024, np.uint8))
    map_ = program.tensor_map("x", (32, 8))
    n = np.uint32(1024)
    at = np.zeros(5, np.int32).tobytes()
    program.launch("load_2", 1, 64, map_, at, n, np.uint32(4096), np.uint32(0), "out", shared=4096)
    fault = program.fault()
    assert fault.what == "deadlock" and len(fault.threads) == 1
    assert "0 of 1 arrivals missing, 3072 bytes missing" in fault.threads[0]
    assert fault.threads[0].startswith("64 threads wait on the mbarrier at byte ")
    assert "(0,0,0)-(63,0,0)" in fault.threads[0] and f"{SOURCE}:" in fault.threads[0]
    assert x.any()


# --- maps that no call of cuTensorMapEncode would make ------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"box": (300, 8)}, "box dimension outside 1 to 256"),
        ({"box": (3, 8)}, "no multiple of 16 bytes"),
        ({"box": (64, 8), "swizzle": 3}, "wider than the swizzle"),
        ({"strides": (100,)}, "stride that is no multiple of 16"),
        ({"element_strides": (1, 9)}, "element stride"),
        ({"dimensions": (0, 8)}, "dimension outside 1 to 2^32"),
        ({"dimensions": (8,)}, "lists of other lengths"),
        ({"data_type": 3, "oob_fill": 1}, "NaN fill"),
    ],
)
def test_impossible_maps(boxes, changes, text):
    program, _ = boxes
    program.tensor_map("x", (32, 8))
    program.maps[-1] = program.maps[-1].model_copy(update=changes)
    program.launch("leaves_before_load", 1, 1, type(boxes[1])(1), shared=1024)
    with pytest.raises(PlanError, match=text.replace("^", r"\^")):
        program.run()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"interleave": 1}, "interleave 1"),
        ({"swizzle": 4}, "swizzle 4"),
        ({"data_type": 13}, "data type 13"),
        ({"kind": "im2col"}, "Im2col"),
    ],
)
def test_maps_outside_the_emulator(boxes, changes, text):
    program, _ = boxes
    program.maps[-1] = program.maps[-1].model_copy(update=changes)
    program.launch("leaves_before_load", 1, 1, boxes[1], shared=1024)
    outcome = program.run()
    assert isinstance(outcome, Unsupported)
    assert text in outcome.instructions[0].instruction


@pytest.mark.parametrize("mode", MODES)
def test_leaving_before_a_store_is_done(boxes, mode):
    """Nobody waits for the last store: its source is read before the block's shared memory is another's."""
    program, map_ = boxes
    program.launch("leaves_before_store", 1, 1, map_, shared=1024)
    program.launch("leaves_before_store", 3, 1, map_, shared=1024)
    program.complete(mode)
    assert np.array_equal(program.arrays["x"][:8].reshape(-1), np.arange(5000, 5256))
