"""Which tensor-core instructions are taken, which are refused; what is taken ptxas takes too."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from tensor_programs import MMAS, Mma, module
from test_core_limits import kernel
from test_tensor_wgmma import FORMS
from wgmma_programs import SHARED

from cudahercules.emulator.check import unsupported

D4, A4, B2 = "{%f0,%f1,%f2,%f3}", "{%r0,%r1,%r2,%r3}", "{%r4,%r5}"
D2 = "{%r6,%r7}"


@pytest.mark.parametrize(
    "line",
    [
        f"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f16 {D4}, {A4}, {B2}, {D2};",  # mixed accumulators
        f"mma.sync.aligned.m16n8k16.row.row.f32.f16.f16.f32 {D4}, {A4}, {B2}, {D4};",
        f"mma.sync.aligned.m16n8k16.row.col.f32.bf16.f16.f32 {D4}, {A4}, {B2}, {D4};",
        f"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {D4}, {B2}, {B2}, {D4};",  # too few registers
        f"mma.sync.aligned.m16n8k16.row.col.satfinite.f32.f16.f16.f32 {D4}, {A4}, {B2}, {D4};",
        f"mma.sync.aligned.m16n8k16.row.col.rn.f32.f16.f16.f32 {D4}, {A4}, {B2}, {D4};",
        f"mma.sync.m16n8k16.row.col.f32.f16.f16.f32 {D4}, {A4}, {B2}, {D4};",
        f"mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {D4}, {B2}, {B2}, {D4}, %r0, 0;",  # small
        f"mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e4m3.f16 {D2}, {A4}, {B2}, {D2};",
        "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.or.popc {%r0,%r1,%r2,%r3}, {%r0,%r1,%r2,%r3}, "
        "{%r4,%r5}, {%r0,%r1,%r2,%r3};",
        "ldmatrix.sync.aligned.m8n8.x3.shared.b16 {%r0,%r1,%r2}, [%r4];",
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r0,%r1}, [%r4];",
        "ldmatrix.sync.aligned.m8n8.x1.global.b16 {%r0}, [%rd0];",
        "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r0,%r1}, [%r4];",
        "ldmatrix.sync.m8n8.x1.shared.b16 {%r0}, [%r4];",
        "stmatrix.sync.aligned.m16n8.x1.trans.shared.b8 [%r4], {%r0};",
        "movmatrix.sync.aligned.m8n8.b16 %r0, %r1;",
        "wmma.load.a.sync.aligned.row.m16n16k16.global.f32 {%f0,%f1}, [%rd0], 16;",
        "wmma.load.b.sync.aligned.row.m16n16k16.local.bf16 {%r0,%r1,%r2,%r3}, [%rd0], 16;",
        "wmma.load.a.sync.aligned.col.m8n8k32.global.s4 {%r0}, [%rd0], 32;",
        "wmma.mma.sync.aligned.row.row.m8n8k32.s32.s4.s4.s32 {%r0,%r1}, {%r2}, {%r3}, {%r0,%r1};",
        "wmma.mma.sync.aligned.row.col.m8n8k32.s32.s4.u4.s32 {%r0,%r1}, {%r2}, {%r3}, {%r0,%r1};",
        "wmma.mma.sync.aligned.row.col.m8n8k4.f64.f64.f64.f64.rz {%rd0,%rd1}, {%rd2}, {%rd3}, {%rd4,%rd5};",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.bf16 {%f0,%f1,%f2,%f3}, %rd0, %rd1, %p0, 1, 1, 0, 0;",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0,%f1,%f2,%f3}, %rd0, %rd1, %p0, 1, 1, 0;",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0,%f1,%f2,%f3}, %rd0, %rd1, %p0, 2, 1, 0, 0;",
        "wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {%f0,%f1,%f2,%f3}, %rd0, %rd1, %p0, 1, 1, 0, 0;",
        "wgmma.mma_async.sync.aligned.m64n12k16.f32.f16.f16 {%f0,%f1,%f2,%f3,%f4,%f5}, %rd0, %rd1, %p0, "
        "1, 1, 0, 0;",
        "wgmma.mma_async.sync.aligned.m64n40k32.s32.s8.s8 "
        "{%r0,%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8,%r0,%r1,%r2,%r3,%r4,%r5,%r6,%r7,%r8,%r0,%r1}, %rd0, %rd1, %p0;",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0,%f1,%f2,%f2}, %rd0, %rd1, %p0, 1, 1, 0, 0;",
        "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {%f0,%f1,%f2,%f3}, %rd0, %rd1, %r0, 0, "
        "%p0, 1, 1, 0, 0;",
        "wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.and.popc {%r0,%r1,%r2,%r3}, %rd0, %rd1, %p0;",
        "wgmma.wait_group.sync.aligned 8;",
        "wgmma.fence.sync;",
    ],
)
def test_refused_with_its_line(line):
    found = unsupported(kernel(line))
    assert len(found) == 1
    assert found[0].instruction.startswith(line.split()[0].rstrip(";"))
    assert found[0].line == 7 and found[0].file.endswith("mine.cu")


@pytest.mark.parametrize(
    "line",
    [
        "ldmatrix.sync.aligned.m8n8.x4.trans.shared::cta.b16 {%r0,%r1,%r2,%r3}, [%r4+16];",
        "ldmatrix.sync.aligned.x2.trans.m8n8.shared.b16 {%r0,%r1}, [%r4];",
        "ldmatrix.sync.aligned.m8n8.x1.b16 {%r0}, [%rd0];",
        "stmatrix.sync.aligned.x1.m8n8.shared.b16 [%r4], {%r0};",
        "mma.sync.aligned.m8n8k4.row.col.rn.f64.f64.f64.f64 {%rd0,%rd1}, {%rd2}, {%rd3}, {%rd0,%rd1};",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0,_,%f2,%f3}, {%r0,%r1,%r2,%r3}, {%r4,%r5}, "
        "{0f00000000,%f1,%f2,%f3};",
        "wmma.load.a.sync.aligned.row.m16n16k16.bf16 {%r0,%r1,%r2,%r3}, [%rd0];",
        "wmma.store.d.sync.aligned.col.m8n8k4.shared.f64 [%r0], {%rd0,%rd1}, 8;",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0,%f1,%f2,%f3}, {%r0,%r1,%r2,%r3}, %rd1, "
        "1, 1, -1, 1;",
    ],
)
def test_accepted(line):
    assert unsupported(kernel(line)) == ()


def test_ptxas_takes_what_the_emulator_takes(tmp_path):
    ptxas = shutil.which("ptxas")
    assert ptxas is not None
    text = module([SHARED, *(m.ptx() for m in MMAS), *(f.ptx() for f in FORMS)])
    assert unsupported(text) == ()
    (tmp_path / "all.ptx").write_text(text)
    command = [ptxas, "-arch=sm_90a", str(tmp_path / "all.ptx"), "-o", str(tmp_path / "all.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:3000]


def test_ptxas_refuses_mixed_accumulators(tmp_path):
    """Why the emulator's table has none: the check above can fail."""
    ptxas = shutil.which("ptxas")
    assert ptxas is not None
    good = Mma((16, 8, 16), ("f32", "bf16", "bf16")).ptx()
    (tmp_path / "bad.ptx").write_text(module([good.replace(".bf16.bf16.f32", ".bf16.f16.f32")]))
    command = [ptxas, "-arch=sm_90a", str(tmp_path / "bad.ptx"), "-o", str(tmp_path / "bad.cubin")]
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0
