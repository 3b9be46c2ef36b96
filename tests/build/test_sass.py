"""Counting machine instructions."""

from __future__ import annotations

import pytest

from cudahercules.build import sass
from cudahercules.build.sass import count, instruction_mix, opcode_class, read_mix
from cudahercules.build.toolchain import find_disassembler

needs_nvdisasm = pytest.mark.skipif(find_disassembler("nvdisasm") is None, reason="nvdisasm is not installed")

LISTING = """\
	.section	.text._Z1kPf,"ax",@progbits
_Z1kPf:
.text._Z1kPf:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/              @!P0 LDG.E.128.CONSTANT R4, desc[UR6][R2.64] ;
        /*0020*/             @!UP1 UTMALDG.2D [UR8], [UR4] ;
        /*0030*/                   HMMA.16816.F32.BF16 R4, R8, R12, R4 ;
.L_x_1:
        /*0040*/                   HMMA.16816.F32.BF16 R4, R8, R12, R4 ;
        /*0050*/                   NOP;
	.section	.nv.info,"",@"SHT_CUDA_INFO"
	.section	.text.second,"ax",@progbits
        /*0000*/                   STL.64 [R1], R2 ;
"""


def test_listing():
    assert count(LISTING) == {
        "_Z1kPf": {"HMMA.16816.F32.BF16": 2, "LDC": 1, "LDG.128": 1, "UTMALDG": 1},
        "second": {"STL.64": 1},
    }


@pytest.mark.parametrize(
    ("opcode", "expected"),
    [
        ("FFMA.FTZ", "FFMA"),
        ("MUFU.EX2", "MUFU"),
        ("LDG.E", "LDG.32"),
        ("LDG.E.U8.CONSTANT", "LDG.8"),
        ("LDG.E.S16", "LDG.16"),
        ("LDG.E.LTC128B.64", "LDG.64"),
        ("STG.E.EF.128", "STG.128"),
        ("LDS.U.128", "LDS.128"),
        ("LDGSTS.E.BYPASS.LTC128B.128", "LDGSTS.128"),
        ("LDL.LU", "LDL.32"),
        ("LDSM.16.M88.4", "LDSM.32"),
        ("HGMMA.64x128x16.F32.BF16", "HGMMA.64x128x16.F32.BF16"),
        ("UTCHMMA.2CTA", "UTCHMMA.2CTA"),
        ("IMMA.16832.S8.S8", "IMMA.16832.S8.S8"),
        ("BAR.SYNC.DEFER_BLOCKING", "BAR"),
        ("HFMA2.BF16_V2", "HFMA2"),
    ],
)
def test_classes(opcode, expected):
    assert opcode_class(opcode) == expected


@needs_nvdisasm
def test_a_real_kernel(compiled):
    (kernel,) = compiled.modules[0].kernels
    mix = instruction_mix(compiled)[kernel.name]
    assert mix["LDG.32"] >= 1
    assert mix["STG.32"] == 1
    assert mix["LDS.32"] == 1
    assert mix["BAR"] == 1
    assert "NOP" not in mix
    assert read_mix(compiled, 0).tool == "nvdisasm"


def test_without_nvdisasm_it_says_so(compiled, monkeypatch):
    monkeypatch.setattr(sass, "find_disassembler", lambda _name: None)
    assert instruction_mix(compiled) == {}
    assert "pip install" in read_mix(compiled, 0).note


@needs_nvdisasm
def test_a_failing_nvdisasm_says_so(compiled, fresh_cache, tmp_path):
    (tmp_path / "0").mkdir()
    (tmp_path / compiled.modules[0].cubin).write_bytes(b"not a cubin")
    broken = compiled.model_copy(update={"directory": tmp_path})
    mix = read_mix(broken, 0)
    assert mix.kernels == {}
    assert mix.note.startswith("nvdisasm failed: ")


@needs_nvdisasm
def test_a_killed_nvdisasm_is_asked_again(compiled, fresh_cache, monkeypatch):
    """A grading that ends early kills it; the next one must not find an empty listing in the cache."""
    from cudahercules.process import Finished

    real = sass.run_limited
    monkeypatch.setattr(sass, "run_limited", lambda *_, **__: Finished(-9, b"", b"", 0.1))
    assert read_mix(compiled, 0).note == "nvdisasm failed: exit status -9"
    monkeypatch.setattr(sass, "run_limited", real)
    mix = read_mix(compiled, 0)
    assert mix.note == "" and mix.kernels
