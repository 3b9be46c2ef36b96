"""PTX kernels of one wgmma each, and matrices laid out in shared memory as its descriptors want them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tensor_programs import WIDTH

DEPTH = {16: 16, 32: 8, 8: 32}  # k by the width of the types


@dataclass(frozen=True)
class Wgmma:
    """One ``wgmma.mma_async``: n, types of D, A and B, and its constants."""

    n: int
    types: tuple[str, str, str]
    a_in_registers: bool = False
    signs: tuple[int, int] = (1, 1)
    turned: tuple[int, int] = (0, 0)
    saturate: bool = False

    @property
    def k(self) -> int:
        return DEPTH[WIDTH[self.types[1]]]

    @property
    def accumulators(self) -> int:
        """Registers of D in each thread."""
        return self.n // (4 if self.types[0] == "f16" else 2)

    @property
    def name(self) -> str:
        suffix = ".satfinite" if self.saturate else ""
        return f"wgmma.mma_async.sync.aligned.m64n{self.n}k{self.k}.{'.'.join(self.types)}{suffix}"

    @property
    def kernel(self) -> str:
        numbers = "_".join(
            str(x).replace("-", "m") for x in (*self.signs, *self.turned, int(self.a_in_registers))
        )
        return f"{self.name.replace('.', '_')}_{numbers}"

    def line(self, keep: str = "%p1") -> str:
        a = "{%a0, %a1, %a2, %a3}" if self.a_in_registers else "%rd5"
        constants: list[int] = []
        if self.types[0] != "s32":
            constants += self.signs
        if self.types[1] in ("f16", "bf16"):
            constants += self.turned[1:] if self.a_in_registers else self.turned
        tail = "".join(f", {c}" for c in constants)
        d = ", ".join(f"%d{i}" for i in range(self.accumulators))
        return f"{self.name} {{{d}}}, {a}, %rd6, {keep}{tail};"

    def ptx(self, between: str = "") -> str:
        """Kernel (image, bytes, fragments, out, descriptor a, descriptor b, keep): a thread's fragments are
        its registers of D, then four of A. ``between`` comes after the commit and before the wait."""
        count = self.accumulators
        loads = "\n".join(f"ld.global.b32 %d{i}, [%rd3+{i * 4}];" for i in range(count))
        loads += "\n" + "\n".join(f"ld.global.b32 %a{i}, [%rd3+{(count + i) * 4}];" for i in range(4))
        stores = "\n".join(f"st.global.b32 [%rd4+{i * 4}], %d{i};" for i in range(count))
        return f"""
.visible .entry {self.kernel}(.param .u64 image, .param .u32 bytes, .param .u64 from, .param .u64 to,
    .param .u64 a, .param .u64 b, .param .u32 keep) {{
.reg .b32 %d<{count}>; .reg .b32 %a<4>; .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<4>;
{COPY_IMAGE}
ld.param.u64 %rd3, [from]; ld.param.u64 %rd4, [to]; ld.param.u64 %rd5, [a]; ld.param.u64 %rd6, [b];
ld.param.u32 %r5, [keep]; setp.ne.b32 %p1, %r5, 0;
mul.wide.u32 %rd7, %r1, {(count + 4) * 4}; add.u64 %rd3, %rd3, %rd7;
mul.wide.u32 %rd7, %r1, {count * 4}; add.u64 %rd4, %rd4, %rd7;
{loads}
wgmma.fence.sync.aligned;
{self.line()}
wgmma.commit_group.sync.aligned;
{between}
wgmma.wait_group.sync.aligned 0;
{stores}
ret;
}}
"""


SHARED = ".extern .shared .align 1024 .b8 memory[];\n"
COPY_IMAGE = """ld.param.u64 %rd1, [image]; ld.param.u32 %r2, [bytes];
mov.u32 %r1, %tid.x; shl.b32 %r3, %r1, 2; cvt.u64.u32 %rd2, %r3; add.u64 %rd1, %rd1, %rd2;
mov.u32 %r4, memory; add.u32 %r4, %r4, %r3;
$copy:
setp.ge.u32 %p2, %r3, %r2;
@%p2 bra $copied;
ld.global.b32 %r6, [%rd1]; st.shared.b32 [%r4], %r6;
add.u64 %rd1, %rd1, 512; add.u32 %r4, %r4, 512; add.u32 %r3, %r3, 512;
bra $copy;
$copied:
fence.proxy.async;
bar.sync 0;"""


@dataclass(frozen=True)
class Layout:
    """How a matrix lies in shared memory. ``width`` is the swizzle's span in bytes, 16 for none; ``start``
    the byte offset of the whole tile, ``leading`` and ``stride`` in bytes; ``slice`` which 32 bytes of a
    row along k wgmma is to read (K-major with a swizzle only)."""

    width: int
    leading: int
    stride: int
    k_major: bool = True
    start: int = 0
    slice: int = 0

    @property
    def descriptor(self) -> int:
        mode = {16: 0, 128: 1, 64: 2, 32: 3}[self.width]
        address = 1024 + self.start + self.slice * 32
        return address >> 4 | self.leading >> 4 << 16 | self.stride >> 4 << 32 | mode << 62

    def place(self, row: int, k: int, size: int) -> int:
        """Byte offset of the value in column ``k`` of ``row``; rows count along m or n."""
        turns = {16: 0, 32: 4, 64: 2, 128: 1}[self.width]  # rows of the pattern that share a permutation
        if self.k_major:
            chunk, within = divmod(k * size, 16)
            if self.width == 16:
                return self.start + row // 8 * self.stride + chunk * self.leading + row % 8 * 16 + within
            chunk = (chunk + 2 * self.slice) ^ (row % 8 // turns)
            return self.start + row // 8 * self.stride + row % 8 * self.width + chunk * 16 + within
        if self.width == 16:
            return self.start + row // 8 * self.stride + k // 8 * self.leading + k % 8 * 16 + row % 8 * size
        across = self.width // size
        chunk = (row % across // 8) ^ (k % 8 // turns)
        block = self.start + row // across * self.leading + k // 8 * self.stride
        return block + k % 8 * self.width + chunk * 16 + row % 8 * size


def write_image(image: np.ndarray, matrix: np.ndarray, layout: Layout, written: np.ndarray) -> None:
    """Puts the bit patterns of ``matrix`` (rows, k) into the uint8 ``image``; no byte twice."""
    size = matrix.dtype.itemsize
    raw = np.ascontiguousarray(matrix).view(np.uint8).reshape(*matrix.shape, size)
    for row in range(matrix.shape[0]):
        for k in range(matrix.shape[1]):
            at = layout.place(row, k, size)
            assert not written[at : at + size].any()
            written[at : at + size] = True
            image[at : at + size] = raw[row, k]
