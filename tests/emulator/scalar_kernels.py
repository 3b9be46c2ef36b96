"""PTX of the scalar table for a GPU: one small kernel a variant."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import scalar_harness as harness

from cudahercules.emulator.ptx import ir
from cudahercules.emulator.scalar.pattern import Variant

BLOCK = 128


def _register(type_: str) -> str:
    if type_ in ("pred", "f32", "f64"):
        return type_
    return f"b{ir.bits(type_)}"


def _loaded(name: str, type_: str, offset: int) -> str:
    move = {
        "pred": f"setp.ne.u64 {name}, %t, 0;",
        "b8": f"cvt.u16.u64 %h, %t; mov.b16 {{{name}, %none}}, %h;",
        "b16": f"cvt.u16.u64 {name}, %t;",
        "b32": f"cvt.u32.u64 {name}, %t;",
        "f32": f"cvt.u32.u64 %w, %t; mov.b32 {name}, %w;",
    }.get(_register(type_), f"mov.b64 {name}, %t;")
    return f"ld.global.u64 %t, [%in+{offset}]; {move}"


def _stored(name: str, type_: str, offset: int) -> str:
    move = {
        "pred": f"selp.b64 %u, 1, 0, {name};",
        "b8": f"mov.b16 %h, {{{name}, 0}}; cvt.u64.u16 %u, %h;",
        "b16": f"cvt.u64.u16 %u, {name};",
        "b32": f"cvt.u64.u32 %u, {name};",
        "f32": f"mov.b32 %w, {name}; cvt.u64.u32 %u, %w;",
    }.get(_register(type_), f"mov.b64 %u, {name};")
    return f"{move} st.global.u64 [%out+{offset}], %u;"


def kernel(index: int, variant: Variant) -> list[str]:
    """PTX of kernel ``k<index>(in, out, n)``: thread i reads tuple i and writes every destination.

    The carry comes in through an addition and goes out through one.
    """
    names = [f"%x_{operand.name}" for operand in variant.row.operands[1:]]
    inputs, outputs = len(harness.sources(variant)), len(harness.destinations(variant))
    carry = harness.uses_carry(variant)
    types = variant.types[1:]
    destination = "%d0|%d1" if variant.row.second else "%d0"
    return [
        f".visible .entry k{index}(.param .u64 pin, .param .u64 pout, .param .u32 pn) {{",
        ".reg .b64 %in, %out, %t, %u; .reg .b32 %n, %i, %w, %z, %co; .reg .b16 %h; .reg .b8 %none;",
        ".reg .pred %q, %d1;",
        f".reg .{_register(variant.types[0])} %d0;",
        *(f".reg .{_register(type_)} {name};" for name, type_ in zip(names, types, strict=True)),
        "ld.param.u64 %in, [pin]; ld.param.u64 %out, [pout]; ld.param.u32 %n, [pn];",
        "mov.u32 %i, %tid.x; mov.u32 %w, %ctaid.x; mov.u32 %z, %ntid.x; mad.lo.u32 %i, %w, %z, %i;",
        "setp.ge.u32 %q, %i, %n; @%q ret;",
        f"mul.wide.u32 %t, %i, {8 * inputs}; add.u64 %in, %in, %t;",
        f"mul.wide.u32 %t, %i, {8 * outputs}; add.u64 %out, %out, %t;",
        *(_loaded(name, type_, 8 * k) for k, (name, type_) in enumerate(zip(names, types, strict=True))),
        *(
            [
                f"ld.global.u64 %t, [%in+{8 * inputs - 8}];",
                "cvt.u32.u64 %w, %t; add.cc.u32 %w, %w, 0xffffffff;",
            ]
            if carry
            else []
        ),
        f"{variant.name} {', '.join([destination, *names])};",
        *(["addc.u32 %co, 0, 0;"] if carry else []),
        _stored("%d0", variant.types[0], 0),
        *([_stored("%d1", "pred", 8)] if variant.row.second else []),
        *([_stored("%co", "b32", 8 * outputs - 8)] if carry else []),
        "ret; }",
    ]


def assemble(variants: Sequence[Variant], architecture: str, folder: Path) -> tuple[Path, list[int]]:
    """A cubin with the kernels of all variants that ptxas accepts for the architecture, and their indices."""
    chosen = [
        index
        for index, variant in enumerate(variants)
        if variant.row.opcode != "lop3"  # its table is an immediate
    ]
    source, cubin = folder / "variants.ptx", folder / "variants.cubin"
    while True:
        lines = [".version 9.0", f".target sm_{architecture}", ".address_size 64"]
        owner: dict[int, int] = {}
        for index in chosen:
            for line in kernel(index, variants[index]):
                lines.append(line)
                owner[len(lines)] = index
        source.write_text("\n".join(lines) + "\n")
        done = subprocess.run(
            ["ptxas", f"-arch=sm_{architecture}", "-O1", str(source), "-o", str(cubin)],
            capture_output=True,
            text=True,
        )
        if done.returncode == 0:
            return cubin, chosen
        refused = {owner[int(line)] for line in re.findall(r"line (\d+); error", done.stderr)}
        assert refused, done.stderr[:2000]
        chosen = [index for index in chosen if index not in refused]
