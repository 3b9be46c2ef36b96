"""Programs made for the comparison with hardware alone: raw operands in, raw results out.

Every variant of the scalar table that sm_90a has, all 256 tables of lop3, and each tensor-core instruction on
raw fragments and shared memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import hardware_sums as sums
import numpy as np
import scalar_harness as harness
import test_tensor_sparse as sparse
from emulated import Program
from scalar_kernels import BLOCK, kernel
from tensor_programs import HEAD, MMAS, Mma, module
from tensor_values import random_bits
from test_tensor_mma import operands, pieces
from test_tensor_wgmma import FORMS, K_MAJOR, MN_MAJOR, SUMS, Case, at, plain
from wgmma_programs import SHARED, Layout, Wgmma

from cudahercules.emulator.scalar.pattern import Variant
from cudahercules.emulator.scalar.table import APPROXIMATE

TUPLES, APPROXIMATE_TUPLES = 40, 240
CHUNK = 100
"""Scalar variants in one program."""
SEEDS = 4
SCALAR_HEAD = [".version 9.0", ".target sm_90a", ".address_size 64"]


# ---- scalar --------------------------------------------------------------------------------------------


def scalar_inputs(variant: Variant) -> np.ndarray:
    """(tuples, sources) as 64-bit words."""
    return harness.inputs(variant, APPROXIMATE_TUPLES if variant.row in APPROXIMATE else TUPLES)


def key(variant: Variant) -> str:
    """What tells variants apart: an opcode can have two forms with different operands."""
    return f"{variant.name} {variant.row.operands_text}"


def scalar_variants() -> list[Variant]:
    """All but those of lop3, which has a program of its own; sm_90a does not take every one."""
    return [v for row in harness.ROWS if row.opcode != "lop3" for v in row.variants()]


def scalar_program(variants: Sequence[Variant], tmp_path: Path) -> Program:
    """One launch a variant; their tuples lie behind one another in ``in``, their results in ``out``."""
    lines = [*SCALAR_HEAD, *(line for i, v in enumerate(variants) for line in kernel(i, v))]
    program = Program("\n".join(lines) + "\n", tmp_path)
    words = [scalar_inputs(v) for v in variants]
    sizes = [(w.size, len(w) * len(harness.destinations(v))) for w, v in zip(words, variants, strict=True)]
    program.array("in", np.concatenate([w.reshape(-1) for w in words]), "input")
    program.array("out", np.zeros(sum(size for _, size in sizes), np.uint64))
    starts = [0, 0]
    for index, (tuples, pair) in enumerate(zip(words, sizes, strict=True)):
        blocks = -(-len(tuples) // BLOCK)
        program.launch(f"k{index}", blocks, BLOCK, "in", "out", np.uint32(len(tuples)))
        launch = program.operations[-1]
        moved = [
            r.model_copy(update={"addend": 8 * start})
            for r, start in zip(launch.relocations, starts, strict=True)
        ]
        program.operations[-1] = launch.model_copy(update={"relocations": tuple(moved)})
        starts = [start + size for start, size in zip(starts, pair, strict=True)]
    return program


def scalar_results(variants: Sequence[Variant], out: np.ndarray) -> Iterator[tuple[Variant, np.ndarray]]:
    """(tuples, destinations) of each variant from ``out`` of a scalar program."""
    start = 0
    for variant in variants:
        shape = (len(scalar_inputs(variant)), len(harness.destinations(variant)))
        size = shape[0] * shape[1]
        yield variant, out[start : start + size].reshape(shape)
        start += size
    assert start == len(out)


_LOP3 = """
.visible .entry tables(.param .u64 from, .param .u64 to) {{
.reg .b32 %r<9>; .reg .b64 %rd<5>; .reg .pred %p<3>;
ld.param.u64 %rd1, [from]; ld.param.u64 %rd2, [to];
mov.u32 %r1, %tid.x;
mul.wide.u32 %rd3, %r1, 12; add.u64 %rd1, %rd1, %rd3;
mul.wide.u32 %rd3, %r1, {bytes}; add.u64 %rd2, %rd2, %rd3;
ld.global.b32 %r2, [%rd1]; ld.global.b32 %r3, [%rd1+4]; ld.global.b32 %r4, [%rd1+8];
setp.gt.u32 %p1, %r1, 15;
{lines}
ret;
}}
"""


def lop3_program(tmp_path: Path) -> Program:
    """32 threads, each with all 256 tables on its three words, and some with a predicate."""
    lines = []
    for table in range(256):
        lines.append(f"lop3.b32 %r5, %r2, %r3, %r4, {table}; st.global.b32 [%rd2+{4 * table}], %r5;")
    for table in range(0, 256, 9):
        operation = ("and", "or")[table % 2]
        lines.append(
            f"lop3.{operation}.b32 %r5|%p2, %r2, %r3, %r4, {table}, %p1; selp.b32 %r6, 1, 0, %p2; "
            f"xor.b32 %r6, %r6, %r5; st.global.b32 [%rd2+{1024 + 4 * table}], %r6;"
        )
    program = Program(HEAD + _LOP3.format(bytes=2048, lines="\n".join(lines)), tmp_path)
    words = np.random.default_rng(3).integers(0, 1 << 32, (32, 3), dtype=np.uint32)
    words[0], words[1], words[16], words[17] = 0, 0xFFFFFFFF, 0, 0xFFFFFFFF
    program.array("in", words, "input")
    program.array("out", np.zeros((32, 512), np.uint32))
    program.launch("tables", 1, 32, "in", "out")
    return program


# ---- tensor cores --------------------------------------------------------------------------------------

SPARSE = [f for f in sparse.FORMS if f.d in ("f32", "f16") and not f.selector and not f.ordered]
SMALLEST = [Wgmma(8, types) for types in SUMS]
"""Sums of every type with the fewest values."""


Named = tuple[str, Program]


def tensor_cases(tmp_path: Path) -> Iterator[Named]:
    """Every mma with a few seeds; every form of wgmma, every layout for A and for B; sums of every kind."""
    for mma in MMAS:
        for seed in range(SEEDS):
            yield _mma(mma, seed, tmp_path)
    for form, at_a, at_b in _wgmma_cases():
        yield _wgmma(form, at_a, at_b, tmp_path)
    for kind in sums.KINDS:
        yield from _sums(kind, tmp_path)


def _mma(mma: Mma, seed: int, tmp_path: Path) -> Named:
    a, b, c = operands(mma, seed)
    if seed == 3:  # every exponent, infinities and NaNs
        generator = np.random.default_rng(99)
        a, b, c = (
            _any_bits(generator, x, t) for x, t in zip((a, b, c), (*mma.types[1:], mma.types[0]), strict=True)
        )
    return f"{mma.name} {seed}", _mma_program(mma, a, b, c, tmp_path)


def _mma_program(mma: Mma, a: np.ndarray, b: np.ndarray, c: np.ndarray, tmp_path: Path) -> Program:
    words = pieces(mma, a, b, c)
    program = Program(module([m.ptx() for m in MMAS]), tmp_path)
    program.array("in", words, "input")
    program.array("out", np.zeros((32, mma.sizes()[2]), words.dtype))
    program.launch(mma.kernel, 1, 32, "in", "out")
    return program


def _sums(kind: str, tmp_path: Path) -> Iterator[Named]:
    """Every float mma, mma.sp and wgmma of the smallest size on operands of ``kind``."""
    for mma in MMAS:
        if mma.types[0] in ("f32", "f16"):
            m, n, k = mma.shape
            a, b, c = sums.operands(kind, mma.types, ((m, k), (n, k), (m, n)), 1)
            yield f"{mma.name} {kind}", _mma_program(mma, a, b.T, c, tmp_path)
    for form in SPARSE:
        shapes = ((16, form.k // 2), (8, form.k), (16, 8))
        a, b, c = sums.operands(kind, (form.d, form.a, form.b), shapes, 2)
        nibbles = sparse.pruned(np.random.default_rng(2), form)[1]
        program = sparse.program(module([f.ptx() for f in SPARSE]), tmp_path, form, a, nibbles, b.T, c)
        yield f"{form.kernel} {kind}", program
    for wgmma in SMALLEST:
        case = Case(wgmma)
        shapes = (case.a.shape, case.b.shape, case.c.shape)
        case.a, case.b, case.c = sums.operands(kind, wgmma.types, shapes, 3)
        program = Program(module([SHARED, *(f.ptx() for f in SMALLEST)]), tmp_path)
        case.place(program, plain(wgmma, 0), plain(wgmma, 1))
        yield f"{wgmma.kernel} {kind}", program


def _any_bits(generator: np.random.Generator, like: np.ndarray, type_: str) -> np.ndarray:
    """One value of 64 with bits of any kind, the others moderate."""
    wild = generator.integers(0, 256, like.nbytes, dtype=np.uint8).view(like.dtype).reshape(like.shape)
    return np.where(generator.random(like.shape) < 1 / 64, wild, random_bits(generator, type_, like.shape))


def _wgmma_cases() -> Iterator[tuple[Wgmma, Layout, Layout]]:
    for form in FORMS:
        yield form, plain(form, 0), plain(form, 1)
    other = Layout(16, 128, 256, start=32768)
    for layout in K_MAJOR:
        form = FORMS[2] if layout.stride < 3000 else FORMS[0]
        yield form, at(layout, 0), other
        yield form, other, at(layout, 0)
    for layout in MN_MAJOR:
        for turned, pair in (((1, 0), (layout, other)), ((0, 1), (other, layout))):
            form = next(f for f in FORMS if f.turned == turned and not f.a_in_registers)
            yield form, *pair


def _wgmma(form: Wgmma, at_a: Layout, at_b: Layout, tmp_path: Path) -> Named:
    case = Case(form, 11)
    program = Program(module([SHARED, *(f.ptx() for f in FORMS)]), tmp_path)
    case.place(program, at_a, at_b)
    return f"{form.kernel} {at_a} {at_b}", program
