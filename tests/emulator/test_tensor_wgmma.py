"""``wgmma``: types and sizes on raw registers, descriptors with asymmetric data for A and for B."""

from __future__ import annotations

import numpy as np
import pytest
import tensor_sums as sums
from emulated import Program
from hardware_sums import KINDS
from hardware_sums import operands as limits
from tensor_layouts import wgmma_a, wgmma_d
from tensor_programs import HEAD
from tensor_values import decode, gather, pack, random_bits, scatter, unpack
from wgmma_programs import SHARED, Layout, Wgmma, write_image

from cudahercules.emulator.outcome import Completed, Outcome

IMAGE = 48 << 10
BYTES = ("e4m3", "e5m2")
SUMS = [
    *(("f32", t, t) for t in ("f16", "bf16", "tf32")),
    ("f16", "f16", "f16"),
    *((d, a, b) for d in ("f32", "f16") for a in BYTES for b in BYTES),
]
"""Every type of sum."""
F16 = ("f32", "f16", "f16")

FORMS = [
    *(Wgmma(n, F16) for n in (8, 24, 64, 200, 256)),
    Wgmma(64, ("f16", "f16", "f16")),
    Wgmma(136, ("f32", "bf16", "bf16")),
    Wgmma(40, ("f32", "tf32", "tf32")),
    *(Wgmma(16, (d, a, b)) for d in ("f32", "f16") for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")),
    *(Wgmma(32, ("s32", a, b)) for a in ("s8", "u8") for b in ("s8", "u8")),
    Wgmma(48, ("s32", "s8", "s8"), saturate=True),
    Wgmma(16, F16, signs=(-1, 1)),
    Wgmma(16, F16, signs=(1, -1)),
    Wgmma(32, F16, turned=(1, 0)),
    Wgmma(64, F16, turned=(0, 1)),
    Wgmma(128, ("f32", "bf16", "bf16"), turned=(1, 1)),
    *(
        Wgmma(24, types, a_in_registers=True)
        for types in (
            F16,
            ("f32", "bf16", "bf16"),
            ("f32", "tf32", "tf32"),
            ("f32", "e4m3", "e5m2"),
            ("s32", "s8", "u8"),
        )
    ),
    Wgmma(64, F16, a_in_registers=True, turned=(0, 1), signs=(-1, 1)),
]


@pytest.fixture(scope="module")
def ptx() -> str:
    return HEAD + SHARED + "".join(form.ptx() for form in FORMS)


class Case:
    """Random A (64, k), B (n, k) and C (64, n) of a form, and the launch that multiplies them."""

    def __init__(self, form: Wgmma, seed: int = 0):
        self.form = form
        generator = np.random.default_rng(seed)
        d, a, b = form.types
        self.a = random_bits(generator, a, (64, form.k))
        self.b = random_bits(generator, b, (form.n, form.k))
        self.c = random_bits(generator, d, (64, form.n))

    def launch(
        self,
        program: Program,
        at_a: Layout,
        at_b: Layout,
        keep: int = 1,
        block: int = 128,
        mode: str = "late",
    ) -> Outcome:
        """Runs the form's kernel."""
        self.place(program, at_a, at_b, keep, block)
        return program.run(asynchrony=mode)

    def place(self, program: Program, at_a: Layout, at_b: Layout, keep: int = 1, block: int = 128) -> None:
        """Arrays and launch of the form's kernel. Bytes of shared memory that belong to neither matrix are
        NaN."""
        form = self.form
        image, written = np.full(IMAGE, 0xFF, np.uint8), np.zeros(IMAGE, bool)
        if not form.a_in_registers:
            write_image(image, self.a, at_a, written)
        write_image(image, self.b, at_b, written)
        d, type_a, _ = form.types
        c = pack(scatter(self.c, wgmma_d, 128, 64 * form.n // 128), d)
        a = pack(scatter(self.a, wgmma_a(type_a), 128, 64 * form.k // 128), type_a)
        program.array("image", image, "input")
        program.array("from", np.concatenate([c, a], axis=1), "input")
        program.array("out", np.zeros((128, form.accumulators), np.uint32))
        program.launch(
            form.kernel, 1, block, "image", np.uint32(IMAGE), "from", "out",
            np.uint64(at_a.descriptor), np.uint64(at_b.descriptor), np.uint32(keep), shared=IMAGE,
        )  # fmt: skip

    def result(self, program: Program) -> np.ndarray:
        """D's bit patterns (64, n)."""
        return gather(unpack(program.arrays["out"], self.form.types[0]), wgmma_d, (64, self.form.n))

    def run(self, ptx, tmp_path, at_a: Layout, at_b: Layout, keep: int = 1, mode: str = "late") -> np.ndarray:  # type: ignore[no-untyped-def]
        program = Program(ptx, tmp_path)
        outcome = self.launch(program, at_a, at_b, keep, mode=mode)
        assert isinstance(outcome, Completed), outcome
        return self.result(program)

    def check(self, got: np.ndarray, keep: int = 1) -> None:
        d, type_a, type_b = self.form.types
        c = self.c if keep else np.zeros_like(self.c)
        if d == "s32":
            exact = decode(self.a, type_a) @ decode(self.b, type_b).T + decode(c, d)
            assert np.array_equal(decode(got, d), exact)
            return
        a, b = (
            bits ^ bits.dtype.type(0 if sign > 0 else 1 << 8 * bits.dtype.itemsize - 1)
            for bits, sign in zip((self.a, self.b), self.form.signs, strict=True)
        )
        assert sums.same(decode(got, d), sums.of_wgmma(self.form.types, a, b, c))


def plain(form: Wgmma, which: int) -> Layout:
    """Without swizzle: A's tile at 0, B's at 16 KiB, with strides that fit nothing else."""
    start = (0, 16384)[which]
    return (
        Layout(16, 176, 400, start=start) if not form.turned[which] else Layout(16, 4624, 144, False, start)
    )


@pytest.mark.parametrize("form", FORMS, ids=lambda f: f.kernel.removeprefix("wgmma_mma_async_sync_aligned_"))
def test_types_and_sizes(ptx, tmp_path, form):
    case = Case(form, FORMS.index(form))
    case.check(case.run(ptx, tmp_path, plain(form, 0), plain(form, 1)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("types", SUMS, ids="-".join)
def test_sums_at_their_limits(tmp_path, types, kind):
    form = Wgmma(8, types)
    case = Case(form)
    case.a, case.b, case.c = limits(kind, types, (case.a.shape, case.b.shape, case.c.shape), 5)
    text = HEAD + SHARED + form.ptx()
    case.check(case.run(text, tmp_path, plain(form, 0), plain(form, 1)))


def test_scale_d_false_ignores_the_old_sums(ptx, tmp_path):
    case = Case(FORMS[1])
    case.c[:] = 0x7FC00000
    got = case.run(ptx, tmp_path, plain(case.form, 0), plain(case.form, 1), keep=0)
    case.c[:] = 0
    case.check(got)


K_MAJOR = [
    Layout(16, 4096, 144),
    Layout(16, 128, 2048),
    Layout(32, 16, 256),
    Layout(32, 0, 768),
    *(Layout(64, 16, 512, slice=s) for s in (0, 1)),
    Layout(64, 0, 1536, slice=1),
    *(Layout(128, 16, 1024, slice=s) for s in range(4)),
    Layout(128, 0, 3072, slice=2),
]
MN_MAJOR = [
    Layout(16, 128, 272, False),
    Layout(16, 2048, 128, False),
    Layout(32, 512, 256, False),
    Layout(32, 256, 1024, False),
    Layout(64, 1024, 512, False),
    Layout(64, 512, 2048, False),
    Layout(128, 2048, 1024, False),
    Layout(128, 1024, 8192, False),
]


def at(layout: Layout, start: int) -> Layout:
    return Layout(layout.width, layout.leading, layout.stride, layout.k_major, start, layout.slice)


@pytest.mark.parametrize("layout", K_MAJOR, ids=str)
@pytest.mark.parametrize("which", "ab")
def test_k_major_descriptors(ptx, tmp_path, layout, which):
    form = FORMS[2] if layout.stride < 3000 else FORMS[0]
    case = Case(form, 3)
    if which == "a":
        got = case.run(ptx, tmp_path, layout, Layout(16, 128, 256, start=32768))
    else:
        got = case.run(ptx, tmp_path, Layout(16, 128, 256, start=32768), layout)
    case.check(got)


@pytest.mark.parametrize("type_", ["tf32", "e4m3", "s8"])
@pytest.mark.parametrize("width", [32, 64, 128])
def test_swizzles_with_other_widths_of_values(ptx, tmp_path, type_, width):
    form = next(f for f in FORMS if f.types[1:] == (type_, type_) and not f.a_in_registers)
    case = Case(form, 4)
    last = width // 32 - 1
    case.check(
        case.run(
            ptx,
            tmp_path,
            Layout(width, 16, width * 8, slice=last),
            Layout(width, 16, width * 16, start=16384),
        )
    )


@pytest.mark.parametrize("layout", MN_MAJOR, ids=str)
@pytest.mark.parametrize("which", "ab")
def test_mn_major_descriptors(ptx, tmp_path, layout, which):
    form = next(f for f in FORMS if f.turned == ((1, 0) if which == "a" else (0, 1)) and not f.a_in_registers)
    case = Case(form, 5)
    other = Layout(16, 128, 256, start=32768)
    got = case.run(ptx, tmp_path, *((layout, other) if which == "a" else (other, layout)))
    case.check(got)


def test_both_operands_turned_and_swizzled(ptx, tmp_path):
    form = next(f for f in FORMS if f.turned == (1, 1))
    case = Case(form, 6)
    case.check(case.run(ptx, tmp_path, Layout(128, 0, 1024, False), Layout(128, 4096, 1024, False, 16384)))


@pytest.mark.parametrize("mode", ["eager", "late", "random:1", "random:2"])
def test_modes(ptx, tmp_path, mode):
    case = Case(FORMS[2], 7)
    case.check(case.run(ptx, tmp_path, plain(case.form, 0), plain(case.form, 1), mode=mode))


def test_integers_saturate(ptx, tmp_path):
    form = next(f for f in FORMS if f.saturate)
    case = Case(form)
    case.a[:] = case.b[:] = 0x80
    case.c[:] = 0x7FFFFFF0
    assert (case.run(ptx, tmp_path, plain(form, 0), plain(form, 1)) == 0x7FFFFFFF).all()


def test_descriptor_outside_shared_memory(ptx, tmp_path):
    """B's last 16 bytes lie behind the end of the block's shared memory."""
    form = FORMS[2]
    case = Case(form)
    program = Program(ptx, tmp_path)
    outside = Layout(16, 128, 256, start=IMAGE - 2032)

    class Wrong(Layout):
        @property
        def descriptor(self) -> int:
            return outside.descriptor

    fault = case.launch(program, Layout(16, 128, 256), Wrong(16, 128, 256, start=16384))
    assert fault.kind == "fault" and fault.what == "out_of_bounds"
    assert "16-byte read" in fault.message and "wgmma" in fault.message


def test_base_offset_moves_the_pattern(ptx, tmp_path):
    """A pattern that begins at 128 * 3 looks as one that begins at a multiple of 1024."""
    form = FORMS[0]
    case = Case(form, 8)

    class Shifted(Layout):
        @property
        def descriptor(self) -> int:
            return Layout.descriptor.fget(self) | 3 << 49  # type: ignore[attr-defined]

    shifted = Shifted(128, 16, 1024, start=384)
    case.check(case.run(ptx, tmp_path, shifted, Layout(16, 128, 256, start=32768)))
