"""``mma.sp`` on raw registers: A's kept elements and the metadata where the manual puts them."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass

import numpy as np
import pytest
import tensor_sums as sums
from emulated import Program
from tensor_layouts import c_m16
from tensor_programs import module, register_kernel
from tensor_values import decode, random_bits

from cudahercules.emulator.check import unsupported

WIDTH = {"f16": 16, "bf16": 16, "tf32": 32, "s8": 8, "u8": 8, "e4m3": 8, "e5m2": 8, "s4": 4, "u4": 4}


@dataclass(frozen=True)
class Form:
    k: int
    d: str
    a: str
    b: str
    selector: int = 0
    saturate: bool = False
    ordered: bool = False

    @property
    def name(self) -> str:
        start = "mma.sp::ordered_metadata" if self.ordered else "mma.sp"
        middle = ".satfinite" if self.saturate else ""
        types = f"{self.d}.{self.a}.{self.b}.{self.d}"
        return f"{start}.sync.aligned.m16n8k{self.k}.row.col{middle}.{types}"

    @property
    def kernel(self) -> str:
        return f"{self.name}_{self.selector}".replace(".", "_").replace("::", "_")

    @property
    def accumulators(self) -> int:
        return 2 if self.d == "f16" else 4

    def ptx(self) -> str:
        n = 9 + self.accumulators
        a, b, c = ("{" + ", ".join(f"%x{i}" for i in range(*r)) + "}" for r in ((0, 4), (4, 8), (9, n)))
        line = f"{self.name} {c}, {a}, {b}, {c}, %x8, {self.selector};"
        return register_kernel(self.kernel, 32, n, line, self.accumulators)


FORMS = [
    *(
        Form(32, *types, selector)
        for types in (("f32", "f16", "f16"), ("f16", "f16", "f16"), ("f32", "bf16", "bf16"))
        for selector in (0, 1)
    ),
    *(Form(16, "f32", "tf32", "tf32", s) for s in (0, 1)),
    *(Form(64, "f32", a, b) for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")),
    *(Form(64, "s32", a, b, 0, s) for a in ("s8", "u8") for b in ("s8", "u8") for s in (False, True)),
    *(Form(128, "s32", a, b, 0, s) for a in ("s4", "u4") for b in ("s4", "u4") for s in (False, True)),
    Form(32, "f32", "f16", "f16", 1, ordered=True),
    Form(64, "s32", "s8", "s8", 0, ordered=True),
]


def element_bits(generator: np.random.Generator, type_: str, shape: tuple[int, ...]) -> np.ndarray:
    if WIDTH[type_] == 4:
        return generator.integers(0, 16, shape, dtype=np.uint8)
    bits = random_bits(generator, type_, shape)
    return bits & np.uint32(0xFFFFE000) if type_ == "tf32" else bits


def value(bits: np.ndarray, type_: str) -> np.ndarray:
    if type_ == "s4":
        return ((bits.astype(np.int8) ^ 8) - 8).astype(np.float64)
    return bits.astype(np.float64) if type_ == "u4" else decode(bits, type_)


def pruned(generator: np.random.Generator, form: Form) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Kept elements (16, k/2), their indices chunk by chunk (16, chunks), and the columns they stand in."""
    kept = element_bits(generator, form.a, (16, form.k // 2))
    width = {32: 2, 4: 8}.get(WIDTH[form.a], 4)
    chunks = form.k // width
    nibbles = np.zeros((16, chunks), np.int64)
    columns = np.zeros((16, form.k // 2), np.int64)
    for row in range(16):
        for chunk in range(chunks):
            if width == 2:
                place = int(generator.integers(2))
                nibbles[row, chunk] = (0b0100, 0b1110)[place]
                columns[row, chunk] = 2 * chunk + place
                continue
            low, high = sorted(generator.choice(4, 2, replace=False).tolist())
            nibbles[row, chunk] = low | high << 2
            if width == 4:
                columns[row, 2 * chunk : 2 * chunk + 2] = 4 * chunk + low, 4 * chunk + high
            else:
                pairs = [8 * chunk + 2 * x + i for x in (low, high) for i in (0, 1)]
                columns[row, 4 * chunk : 4 * chunk + 4] = pairs
    return kept, nibbles, columns


def metadata(form: Form, nibbles: np.ndarray) -> np.ndarray:
    """Each lane's register. Lanes that contribute nothing have all ones, which must not matter."""
    out = np.full(32, 0xFFFFFFFF, np.uint32)
    for lane in range(32):
        group, thread = lane >> 2, lane % 4
        if nibbles.shape[1] == 8:  # a pair of lanes: row `group` in the low half, `group` + 8 in the high
            if thread // 2 != form.selector:
                continue
            first = 4 * (thread % 2)
            parts = [*nibbles[group, first : first + 4], *nibbles[group + 8, first : first + 4]]
        else:  # T0 and T2 hold row `group`, T1 and T3 row `group` + 8
            first = 8 * (thread // 2)
            parts = nibbles[group + 8 * (thread % 2), first : first + 8].tolist()
        out[lane] = sum(int(x) << (4 * i) for i, x in enumerate(parts))
    return out


def registers(matrix: np.ndarray, width: int, rows: int) -> np.ndarray:
    """(32, 4) words of a matrix along k: A's kept elements (two groups of rows) or B by columns."""
    each = 32 // width
    out = np.zeros((32, 4), np.uint64)
    for lane in range(32):
        group, thread = lane >> 2, lane % 4
        for i in range(4):
            row = group + 8 * (i % 2) if rows == 16 else group
            first = (thread + 4 * (i // 2 if rows == 16 else i)) * each
            for j in range(each):
                out[lane, i] |= np.uint64(int(matrix[row, first + j]) << (j * width))
    return out.astype(np.uint32)


def program(ptx: str, tmp_path, form: Form, a, nibbles, b, c) -> Program:  # type: ignore[no-untyped-def]
    """Multiplies A's kept elements (16, k/2) and B (k, 8) and adds C (16, 8), all of them bit patterns."""
    pack = np.uint16 if form.d == "f16" else np.uint32
    fragments = np.zeros((32, 4), pack)
    for lane in range(32):
        for i in range(4):
            fragments[lane, i] = c[c_m16(lane, i)]
    words = np.concatenate(
        [
            registers(a, WIDTH[form.a], 16),
            registers(b.T, WIDTH[form.b], 8),
            metadata(form, nibbles)[:, None],
            fragments.view(np.uint32),
        ],
        axis=1,
    )
    made = Program(ptx, tmp_path)
    made.array("in", words, "input")
    made.array("out", np.zeros((32, form.accumulators), np.uint32))
    made.launch(form.kernel, 1, 32, "in", "out")
    return made


def run(ptx: str, tmp_path, form: Form, a, nibbles, b, c) -> np.ndarray:  # type: ignore[no-untyped-def]
    pack = np.uint16 if form.d == "f16" else np.uint32
    made = program(ptx, tmp_path, form, a, nibbles, b, c)
    made.complete()
    out = made.arrays["out"]
    d = np.zeros((16, 8), pack)
    for lane in range(32):
        for i in range(4):
            d[c_m16(lane, i)] = out.view(pack)[lane, i]
    return d


@pytest.fixture(scope="module")
def ptx() -> str:
    return module([f.ptx() for f in FORMS])


@pytest.mark.parametrize("form", FORMS, ids=lambda f: f.kernel)
def test_products(ptx, tmp_path, form):
    generator = np.random.default_rng(FORMS.index(form))
    kept, nibbles, columns = pruned(generator, form)
    b = element_bits(generator, form.b, (form.k, 8))
    c = random_bits(generator, form.d, (16, 8))
    if form.saturate:
        c[:, 0], c[:, 1] = 0x7FFFFFFF, 0x80000000
    dense = np.zeros((16, form.k), kept.dtype)
    np.put_along_axis(dense, columns, kept, 1)
    got = decode(run(ptx, tmp_path, form, kept, nibbles, b, c), form.d)
    if form.d == "s32":
        exact = value(dense, form.a) @ value(b, form.b) + decode(c, form.d)
        assert np.array_equal(got, np.clip(exact, -(2**31), 2**31 - 1))
    else:
        assert sums.same(got, sums.of_mma((form.d, form.a, form.b), dense, b.T, c, group=8))


def test_ptxas_takes_what_the_emulator_takes(tmp_path):
    ptxas = shutil.which("ptxas")
    assert ptxas is not None
    text = module([f.ptx() for f in FORMS])
    assert unsupported(text) == ()
    (tmp_path / "all.ptx").write_text(text)
    command = [ptxas, "-arch=sm_90a", str(tmp_path / "all.ptx"), "-o", str(tmp_path / "all.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:3000]


@pytest.mark.parametrize(
    "change",
    [
        ("%x8, 0;", "%x8, 2;"),
        ("m16n8k32", "m16n8k16"),
        (".row.col", ".row.row"),
        (".f16.f16.f32", ".f16.bf16.f32"),
    ],
)
def test_other_forms_are_refused(change):
    text = FORMS[0].ptx()
    assert change[0] in text
    assert len(unsupported(module([text.replace(*change)]))) == 1
