"""Instructions on memory and between the lanes of a warp, each alone in a kernel: operands in, results out.

Thread t has three 64-bit words (``%a %b %c``, also as ``%wa``.. of 32 and ``%ha``.. of 16 bits, ``%fa``
``%da`` as floats), 32 bytes of global memory at ``%ga`` and of shared memory at ``%sa`` that begin with a, b,
c, a, and a place ``%gc`` that it shares with every fourth thread. What it leaves in ``%o`` and ``%o2`` and in
its bytes of shared memory goes to ``out``; global memory is the array ``mem``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from emulated import Program
from tensor_programs import HEAD

THREADS = 32
WORDS = 6  # that a thread writes: %o, %o2, its 32 bytes of shared memory
_KERNEL = """
.visible .entry {name}(.param .u64 from, .param .u64 to, .param .u64 mem) {{
.reg .b64 %in, %out, %mem, %a, %b, %c, %o, %o2, %t, %ga, %gc, %x, %y; .reg .b128 %m, %n;
.reg .b32 %id, %wa, %wb, %wc, %wd, %sa, %w, %z; .reg .b16 %ha, %hb, %hc, %h, %g; .reg .pred %p, %q;
.reg .f32 %fa, %fb, %f, %e; .reg .f64 %da, %d;
.shared .align 128 .b8 own[1024]; .local .align 16 .b8 mine[64];
ld.param.u64 %in, [from]; ld.param.u64 %out, [to]; ld.param.u64 %mem, [mem];
mov.u32 %id, %tid.x; mad.wide.u32 %in, %id, 24, %in; mad.wide.u32 %out, %id, 48, %out;
mad.wide.u32 %ga, %id, 32, %mem; and.b32 %w, %id, 3; mad.wide.u32 %gc, %w, 32, %mem; add.u64 %gc, %gc, 1024;
mov.u32 %sa, own; mad.lo.u32 %sa, %id, 32, %sa;
ld.global.u64 %a, [%in]; ld.global.u64 %b, [%in+8]; ld.global.u64 %c, [%in+16];
cvt.u32.u64 %wa, %a; cvt.u32.u64 %wb, %b; cvt.u32.u64 %wc, %c; mov.b64 {{%w, %wd}}, %a;
cvt.u16.u64 %ha, %a; cvt.u16.u64 %hb, %b; cvt.u16.u64 %hc, %c;
mov.b32 %fa, %wa; mov.b32 %fb, %wb; mov.b64 %da, %b; mov.u64 %o, 0; mov.u64 %o2, 0;
st.global.v2.u64 [%ga], {{%a, %b}}; st.global.v2.u64 [%ga+16], {{%c, %a}};
{first}
bar.warp.sync 0xffffffff;
{line}
$end:
bar.warp.sync 0xffffffff;
st.global.v2.u64 [%out], {{%o, %o2}};
{last}
ret;
}}
"""
_FIRST = "st.shared.v2.u64 [%sa], {%a, %b}; st.shared.v2.u64 [%sa+16], {%c, %a};"
_LAST = (
    "ld.shared.v2.u64 {%x, %y}, [%sa]; st.global.v2.u64 [%out+16], {%x, %y}; "
    "ld.shared.v2.u64 {%x, %y}, [%sa+16]; st.global.v2.u64 [%out+32], {%x, %y};"
)
_INTEGER = {
    "add": ("u32", "s32", "u64"),
    **dict.fromkeys(("min", "max"), ("u32", "s32", "u64", "s64")),
    **dict.fromkeys(("and", "or", "xor", "exch"), ("b32", "b64")),
    "cas": ("b16", "b32", "b64"),
    **dict.fromkeys(("inc", "dec"), ("u32",)),
}
_FLOAT = {"add": ("f32", "f64", "noftz.f16", "noftz.bf16", "noftz.f16x2", "noftz.bf16x2")}
_PLACES = {".global": "%ga", ".shared": "%sa", "": "%ga"}


def _operands(type_: str) -> tuple[str, str, str, str]:
    """Destination, two sources, and what brings the destination into %o."""
    match type_.rsplit(".", 1)[-1]:
        case "f32":
            return "%f", "%fb", "%fa", "mov.b32 %w, %f; cvt.u64.u32 %o, %w;"
        case "f64":
            return "%d", "%da", "%da", "mov.b64 %o, %d;"
        case t if t[-2:] in ("64",):
            return "%o", "%b", "%c", ""
        case t if t.endswith("16"):
            return "%h", "%hb", "%hc", "cvt.u64.u16 %o, %h;"
    return "%w", "%wb", "%wc", "cvt.u64.u32 %o, %w;"


def _atomics() -> Iterator[str]:
    for operations in (_INTEGER, _FLOAT):
        for operation, types in operations.items():
            for type_ in types:
                d, x, y, out = _operands(type_)
                values = f"{x}, {y}" if operation == "cas" else x
                for space, at in _PLACES.items():
                    line = f"atom{space}.{operation}.{type_} {d}, [{at}+8], {values}; {out}"
                    if operation not in ("exch", "cas"):
                        line += f" red{space}.{operation}.{type_} [{at}+16], {x};"
                    if space == ".shared" and "16x2" in type_:  # ptxas 13.0 errs with a half of %b
                        line = f"ld.global.u32 %wb, [%in+8]; {line}"
                    if operation == "cas":  # the value is there
                        first = {"b16": "%ha", "b32": "%wa", "b64": "%a"}[type_]
                        line += f" mov.b64 %o2, %o; atom{space}.cas.{type_} {d}, [{at}], {first}, {y}; {out}"
                    yield line
    for operation, types in _INTEGER.items():  # many threads at one place
        if operation not in ("exch", "cas"):
            for type_ in types:
                x = _operands(type_)[1]
                x = "5" if operation in ("inc", "dec") else x  # with one limit any order gives the same
                yield f"red.relaxed.gpu.global.{operation}.{type_} [%gc], {x};"
    yield "mov.b128 %m, {%b, %c}; atom.global.exch.b128 %n, [%ga], %m; mov.b128 {%o, %o2}, %n;"
    for operation in ("min", "max"):
        for type_ in ("f16", "bf16", "f16x2", "bf16x2"):
            one, x = ("%h", "%hb") if type_.endswith("16") else ("%w", "%wb")
            out = _operands(type_)[3]
            other = ("%g", "%hc") if one == "%h" else ("%z", "%wc")
            pair = f"{{{one}, {other[0]}}}, [%ga+8], {{{x}, {other[1]}}}"
            yield f"atom.global.{operation}.noftz.v2.{type_} {pair}; {out}"
    yield "atom.global.add.v2.f32 {%f, %e}, [%ga+8], {%fa, %fb}; mov.b64 %o, {%f, %e};"
    yield "red.global.add.v4.f32 [%ga], {%fa, %fb, %fb, %fa};"
    yield "red.global.add.noftz.v4.f16x2 [%ga], {%wa, %wb, %wc, %wd};"
    yield "red.global.add.noftz.v8.bf16 [%ga], {%ha, %hb, %hc, %ha, %hb, %hc, %ha, %hb};"


def _lanes() -> Iterator[str]:
    out = "selp.u32 %z, 1, 0, %p; mov.b64 %o, {%w, %z};"
    for mode in ("up", "down", "bfly", "idx"):
        clamps = (0, 0x1800, 0x1003, 0x1C07) if mode == "up" else (0x1F, 0x181F, 0x101F, 0x0007, 0x1C1F)
        for clamp in clamps:
            yield " ".join(
                f"shfl.sync.{mode}.b32 %w|%p, %wa, {lane}, {clamp}, 0xffffffff; {out} "
                f"st.global.u64 [%ga+{at}], %o;"
                for at, lane in zip((0, 8, 16, 24), ("%wb", 1, 5, 31), strict=True)
            )
    half = "setp.ge.u32 %q, %id, 13; @%q bra $end; "
    for prefix, mask in (("", "0xffffffff"), (half, "0x1fff")):
        for bits in (1, 0xFFFFFFFF, 0):
            test = f"and.b32 %z, %wa, {bits}; setp.ne.u32 %q, %z, 0; "
            votes = " ".join(
                f"vote.sync.{mode}.pred %p, %q, {mask}; selp.u64 %x, {1 << i}, 0, %p; or.b64 %o, %o, %x;"
                for i, mode in enumerate(("all", "any", "uni"))
            )
            yield f"{prefix}{test}{votes} vote.sync.ballot.b32 %w, %q, {mask}; cvt.u64.u32 %o2, %w;"
        for bits in (3, 0):
            for width, value in (("32", "%w"), ("64", "%x")):
                given = f"and.b{width} {value}, {'%wa' if width == '32' else '%a'}, {bits}; "
                some = f"match.any.sync.b{width} %w, {value}, {mask}; cvt.u64.u32 %o2, %w;"
                yield f"{prefix}{given}{some} match.all.sync.b{width} %w|%p, {value}, {mask}; {out}"
        signed = (f"{operation}.{type_}" for operation in ("add", "min", "max") for type_ in ("u32", "s32"))
        for operation in (*signed, "and.b32", "or.b32", "xor.b32"):
            yield f"{prefix}redux.sync.{operation} %w, %wa, {mask}; cvt.u64.u32 %o, %w;"
        yield f"{prefix}elect.sync %w|%p, {mask}; {out}"
        yield f"{prefix}bar.warp.sync {mask}; activemask.b32 %w; cvt.u64.u32 %o, %w;"


def _memory() -> Iterator[str]:
    for how in ("", ".ca", ".cg", ".cs", ".lu", ".cv", ".nc", ".nc.L1::no_allocate", ".L1::evict_last"):
        yield f"ld.global{how}.u64 %o, [%in+8];"
    for how in (".volatile", ".relaxed.gpu", ".acquire.sys", ".relaxed.cta"):
        yield f"ld{how}.global.u32 %w, [%ga+4]; cvt.u64.u32 %o, %w; ld{how}.shared.u64 %o2, [%sa+8];"
    for how in (".wb", ".cg", ".cs", ".wt", ".L1::no_allocate"):
        yield f"st.global{how}.u32 [%ga+12], %wc;"
    for how in (".volatile", ".relaxed.gpu", ".release.sys"):
        yield f"st{how}.global.u64 [%ga+8], %c; st{how}.shared.u16 [%sa+6], %hb;"
    for type_ in ("u8", "s8", "u16", "s16", "u32", "s32"):
        yield f"ld.global.{type_} %o, [%ga+{5 if type_[1:] == '8' else 4}]; ld.shared.{type_} %o2, [%sa+8];"
    yield "st.global.u8 [%ga+3], %hb; st.shared.u8 [%sa+1], %wb; st.shared.b16 [%sa+30], %hc;"
    yield "ld.global.v4.u8 {%ha, %hb, %hc, %h}, [%ga+4]; mov.b64 %o, {%ha, %hb, %hc, %h};"
    yield "ld.shared.v4.u16 {%ha, %hb, %hc, %h}, [%sa+8]; mov.b64 %o, {%h, %hc, %hb, %ha};"
    yield "ld.global.v4.u32 {%wa, %wb, %wc, %wd}, [%ga]; st.shared.v4.u32 [%sa+16], {%wd, %wc, %wb, %wa};"
    yield "ldu.global.u32 %w, [%in+4]; cvt.u64.u32 %o, %w; ldu.global.v2.u64 {%x, %o2}, [%mem+1536];"
    yield "prefetch.global.L1 [%ga]; prefetch.global.L2 [%ga]; prefetchu.L1 [%ga]; mov.u64 %o, 7;"
    yield "prefetch.global.L2::evict_last [%ga]; prefetch.global.L2::evict_normal [%ga]; mov.u64 %o, 8;"
    yield "and.b64 %x, %mem, -128; applypriority.global.L2::evict_normal [%x], 128; mov.u64 %o, 9;"
    yield (
        "add.u64 %x, %mem, 4096; and.b64 %x, %x, -128; discard.global.L2 [%x], 128; bar.warp.sync -1; "
        "mad.wide.u32 %x, %id, 4, %x; st.global.u32 [%x], %wb;"  # what was discarded is nobody's
    )
    yield "createpolicy.fractional.L2::evict_last.b64 %x, 0.5; ld.global.L2::cache_hint.u64 %o, [%in], %x;"
    yield "griddepcontrol.launch_dependents; griddepcontrol.wait; mov.u64 %o, 11;"
    yield "setp.gt.u32 %p, %id, 30; st.global.u64 [%out], %b; @%p exit; bar.warp.sync 0x7fffffff; ret;"
    yield (
        "stacksave.u64 %x; alloca.u64 %y, 64; st.local.u64 [%y+8], %b; ld.local.u64 %o, [%y+8]; "
        "stackrestore.u64 %x;"
    )
    yield "st.local.v2.u64 [mine+16], {%a, %c}; ld.local.u32 %w, [mine+28]; cvt.u64.u32 %o, %w;"
    spaces = ("global", "shared", "shared::cta", "local", "const", "param")
    tests = "".join(
        f"isspacep.{space} %p, %x; selp.u64 %y, {1 << i}, 0, %p; or.b64 %o, %o, %y;"
        for i, space in enumerate(spaces)
    )
    for source in (
        "mov.u64 %x, %ga;",
        "cvt.u64.u32 %x, %sa; cvta.shared.u64 %x, %x;",
        "mov.u64 %x, mine; cvta.local.u64 %x, %x;",
    ):
        yield f"{source} {tests}"
    yield (
        "cvt.u64.u32 %x, %sa; cvta.shared.u64 %x, %x; ld.u64 %o, [%x+8]; st.u32 [%x+20], %wb; "
        "cvta.to.shared.u64 %y, %x; cvt.u64.u32 %x, %sa; sub.u64 %o2, %x, %y;"
    )
    for scope in ("cta", "gpu", "sys", "cluster"):
        fences = " ".join(f"fence.{kind}.{scope};" for kind in ("sc", "acq_rel", "acquire", "release"))
        yield f"{fences} membar.gl; membar.cta; membar.sys; fence.proxy.alias; mov.u64 %o, 13;"
    for kind in ("popc.u32", "and.pred", "or.pred"):
        target = "%w" if kind == "popc.u32" else "%q"
        out = "cvt.u64.u32 %o, %w;" if kind == "popc.u32" else "selp.u64 %o, 1, 0, %q;"
        for bits in (1, 0xFFFFFFFF, 0):
            test = f"and.b32 %z, %wa, {bits}; setp.ne.u32 %p, %z, 0;"
            yield f"{test} barrier.cta.red.{kind} {target}, 0, %p; {out}"
    yield "barrier.cta.arrive 1, 64; mov.u64 %o, 14;"


def _sums() -> Iterator[str]:
    """Atomic sums of floats, for operands at the ends of the range and beyond."""
    for type_ in _FLOAT["add"]:
        d, x, _, out = _operands(type_)
        for space, at in _PLACES.items():
            line = f"atom{space}.add.{type_} {d}, [{at}], {x}; {out} red{space}.add.{type_} [{at}+16], {x};"
            yield f"ld.global.u32 %wb, [%in+8]; {line}" if space == ".shared" and "16x2" in type_ else line
    yield "atom.global.add.v2.f32 {%f, %e}, [%ga+8], {%fa, %fb}; mov.b64 %o, {%f, %e};"
    yield "red.global.add.v4.f32 [%ga], {%fb, %fa, %fa, %fb};"
    yield "atom.global.add.noftz.v2.f16x2 {%w, %z}, [%ga+8], {%wa, %wc};"
    yield "red.global.add.noftz.v4.bf16x2 [%ga], {%wb, %wa, %wa, %wb};"
    for operation in ("min", "max"):
        for type_ in ("f16x2", "bf16x2"):
            yield f"red.global.{operation}.noftz.v4.{type_} [%ga], {{%wb, %wc, %wa, %wb}};"


def _any_words() -> np.ndarray:
    return np.random.default_rng(5).integers(0, 1 << 64, (THREADS, 3), dtype=np.uint64)


_SPECIAL = (
    *(0, 0x80000000, 0x3F800000, 0xBF800000, 0x00800000, 0x80800000, 0x00000001, 0x807FFFFF, 0x000116C2),
    *(0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00001, 0xFFC12345, 0x7F800001, 0xFFBFFFFF),
    *(0x7C007C01, 0xFC007E00, 0x7BFF7BFF, 0x03FF8001, 0x04008400, 0x7F7F7F7F, 0x00010080, 0x807F7F80),
)


def _special_words() -> np.ndarray:
    """Zeros, subnormals, the largest numbers, infinities and NaNs, quiet or not: of f32 and of its halves."""
    pick = np.random.default_rng(6).choice(np.array(_SPECIAL, np.uint64), (2, THREADS, 3))
    return pick[0] | pick[1] << np.uint64(32)


GROUPS = {
    "atomics": (_atomics, _any_words),
    "lanes": (_lanes, _any_words),
    "memory": (_memory, _any_words),
    "sums": (_sums, _special_words),
}
"""Lines, and the 64-bit words of each thread."""
PER_PROGRAM = 40


def programs(tmp_path: Path) -> Iterator[tuple[str, Program]]:
    """(name, program): up to PER_PROGRAM snippets each, a kernel and a launch for each snippet."""
    for name, (group, words) in GROUPS.items():
        lines = list(group())
        for start in range(0, len(lines), PER_PROGRAM):
            part = lines[start : start + PER_PROGRAM]
            yield f"{name} {start // PER_PROGRAM}", _program(part, words(), tmp_path)


def _program(lines: list[str], words: np.ndarray, tmp_path: Path) -> Program:
    kernels = "".join(
        _KERNEL.format(
            name=f"s{i}",
            line=line,
            first=_FIRST if "%sa" in line else "",
            last=_LAST if "%sa" in line else "",
        )
        for i, line in enumerate(lines)
    )
    program = Program(HEAD + kernels, tmp_path)
    program.array("in", words, "input")
    program.array("out", np.zeros((len(lines), THREADS, WORDS), np.uint64))
    program.array("mem", np.full((len(lines), 8192 // 8), 3, np.uint64))
    for index in range(len(lines)):
        program.launch(f"s{index}", 1, THREADS, "in", "out", "mem")
        launch = program.operations[-1]
        steps = (0, THREADS * WORDS * 8 * index, 8192 * index)
        moved = (r.model_copy(update={"addend": s}) for r, s in zip(launch.relocations, steps, strict=True))
        program.operations[-1] = launch.model_copy(update={"relocations": tuple(moved)})
    return program
