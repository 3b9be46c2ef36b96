"""``mma.sync`` of 4-bit integers, single bits and 8 x 8 x 16 bytes: raw registers, the manual's layouts."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass

import numpy as np
import pytest
from emulated import Program
from tensor_programs import module, register_kernel

from cudahercules.emulator.check import unsupported


@dataclass(frozen=True)
class Form:
    shape: tuple[int, int, int]
    a: str
    b: str
    option: str = ""  # satfinite, and.popc, xor.popc

    @property
    def width(self) -> int:
        return {"8": 8, "4": 4, "1": 1}[self.a[1]]

    @property
    def name(self) -> str:
        m, n, k = self.shape
        before, after = (f".{self.option}", "") if self.option == "satfinite" else ("", f".{self.option}")
        after = "" if after == "." else after
        return f"mma.sync.aligned.m{m}n{n}k{k}.row.col{before}.s32.{self.a}.{self.b}.s32{after}"

    @property
    def kernel(self) -> str:
        return self.name.replace(".", "_")

    @property
    def sizes(self) -> tuple[int, int, int]:
        m, n, k = self.shape
        return m * k * self.width // 1024, n * k * self.width // 1024, m * n // 32

    def ptx(self) -> str:
        a, b, c = self.sizes
        names = [f"%x{i}" for i in range(a + b + c)]
        parts = ["{" + ", ".join(p) + "}" for p in (names[:a], names[a : a + b], names[a + b :])]
        line = f"{self.name} {parts[2]}, {parts[0]}, {parts[1]}, {parts[2]};"
        return register_kernel(self.kernel, 32, a + b + c, line, c)


FORMS = [
    *(Form((8, 8, 16), a, b, o) for a in ("s8", "u8") for b in ("s8", "u8") for o in ("", "satfinite")),
    *(
        Form(shape, a, b, o)
        for shape in ((8, 8, 32), (16, 8, 32), (16, 8, 64))
        for a in ("s4", "u4")
        for b in ("s4", "u4")
        for o in ("", "satfinite")
    ),
    *(
        Form(shape, "b1", "b1", o)
        for shape in ((8, 8, 128), (16, 8, 128), (16, 8, 256))
        for o in ("and.popc", "xor.popc")
    ),
]


def place_a(form: Form, lane: int, i: int) -> tuple[int, int]:
    """Row and column of element ``i`` of lane ``lane``, as the manual gives them shape by shape."""
    group, thread = lane >> 2, lane % 4
    match form.shape:
        case (8, 8, 16):
            return group, thread * 4 + i
        case (8, 8, 32):
            return group, thread * 8 + i
        case (16, 8, 32):
            return (group if i < 8 else group + 8), thread * 8 + (i & 7)
        case (16, 8, 64):
            row = group if i < 8 or 16 <= i < 24 else group + 8
            return row, thread * 8 + (i & 7) + (0 if i < 16 else 32)
        case (8, 8, 128):
            return group, thread * 32 + i
        case (16, 8, 128):
            return (group if i < 32 else group + 8), thread * 32 + (i & 31)
        case (16, 8, 256):
            row = group if i < 32 or 64 <= i < 96 else group + 8
            return row, thread * 32 + (i & 31) + (0 if i < 64 else 128)
    raise AssertionError(form)


def place_b(form: Form, lane: int, i: int) -> tuple[int, int]:
    group, thread = lane >> 2, lane % 4
    each = 32 // form.width
    second = {(16, 8, 64): 32, (16, 8, 256): 128}.get(form.shape, 0)
    return thread * each + i % each + (second if i >= each else 0), group


def place_c(form: Form, lane: int, i: int) -> tuple[int, int]:
    return (lane >> 2) + (8 if i >= 2 else 0), (lane % 4) * 2 + (i & 1)


def packed(matrix: np.ndarray, place, form: Form, words: int) -> np.ndarray:  # type: ignore[no-untyped-def]
    """(32, words) registers: the first element in the lowest bits."""
    each, mask = 32 // form.width, (1 << form.width) - 1
    out = np.zeros((32, words), np.uint64)
    for lane in range(32):
        for i in range(words * each):
            value = int(matrix[place(form, lane, i)]) & mask
            out[lane, i // each] |= np.uint64(value << (i % each * form.width))
    return out.astype(np.uint32)


def values(type_: str) -> tuple[int, int]:
    bits = int(type_[1:])
    return (-(1 << (bits - 1)), 1 << (bits - 1)) if type_[0] == "s" else (0, 1 << bits)


@pytest.fixture(scope="module")
def ptx() -> str:
    return module([f.ptx() for f in FORMS])


def run(ptx: str, tmp_path, form: Form, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:  # type: ignore[no-untyped-def]
    size_a, size_b, size_c = form.sizes
    registers = np.zeros((32, size_c), np.uint32)
    for lane in range(32):
        for i in range(size_c):
            registers[lane, i] = np.int32(c[place_c(form, lane, i)]).view(np.uint32)
    words = np.concatenate(
        [packed(a, place_a, form, size_a), packed(b, place_b, form, size_b), registers], axis=1
    )
    program = Program(ptx, tmp_path)
    program.array("in", words, "input")
    out = program.array("out", np.zeros((32, size_c), np.uint32))
    program.launch(form.kernel, 1, 32, "in", "out")
    program.complete()
    d = np.zeros(c.shape, np.int32)
    for lane in range(32):
        for i in range(size_c):
            d[place_c(form, lane, i)] = out[lane, i].view(np.int32)
    return d


@pytest.mark.parametrize("form", FORMS, ids=lambda f: f.name)
def test_products(ptx, tmp_path, form):
    m, n, k = form.shape
    generator = np.random.default_rng(FORMS.index(form))
    a = generator.integers(*values(form.a), (m, k))
    b = generator.integers(*values(form.b), (k, n))
    c = generator.integers(-1000, 1000, (m, n))
    c[0, 0], c[-1, -1] = 2**31 - 1, -(2**31)
    exact = c + a @ b
    if form.option == "xor.popc":
        exact = c + (a[:, :, None] ^ b[None]).sum(1)
    expected = np.clip(exact, -(2**31), 2**31 - 1) if form.option == "satfinite" else exact
    wrapped = (expected & 0xFFFFFFFF).astype(np.uint32).view(np.int32)
    assert np.array_equal(run(ptx, tmp_path, form, a, b, c), wrapped)


def test_ptxas_takes_what_the_emulator_takes(tmp_path):
    ptxas = shutil.which("ptxas")
    assert ptxas is not None
    text = module([f.ptx() for f in FORMS]).replace("sm_90a", "sm_80")
    assert unsupported(text) == ()
    (tmp_path / "all.ptx").write_text(text)
    command = [ptxas, "-arch=sm_80", str(tmp_path / "all.ptx"), "-o", str(tmp_path / "all.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:3000]


@pytest.mark.parametrize(
    "change",
    [
        ("m8n8k16", "m8n8k32"),
        (".s8.s8.", ".s8.s4."),
        (".row.col.", ".row.row."),
        (".row.col.", ".row.col.and.popc."),
    ],
)
def test_other_forms_are_refused(change):
    form = FORMS[0]
    assert len(unsupported(module([form.ptx().replace(*change)]))) == 1
