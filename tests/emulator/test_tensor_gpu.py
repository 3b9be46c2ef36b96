"""mma and wgmma against the GPU at hand: the same registers and shared memory, the same results.

Integers and fp64 must agree bit for bit, other sums within the bounds that ``runtime/mma.hpp`` states.
"""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest
from emulated import Program
from scalar_on_gpu import Gpu
from tensor_programs import MMAS, Mma, module
from tensor_values import decode, unpack
from test_tensor_mma import operands, pieces
from test_tensor_wgmma import FORMS, IMAGE, K_MAJOR, MN_MAJOR, Case, at, plain
from wgmma_programs import SHARED, Layout, Wgmma

pytestmark = pytest.mark.gpu


class Device(Gpu):
    """The GPU with all kernels of this test."""

    def __init__(self, folder: Path):
        text = module([SHARED, *(m.ptx() for m in MMAS), *(f.ptx() for f in FORMS)])
        (folder / "tensor.ptx").write_text(text)
        cubin = folder / "tensor.cubin"
        subprocess.run(["ptxas", "-arch=sm_90a", str(folder / "tensor.ptx"), "-o", str(cubin)], check=True)
        super().__init__(cubin)
        third = ctypes.c_uint64()
        self._check(self.driver.cuMemAlloc_v2(ctypes.byref(third), ctypes.c_size_t(1 << 24)))
        self.buffers.append(third)

    def launch(
        self, kernel: str, block: int, arguments: list[object], out: np.ndarray, shared: int = 0
    ) -> None:
        """Arrays among ``arguments`` are copied to the device first; ``out`` comes back."""
        function = ctypes.c_void_p()
        name = kernel.encode()
        self._check(self.driver.cuModuleGetFunction(ctypes.byref(function), self.module, name))
        values: list[object] = []
        free = list(self.buffers)
        back = None
        for argument in arguments:
            if isinstance(argument, np.ndarray):
                buffer, data = free.pop(0), np.ascontiguousarray(argument)
                self._check(
                    self.driver.cuMemcpyHtoD_v2(buffer, data.ctypes.data_as(ctypes.c_void_p), data.nbytes)
                )
                values.append(buffer)
                back = buffer if argument is out else back
            else:
                values.append(argument)
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))  # type: ignore[arg-type]
        self._check(self.driver.cuFuncSetAttribute(function, 8, shared))  # dynamic shared memory
        self._check(self.driver.cuLaunchKernel(function, 1, 1, 1, block, 1, 1, shared, None, pointers, None))
        size = ctypes.c_size_t(out.nbytes)
        self._check(self.driver.cuMemcpyDtoH_v2(out.ctypes.data_as(ctypes.c_void_p), back, size))


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Device:
    return Device(tmp_path_factory.mktemp("gpu"))


def agree(ours: np.ndarray, theirs: np.ndarray, d: str, k: int, largest: np.ndarray | float) -> None:
    """``largest`` is T of runtime/mma.hpp: the largest magnitude among an element's terms, or more."""
    if d in ("s32", "f64"):
        assert np.array_equal(ours, theirs)
        return
    x, y = decode(ours, d), decode(theirs, d)
    assert np.array_equal(np.isnan(x), np.isnan(y))
    step = 2.0**-23
    bound = (k + 2) * step * largest + (2.0**-10 * np.abs(y) if d == "f16" else 0)
    assert (np.nan_to_num(np.abs(x - y)) <= bound).all(), np.nanmax(np.abs(x - y) / bound)


@pytest.mark.parametrize("mma", MMAS, ids=lambda m: m.name)
def test_mma(device: Device, tmp_path: Path, mma: Mma) -> None:
    for seed in range(8):
        a, b, c = operands(mma, seed)
        words = pieces(mma, a, b, c)
        ours, theirs = (np.zeros((32, mma.sizes()[2]), words.dtype) for _ in range(2))
        program = Program(module([mma.ptx()]), tmp_path)
        program.array("in", words, "input")
        ours = program.array("out", ours)
        program.launch(mma.kernel, 1, 32, "in", "out")
        program.complete()
        device.launch(mma.kernel, 32, [words, theirs], theirs)
        d, type_a, type_b = mma.types
        largest = max(
            np.abs(decode(a, type_a)).max() * np.abs(decode(b, type_b)).max(), np.abs(decode(c, d)).max()
        )
        agree(unpack(ours, d), unpack(theirs, d), d, mma.shape[2], largest)


def cases() -> list[tuple[Wgmma, Layout, Layout]]:
    """Every form without swizzle, and every layout for A and for B."""
    found = [(form, plain(form, 0), plain(form, 1)) for form in FORMS]
    other = Layout(16, 128, 256, start=32768)
    for layout in K_MAJOR:
        form = FORMS[2] if layout.stride < 3000 else FORMS[0]
        found += [(form, at(layout, 0), other), (form, other, at(layout, 0))]
    for layout in MN_MAJOR:
        for turned, pair in (((1, 0), (layout, other)), ((0, 1), (other, layout))):
            form = next(f for f in FORMS if f.turned == turned and not f.a_in_registers)
            found.append((form, *pair))
    return found


@pytest.mark.parametrize("case", cases(), ids=lambda c: f"{c[0].kernel} {c[1]} {c[2]}")
def test_wgmma(device: Device, tmp_path: Path, case: tuple[Wgmma, Layout, Layout]) -> None:
    form, at_a, at_b = case
    tested = Case(form, 11)
    program = Program(module([SHARED, form.ptx()]), tmp_path)
    tested.launch(program, at_a, at_b)
    ours, theirs = program.arrays["out"], np.zeros_like(program.arrays["out"])
    arguments = [program.arrays["image"], ctypes.c_uint32(IMAGE), program.arrays["from"], theirs]
    arguments += [ctypes.c_uint64(at_a.descriptor), ctypes.c_uint64(at_b.descriptor), ctypes.c_uint32(1)]
    device.launch(form.kernel, 128, arguments, theirs, IMAGE)
    d, type_a, type_b = form.types
    largest = max(
        np.abs(decode(tested.a, type_a)).max() * np.abs(decode(tested.b, type_b)).max(),
        np.abs(decode(tested.c, d)).max(),
    )
    if type_a in ("e4m3", "e5m2"):
        largest *= 2.0**10
    agree(unpack(ours, d), unpack(theirs, d), d, form.k, largest)
