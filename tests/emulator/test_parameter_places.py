"""A plan's parameters lie where the cubin has them, the emulator's where PTX has them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from emulated import Program

from cudahercules.build.artifact import KernelInfo

PTX = """.version 8.4
.target sm_90
.address_size 64
.visible .entry k(.param .u32 first, .param .align 128 .b8 second[128], .param .u64 out) {
.reg .b32 %r<4>; .reg .b64 %rd<2>;
ld.param.u32 %r1, [first]; ld.param.u32 %r2, [second+124]; ld.param.u64 %rd1, [out];
st.global.v2.u32 [%rd1], {%r1, %r2};
ret;
}
"""


def test_parameters_move_to_the_places_of_ptx(tmp_path: Path) -> None:
    program = Program(PTX, tmp_path)
    out = program.array("out", np.zeros(2, np.uint32))
    # The constant bank of sm_90 begins its parameters at 0x210: 112 bytes further is a multiple of 128.
    places = ((0, 4), (112, 128), (240, 8))
    info = KernelInfo(
        name="k", parameters=places, registers=8, static_shared=0, local=0, spill_stores=0, spill_loads=0,
        constant=0, max_threads=1024,
    )  # fmt: skip
    module = program.artifact.modules[0].model_copy(update={"kernels": (info,)})
    program.artifact = program.artifact.model_copy(update={"modules": (module,)})
    second = np.zeros(32, np.uint32)
    second[31] = 8
    program.launch("k", 1, 1, np.uint32(7), second, "out")
    launch = program.operations[0]
    data = bytearray(248)
    data[0:4], data[112:240] = launch.parameters[0:4], launch.parameters[128:256]
    (relocation,) = launch.relocations
    moved = relocation.model_copy(update={"offset": 240})
    program.operations[0] = launch.model_copy(update={"parameters": bytes(data), "relocations": (moved,)})
    program.complete()
    assert list(out) == [7, 8]
