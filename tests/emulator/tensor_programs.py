"""PTX kernels of one tensor-core instruction each: registers in, registers out, raw."""

from __future__ import annotations

from dataclasses import dataclass

HEAD = ".version 8.6\n.target sm_90a\n.address_size 64\n"
WIDTH = {"f16": 16, "bf16": 16, "tf32": 32, "f64": 64, "s8": 8, "u8": 8, "e4m3": 8, "e5m2": 8}
WIDTH |= {"f32": 32, "s32": 32}


@dataclass(frozen=True)
class Mma:
    """One ``mma.sync``: shape (m, n, k) and the types of D, A and B (C is as D)."""

    shape: tuple[int, int, int]
    types: tuple[str, str, str]
    saturate: bool = False

    @property
    def name(self) -> str:
        m, n, k = self.shape
        d, a, b = self.types
        middle = ".satfinite" if self.saturate else ""
        return f"mma.sync.aligned.m{m}n{n}k{k}.row.col{middle}.{d}.{a}.{b}.{d}"

    @property
    def kernel(self) -> str:
        return self.name.replace(".", "_")

    def sizes(self) -> tuple[int, int, int]:
        """Registers of A, B and C."""
        m, n, k = self.shape
        d, a, b = self.types
        return count(a, m * k), count(b, n * k), count(d, m * n)

    def ptx(self) -> str:
        a, b, c = self.sizes()
        word = 64 if self.types[0] == "f64" else 32
        registers = [f"%x{i}" for i in range(a + b + c)]
        parts = registers[:a], registers[a : a + b], registers[a + b :]
        lists = ["{" + ", ".join(p) + "}" for p in parts]
        return register_kernel(
            self.kernel, word, a + b + c, f"{self.name} {lists[2]}, {lists[0]}, {lists[1]}, {lists[2]};", c
        )


def count(type_: str, values: int) -> int:
    """Registers of a lane for ``values`` spread over 32 lanes."""
    return values * WIDTH[type_] // 32 // max(32, WIDTH[type_])


def register_kernel(name: str, word: int, inputs: int, line: str, outputs: int) -> str:
    """A kernel (in, out): lane l's registers %x0.. are in[l][0..]; the last ``outputs`` go to out[l]."""
    size = word // 8
    loads = "\n".join(f"ld.global.b{word} %x{i}, [%rd1+{i * size}];" for i in range(inputs))
    stores = "\n".join(
        f"st.global.b{word} [%rd2+{i * size}], %x{inputs - outputs + i};" for i in range(outputs)
    )
    return f"""
.visible .entry {name}(.param .u64 from, .param .u64 to) {{
.reg .b{word} %x<{inputs}>; .reg .b32 %r<4>; .reg .b64 %rd<8>;
ld.param.u64 %rd1, [from]; ld.param.u64 %rd2, [to];
mov.u32 %r1, %tid.x;
mul.wide.u32 %rd3, %r1, {inputs * size}; add.u64 %rd1, %rd1, %rd3;
mul.wide.u32 %rd3, %r1, {outputs * size}; add.u64 %rd2, %rd2, %rd3;
{loads}
{line}
{stores}
ret;
}}
"""


_TYPES: dict[tuple[int, int, int], list[tuple[str, str, str]]] = {
    (16, 8, 8): [("f16", "f16", "f16"), ("f32", "f16", "f16"), ("f32", "bf16", "bf16")],
    (16, 8, 16): [("f16", "f16", "f16"), ("f32", "f16", "f16"), ("f32", "bf16", "bf16")],
}
_TF32 = [((16, 8, 4), ("f32", "tf32", "tf32")), ((16, 8, 8), ("f32", "tf32", "tf32"))]
_F64 = [((m, 8, k), ("f64", "f64", "f64")) for m, k in ((8, 4), (16, 4), (16, 8), (16, 16))]
_INT = [((16, 8, k), ("s32", a, b)) for k in (16, 32) for a in ("s8", "u8") for b in ("s8", "u8")]
_FP8 = [((16, 8, 32), ("f32", a, b)) for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")]

MMAS = [
    *(Mma(shape, types) for shape, all_types in _TYPES.items() for types in all_types),
    *(Mma(shape, types) for shape, types in (*_TF32, *_F64, *_INT, *_FP8)),  # type: ignore[arg-type]
    *(Mma(shape, types, True) for shape, types in _INT),  # type: ignore[arg-type]
]


def module(kernels: list[str]) -> str:
    return HEAD + "".join(kernels)
