"""Which per-thread PTX instructions the emulator knows, and the C++ function of each.

Patterns, operands and expressions are explained in `pattern.py`. The functions are in the .hpp files of this
folder.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Protocol

from cudahercules.emulator.ptx import ir
from cudahercules.emulator.scalar.pattern import C_TYPES, Choice, Row, Variant


def _same(text: str) -> Choice:
    """Alternatives that are spelled alike in C++."""
    return Choice({word: word for word in text.split()})


def _types(text: str) -> Choice:
    return Choice({word: C_TYPES[word] for word in text.split()})


def _enum(name: str, text: str, default: str = "") -> Choice:
    return Choice(
        {word: f"ptx::{name}::{word}" for word in text.split()}, f"ptx::{name}::{default}" if default else ""
    )


_UNSIGNED_COMPARE = {
    **{word: word for word in ("eq", "ne", "lt", "le", "gt", "ge")},
    "lo": "lt",
    "ls": "le",
    "hi": "gt",
    "hs": "ge",
}

_INTEGER_FLAGS = {"u16": "0xffff", "s16": "-1", "u32": "0xffffffffu", "s32": "-1"}

CHOICES = {
    # types
    "int": _types("u16 u32 u64 s16 s32 s64"),
    "int32": _types("u32 s32"),
    "int64": _types("u32 u64 s32 s64"),
    "signed": _types("s16 s32 s64"),
    "narrow": _types("u16 u32 s16 s32"),
    "pair16": Choice({"u16x2": "uint16_t", "s16x2": "int16_t"}),
    "bits": _types("b16 b32 b64"),
    "bits64": _types("b32 b64"),
    "logic": _types("b16 b32 b64 pred"),
    "shifted": _types("b16 b32 b64 u16 u32 u64 s16 s32 s64"),
    "any": _types("b16 b32 b64 u16 u32 u64 s16 s32 s64 f32 f64"),
    "unsigned": _types("u16 u32 u64"),
    "float": _types("f32 f64"),
    "to": _types("u8 u16 u32 u64 s8 s16 s32 s64"),
    "from": _types("u8 u16 u32 u64 s8 s16 s32 s64"),
    "half": Choice({"f16": "ptx::Half", "bf16": "ptx::Brain"}),
    "half2": Choice({"f16x2": "ptx::Half", "bf16x2": "ptx::Brain"}),
    "fp8": Choice({"e4m3x2": "ptx::E4M3", "e5m2x2": "ptx::E5M2"}),
    "fp6": Choice({"e2m3x2": "ptx::E2M3", "e3m2x2": "ptx::E3M2"}),
    "a_sign": Choice({"u32": "false", "s32": "true"}),
    "b_sign": Choice({"u32": "false", "s32": "true"}),
    "d_sign": Choice({"u32": "false", "s32": "true"}),
    "flag": Choice({"u32": "0xffffffffu", "s32": "-1", "f32": "1.0f"}),
    "flag_f16": Choice({**_INTEGER_FLAGS, "f16": "0x3c00"}),
    "flag_bf16": Choice({**_INTEGER_FLAGS, "bf16": "0x3f80"}),
    # modifiers
    "rnd": _enum("Round", "rn rz rm rp", "rn"),
    "rn_rz": _enum("Round", "rn rz"),
    "rz_rp": _enum("Round", "rz rp"),
    "irnd": Choice({f"{mode}i": f"ptx::Round::{mode}" for mode in ("rn", "rz", "rm", "rp")}),
    "eqcmp": _enum("Compare", "eq ne"),
    "scmp": _enum("Compare", "eq ne lt le gt ge"),
    "ucmp": Choice({ptx: f"ptx::Compare::{c}" for ptx, c in _UNSIGNED_COMPARE.items()}),
    "fcmp": _enum("Compare", "eq ne lt le gt ge equ neu ltu leu gtu geu num nan"),
    "bool": Choice({"and": "&", "or": "|", "xor": "^"}),
    "mode": Choice({"clamp": "true", "wrap": "false"}),
    "amount": _same("clamp wrap"),
    "direction": _same("l r"),
    "permute": _same("f4e b4e rc8 ecl ecr rc16"),
    "part": Choice({"lo": "false", "hi": "true"}),
    "test": _enum("Test", "finite infinite number notanumber normal subnormal"),
}


def _row(pattern: str, operands: str, expression: str, second: str = "") -> Row:
    return Row(pattern, operands, expression, second, CHOICES)


def _compared(pattern: str, operands: str, test: str, *, pair: bool = True) -> tuple[Row, Row]:
    """setp and its form that combines the comparison with a third predicate."""
    destination = "p|q:pred" if pair else "p:pred"
    return (
        _row(f"setp.{pattern}", f"{destination} {operands}", test, f"!{test}" if pair else ""),
        _row(
            f"setp.{pattern.replace('cmp', 'cmp.bool', 1)}",
            f"{destination} {operands} c:pred",
            f"bool({test} $bool $c)",
            f"bool(!{test} $bool $c)" if pair else "",
        ),
    )


def _compared_x2(pattern: str, function: str) -> tuple[Row, Row]:
    """setp of two halves: p tests the lower, q the upper."""
    low, high = (f"{function}({half}($a), {half}($b))" for half in ("low16", "high16"))
    return (
        _row(f"setp.{pattern}", "p|q:pred a b", low, high),
        _row(
            f"setp.{pattern.replace('cmp', 'cmp.bool', 1)}",
            "p|q:pred a b c:pred",
            f"bool({low} $bool $c)",
            f"bool({high} $bool $c)",
        ),
    )


def _chosen(pattern: str, operands: str, test: str, flag: str) -> tuple[Row, Row]:
    """set: like setp, but it gives a number."""
    return (
        _row(f"set.{pattern}", f"d:{flag} {operands}", f"({test} ? ${flag} : 0)"),
        _row(
            f"set.{pattern.replace('cmp', 'cmp.bool', 1)}",
            f"d:{flag} {operands} c:pred",
            f"(bool({test} $bool $c) ? ${flag} : 0)",
        ),
    )


INTEGER = (
    _row("add.int", "d a b", "add<$T>($a, $b)"),
    _row("add.sat.s32", "d a b", "add_sat($a, $b)"),
    _row("add.pair16", "d a b", "add_x2($a, $b)"),
    _row("sub.int", "d a b", "sub<$T>($a, $b)"),
    _row("sub.sat.s32", "d a b", "sub_sat($a, $b)"),
    _row("mul.lo.int", "d a b", "mul_lo<$T>($a, $b)"),
    _row("mul.hi.int", "d a b", "mul_hi<$T>($a, $b)"),
    _row("mul.wide.narrow", "d:wide a b", "mul_wide<$T>($a, $b)"),
    _row("mad.lo.int", "d a b c", "mad_lo<$T>($a, $b, $c)"),
    _row("mad.hi.int", "d a b c", "mad_hi<$T>($a, $b, $c)"),
    _row("mad.hi.sat.s32", "d a b c", "mad_hi_sat($a, $b, $c)"),
    _row("mad.wide.narrow", "d:wide a b c:wide", "mad_wide<$T>($a, $b, $c)"),
    _row("mul24.lo.int32", "d a b", "mul24_lo<$T>($a, $b)"),
    _row("mul24.hi.int32", "d a b", "mul24_hi<$T>($a, $b)"),
    _row("mad24.lo.int32", "d a b c", "mad24_lo<$T>($a, $b, $c)"),
    _row("mad24.hi.int32", "d a b c", "mad24_hi<$T>($a, $b, $c)"),
    _row("mad24.hi.sat.s32", "d a b c", "mad24_hi_sat($a, $b, $c)"),
    _row("div.int", "d a b", "div_int<$T>($a, $b)"),
    _row("rem.int", "d a b", "rem_int<$T>($a, $b)"),
    _row("abs.signed", "d a", "abs_int<$T>($a)"),
    _row("neg.signed", "d a", "neg_int<$T>($a)"),
    _row("min.int", "d a b", "min_int<$T>($a, $b)"),
    _row("max.int", "d a b", "max_int<$T>($a, $b)"),
    _row("min.relu.s32", "d a b", "relu_int(min_int<$T>($a, $b))"),
    _row("max.relu.s32", "d a b", "relu_int(max_int<$T>($a, $b))"),
    _row("min.pair16", "d a b", "min_x2<$pair16>($a, $b)"),
    _row("max.pair16", "d a b", "max_x2<$pair16>($a, $b)"),
    _row("min.relu.s16x2", "d a b", "relu_s16x2(min_x2<int16_t>($a, $b))"),
    _row("max.relu.s16x2", "d a b", "relu_s16x2(max_x2<int16_t>($a, $b))"),
    _row("sad.int", "d a b c", "sad<$T>($a, $b, $c)"),
    # carry chains
    _row("add.cc.int64", "d a b", "add_cc<$T>($a, $b, $cc)"),
    _row("addc.int64", "d a b", "addc<$T>($a, $b, $cc)"),
    _row("addc.cc.int64", "d a b", "addc_cc<$T>($a, $b, $cc)"),
    _row("sub.cc.int64", "d a b", "sub_cc<$T>($a, $b, $cc)"),
    _row("subc.int64", "d a b", "subc<$T>($a, $b, $cc)"),
    _row("subc.cc.int64", "d a b", "subc_cc<$T>($a, $b, $cc)"),
    _row("mad.lo.cc.int64", "d a b c", "add_cc<$T>(mul_lo<$T>($a, $b), $c, $cc)"),
    _row("mad.hi.cc.int64", "d a b c", "add_cc<$T>(mul_hi<$T>($a, $b), $c, $cc)"),
    _row("madc.lo.int64", "d a b c", "addc<$T>(mul_lo<$T>($a, $b), $c, $cc)"),
    _row("madc.hi.int64", "d a b c", "addc<$T>(mul_hi<$T>($a, $b), $c, $cc)"),
    _row("madc.lo.cc.int64", "d a b c", "addc_cc<$T>(mul_lo<$T>($a, $b), $c, $cc)"),
    _row("madc.hi.cc.int64", "d a b c", "addc_cc<$T>(mul_hi<$T>($a, $b), $c, $cc)"),
)

BITS = (
    _row("and.logic", "d a b", "$T($a & $b)"),
    _row("or.logic", "d a b", "$T($a | $b)"),
    _row("xor.logic", "d a b", "$T($a ^ $b)"),
    _row("not.bits", "d a", "$T(~$a)"),
    _row("not.pred", "d a", "!$a"),
    _row("cnot.bits", "d a", "$T($a == 0)"),
    _row("lop3.b32", "d a b c lut", "lop3($a, $b, $c, $lut)"),
    _row(
        "lop3.bool.b32",
        "d|q a b c lut p:pred",
        "lop3($a, $b, $c, $lut)",
        "bool((lop3($a, $b, $c, $lut) != 0) $bool $p)",
    ),
    _row("shl.bits", "d a b:u32", "shl<$T>($a, $b)"),
    _row("shr.shifted", "d a b:u32", "shr<$T>($a, $b)"),
    _row("shf.direction.amount.b32", "d a b c", "shf_${direction}_${amount}($a, $b, $c)"),
    _row("bfe.int64", "d a b:u32 c:u32", "bfe<$T>($a, $b, $c)"),
    _row("bfi.bits64", "d a b c:u32 e:u32", "bfi<$T>($a, $b, $c, $e)"),
    _row("bfind.int64", "d:u32 a", "bfind<$T>($a)"),
    _row("bfind.shiftamt.int64", "d:u32 a", "bfind_shiftamt<$T>($a)"),
    _row("brev.bits64", "d a", "brev($a)"),
    _row("clz.bits64", "d:u32 a", "clz($a)"),
    _row("popc.bits64", "d:u32 a", "popc($a)"),
    _row("fns.b32", "d a b c:s32", "fns($a, $b, $c)"),
    _row("szext.mode.u32", "d a b:u32", "szext_u32<$mode>($a, $b)"),
    _row("szext.mode.s32", "d a b:u32", "szext_s32<$mode>($a, $b)"),
    _row("bmsk.mode.b32", "d a b", "bmsk<$mode>($a, $b)"),
    _row("prmt.b32", "d a b c", "prmt($a, $b, $c)"),
    _row("prmt.b32.permute", "d a b c", "prmt_$permute($a, $b, $c)"),
    _row("dp4a.a_sign.b_sign", "d:b32 a:b32 b:b32 c:b32", "dp4a<$a_sign, $b_sign>($a, $b, $c)"),
    _row("dp2a.part.a_sign.b_sign", "d:b32 a:b32 b:b32 c:b32", "dp2a<$a_sign, $b_sign, $part>($a, $b, $c)"),
)


def _video(name: str, lane: str, width: int) -> tuple[Row, Row]:
    flags = f"ptx::Lane::{lane}, {width}, $d_sign, $a_sign, $b_sign"
    operands = "d:b32 a:b32 b:b32 c:b32"
    return (
        _row(f"{name}.d_sign.a_sign.b_sign{{.sat}}", operands, f"video<{flags}, $sat, false>($a, $b, $c)"),
        _row(f"{name}.d_sign.a_sign.b_sign.add", operands, f"video<{flags}, false, true>($a, $b, $c)"),
    )


VIDEO = tuple(
    row
    for count, width in ((4, 8), (2, 16))
    for name, lane in (
        ("vadd", "add"),
        ("vsub", "sub"),
        ("vabsdiff", "absdiff"),
        ("vavrg", "average"),
        ("vmin", "min"),
        ("vmax", "max"),
    )
    for row in _video(f"{name}{count}", lane, width)
)

SELECT = (
    *_compared("eqcmp.bits", "a b", "compare<$eqcmp, $T>($a, $b)"),
    *_compared("scmp.signed", "a b", "compare<$scmp, $T>($a, $b)"),
    *_compared("ucmp.unsigned", "a b", "compare<$ucmp, $T>($a, $b)"),
    *_compared("fcmp{.ftz}.f32", "a b", "fcompare<$fcmp, $ftz, float>($a, $b)"),
    *_compared("fcmp.f64", "a b", "fcompare<$fcmp, false, double>($a, $b)"),
    *_compared("fcmp{.ftz}.f16", "a b", "hcompare<Half, $fcmp, $ftz>($a, $b)", pair=False),
    *_compared("fcmp.bf16", "a b", "hcompare<Brain, $fcmp, false>($a, $b)", pair=False),
    *_compared_x2("fcmp{.ftz}.f16x2", "hcompare<Half, $fcmp, $ftz>"),
    *_compared_x2("fcmp.bf16x2", "hcompare<Brain, $fcmp, false>"),
    *_chosen("eqcmp.flag.bits", "a b", "compare<$eqcmp, $T>($a, $b)", "flag"),
    *_chosen("scmp.flag.signed", "a b", "compare<$scmp, $T>($a, $b)", "flag"),
    *_chosen("ucmp.flag.unsigned", "a b", "compare<$ucmp, $T>($a, $b)", "flag"),
    *_chosen("fcmp{.ftz}.flag.f32", "a b", "fcompare<$fcmp, $ftz, float>($a, $b)", "flag"),
    *_chosen("fcmp.flag.f64", "a b", "fcompare<$fcmp, false, double>($a, $b)", "flag"),
    *_chosen("fcmp{.ftz}.flag_f16.f16", "a b", "hcompare<Half, $fcmp, $ftz>($a, $b)", "flag_f16"),
    *_chosen("fcmp.flag_bf16.bf16", "a b", "hcompare<Brain, $fcmp, false>($a, $b)", "flag_bf16"),
    _row("set.fcmp{.ftz}.int32.f16x2", "d:b32 a b", "hset_mask<Half, $fcmp, $ftz>($a, $b)"),
    _row("set.fcmp.int32.bf16x2", "d:b32 a b", "hset_mask<Brain, $fcmp, false>($a, $b)"),
    _row("set.fcmp{.ftz}.f16x2.f16x2", "d a b", "hset_x2<Half, $fcmp, $ftz>($a, $b)"),
    _row("set.fcmp.bf16x2.bf16x2", "d a b", "hset_x2<Brain, $fcmp, false>($a, $b)"),
    _row("selp.any", "d a b c:pred", "($c ? $a : $b)"),
    _row("slct.any.s32", "d:any a:any b:any c:s32", "($c >= 0 ? $a : $b)"),
    _row("slct{.ftz}.any.f32", "d:any a:any b:any c:f32", "(flush_if<$ftz>($c) >= 0.0f ? $a : $b)"),
    _row("testp.test.float", "p:pred a", "testp<$test, $T>($a)"),
    _row("copysign.float", "d a b", "fcopysign<$T>($a, $b)"),
)

FLOAT = (
    _row("add{.rnd}{.ftz}{.sat}.f32", "d a b", "fadd<$rnd, $ftz, $sat, float>($a, $b)"),
    _row("sub{.rnd}{.ftz}{.sat}.f32", "d a b", "fsub<$rnd, $ftz, $sat, float>($a, $b)"),
    _row("mul{.rnd}{.ftz}{.sat}.f32", "d a b", "fmul<$rnd, $ftz, $sat, float>($a, $b)"),
    _row("fma.rnd{.ftz}{.sat}.f32", "d a b c", "ffma<$rnd, $ftz, $sat, float>($a, $b, $c)"),
    _row("mad.rnd{.ftz}{.sat}.f32", "d a b c", "ffma<$rnd, $ftz, $sat, float>($a, $b, $c)"),
    _row("add{.rnd}.f64", "d a b", "fadd<$rnd, false, false, double>($a, $b)"),
    _row("sub{.rnd}.f64", "d a b", "fsub<$rnd, false, false, double>($a, $b)"),
    _row("mul{.rnd}.f64", "d a b", "fmul<$rnd, false, false, double>($a, $b)"),
    _row("fma.rnd.f64", "d a b c", "ffma<$rnd, false, false, double>($a, $b, $c)"),
    _row("mad.rnd.f64", "d a b c", "ffma<$rnd, false, false, double>($a, $b, $c)"),
    _row("div.rnd{.ftz}.f32", "d a b", "fdiv<$rnd, $ftz, float>($a, $b)"),
    _row("div.rnd.f64", "d a b", "fdiv<$rnd, false, double>($a, $b)"),
    _row("rcp.rnd{.ftz}.f32", "d a", "frcp<$rnd, $ftz, float>($a)"),
    _row("rcp.rnd.f64", "d a", "frcp<$rnd, false, double>($a)"),
    _row("sqrt.rnd{.ftz}.f32", "d a", "fsqrt<$rnd, $ftz, float>($a)"),
    _row("sqrt.rnd.f64", "d a", "fsqrt<$rnd, false, double>($a)"),
    _row("neg{.ftz}.f32", "d a", "fneg<$ftz, float>($a)"),
    _row("neg.f64", "d a", "fneg<false, double>($a)"),
    _row("abs{.ftz}.f32", "d a", "fabs_<$ftz, float>($a)"),
    _row("abs.f64", "d a", "fabs_<false, double>($a)"),
    _row("min{.ftz}{.NaN}{.xorsign.abs}.f32", "d a b", "fmin_<$ftz, $NaN, $xorsign, float>($a, $b)"),
    _row("max{.ftz}{.NaN}{.xorsign.abs}.f32", "d a b", "fmax_<$ftz, $NaN, $xorsign, float>($a, $b)"),
    _row("min{.ftz}{.NaN}{.abs}.f32", "d a b c", "fmin3<$ftz, $NaN, $abs>($a, $b, $c)"),
    _row("max{.ftz}{.NaN}{.abs}.f32", "d a b c", "fmax3<$ftz, $NaN, $abs>($a, $b, $c)"),
    _row("min.f64", "d a b", "fmin_<false, false, false, double>($a, $b)"),
    _row("max.f64", "d a b", "fmax_<false, false, false, double>($a, $b)"),
    # packed pairs (sm_100)
    _row("add{.rnd}{.ftz}.f32x2", "d a b", "fadd_x2<$rnd, $ftz>($a, $b)"),
    _row("sub{.rnd}{.ftz}.f32x2", "d a b", "fsub_x2<$rnd, $ftz>($a, $b)"),
    _row("mul{.rnd}{.ftz}.f32x2", "d a b", "fmul_x2<$rnd, $ftz>($a, $b)"),
    _row("fma.rnd{.ftz}.f32x2", "d a b c", "ffma_x2<$rnd, $ftz>($a, $b, $c)"),
    # mixed precision (sm_100)
    _row("add{.rnd}{.sat}.f32.half", "d:f32 a b:f32", "fadd<$rnd, false, $sat, float>(widen<$half>($a), $b)"),
    _row("sub{.rnd}{.sat}.f32.half", "d:f32 a b:f32", "fsub<$rnd, false, $sat, float>(widen<$half>($a), $b)"),
    _row(
        "fma.rnd{.sat}.f32.half",
        "d:f32 a b c:f32",
        "ffma<$rnd, false, $sat, float>(widen<$half>($a), widen<$half>($b), $c)",
    ),
)

APPROXIMATE = (
    _row("div.approx{.ftz}.f32", "d a b", "div_approx<$ftz>($a, $b)"),
    _row("div.full{.ftz}.f32", "d a b", "div_full<$ftz>($a, $b)"),
    _row("rcp.approx{.ftz}.f32", "d a", "rcp_approx<$ftz>($a)"),
    _row("sqrt.approx{.ftz}.f32", "d a", "sqrt_approx<$ftz>($a)"),
    _row("rsqrt.approx{.ftz}.f32", "d a", "rsqrt_approx<$ftz>($a)"),
    _row("sin.approx{.ftz}.f32", "d a", "sin_approx<$ftz>($a)"),
    _row("cos.approx{.ftz}.f32", "d a", "cos_approx<$ftz>($a)"),
    _row("lg2.approx{.ftz}.f32", "d a", "lg2_approx<$ftz>($a)"),
    _row("ex2.approx{.ftz}.f32", "d a", "ex2_approx<$ftz>($a)"),
    _row("tanh.approx.f32", "d a", "tanh_approx($a)"),
    _row("rcp.approx.ftz.f64", "d a", "rcp_approx_ftz($a)"),
    _row("rsqrt.approx.ftz.f64", "d a", "rsqrt_approx_ftz($a)"),
    _row("rsqrt.approx.f64", "d a", "rsqrt_approx($a)"),
    _row("ex2.approx.f16", "d a", "hex2<Half, false>($a)"),
    _row("ex2.approx.f16x2", "d a", "each_half($a, hex2<Half, false>)"),
    _row("ex2.approx.ftz.bf16", "d a", "hex2<Brain, true>($a)"),
    _row("ex2.approx.ftz.bf16x2", "d a", "each_half($a, hex2<Brain, true>)"),
    _row("tanh.approx.half", "d a", "htanh<$half>($a)"),
    _row("tanh.approx.half2", "d a", "each_half($a, htanh<$half2>)"),
)


def _half(name: str, modifiers: str, operands: str, function: str) -> tuple[Row, ...]:
    """Rows for f16 and bf16, each alone and in pairs; bf16 knows neither .ftz nor .sat.

    ``function`` is ``name<@, template arguments>``, where ``@`` stands for the format.
    """
    arguments = ", ".join(f"${operand}" for operand in operands.split()[1:])
    rows = []
    for type_, struct in (("f16", "Half"), ("bf16", "Brain")):
        allowed = modifiers if type_ == "f16" else modifiers.replace("{.ftz}", "")
        if type_ == "bf16" and ".sat" in modifiers:
            continue
        filled = function.replace("@", struct)
        if type_ == "bf16":
            filled = filled.replace("$ftz", "false")
        rows.append(_row(f"{name}{allowed}.{type_}", operands, f"{filled}({arguments})"))
        rows.append(_row(f"{name}{allowed}.{type_}x2", operands, f"each_half({arguments}, {filled})"))
    return tuple(rows)


HALF = (
    *_half("add", "{.rn}{.ftz}", "d a b", "hadd<@, $ftz, Limit::none>"),
    *_half("add", "{.rn}{.ftz}.sat", "d a b", "hadd<@, $ftz, Limit::sat>"),
    *_half("sub", "{.rn}{.ftz}", "d a b", "hsub<@, $ftz, Limit::none>"),
    *_half("sub", "{.rn}{.ftz}.sat", "d a b", "hsub<@, $ftz, Limit::sat>"),
    *_half("mul", "{.rn}{.ftz}", "d a b", "hmul<@, $ftz, Limit::none>"),
    *_half("mul", "{.rn}{.ftz}.sat", "d a b", "hmul<@, $ftz, Limit::sat>"),
    *_half("fma", ".rn{.ftz}", "d a b c", "hfma<@, $ftz, Limit::none>"),
    *_half("fma", ".rn{.ftz}.sat", "d a b c", "hfma<@, $ftz, Limit::sat>"),
    *_half("fma", ".rn{.ftz}.relu", "d a b c", "hfma<@, $ftz, Limit::relu>"),
    *_half("neg", "{.ftz}", "d a", "hneg<@, $ftz>"),
    *_half("abs", "{.ftz}", "d a", "habs<@, $ftz>"),
    *_half("min", "{.ftz}{.NaN}{.xorsign.abs}", "d a b", "hmin<@, $ftz, $NaN, $xorsign>"),
    *_half("max", "{.ftz}{.NaN}{.xorsign.abs}", "d a b", "hmax<@, $ftz, $NaN, $xorsign>"),
)

CONVERT = (
    _row("cvt{.sat}.to.from", "d:to a:from", "cvt_int<$to, $sat, $from>($a)"),
    # float to integer
    _row("cvt.irnd{.ftz}{.sat}.to.f32", "d:to a", "float_to_int<$to, $irnd, $ftz, float>($a)"),
    _row("cvt.irnd{.sat}.to.f64", "d:to a", "float_to_int<$to, $irnd, false, double>($a)"),
    _row("cvt.irnd{.sat}.to.f16", "d:to a", "half_to_int<$to, $irnd, Half>($a)"),
    _row("cvt.irnd.to.bf16", "d:to a", "half_to_int<$to, $irnd, Brain>($a)"),
    # integer to float
    _row("cvt.rnd{.ftz}{.sat}.f32.from", "d:f32 a", "saturate_if<$sat>(int_to_f32<$rnd, $from>($a))"),
    _row("cvt.rnd{.sat}.f64.from", "d:f64 a", "saturate_if<$sat>(int_to_f64<$rnd, $from>($a))"),
    _row("cvt.rnd{.sat}.f16.from", "d:f16 a", "saturate_half<Half, $sat>(int_to_half<$rnd, $from>($a, F16))"),
    _row("cvt.rnd.bf16.from", "d:bf16 a", "int_to_half<$rnd, $from>($a, BF16)"),
    # float to float
    _row("cvt{.ftz}{.sat}.f32.f32", "d a", "float_same<$ftz, $sat, float>($a)"),
    _row("cvt{.sat}.f64.f64", "d a", "float_same<false, $sat, double>($a)"),
    _row("cvt.irnd{.ftz}{.sat}.f32.f32", "d a", "float_to_integral<$irnd, $ftz, $sat, float>($a)"),
    _row("cvt.irnd{.sat}.f64.f64", "d a", "float_to_integral<$irnd, false, $sat, double>($a)"),
    _row("cvt.rnd{.ftz}{.sat}.f32.f64", "d:f32 a", "saturate_if<$sat>(f64_to_f32<$rnd, $ftz>($a))"),
    _row("cvt{.ftz}{.sat}.f64.f32", "d:f64 a", "saturate_if<$sat>(f32_to_f64<$ftz>($a))"),
    _row("cvt{.ftz}{.sat}.f32.f16", "d:f32 a", "saturate_if<$sat>(f16_to_f32<$ftz>($a))"),
    _row("cvt{.ftz}.f32.bf16", "d:f32 a", "bf16_to_f32<$ftz>($a)"),
    _row("cvt{.sat}.f64.f16", "d:f64 a", "saturate_if<$sat>(f32_to_f64<false>(f16_to_f32<false>($a)))"),
    _row("cvt.f64.bf16", "d:f64 a", "f32_to_f64<false>(bf16_to_f32<false>($a))"),
    _row(
        "cvt.rnd{.ftz}{.sat}.f16.f32",
        "d:f16 a",
        "saturate_half<Half, $sat>(f32_to_f16<$rnd>($a))",
    ),
    _row("cvt.rn_rz{.relu}{.satfinite}.f16.f32", "d:f16 a", "f32_to_f16<$rn_rz, $satfinite, $relu>($a)"),
    _row("cvt.rnd.bf16.f32", "d:bf16 a", "f32_to_bf16<$rnd>($a)"),
    _row("cvt.rn_rz{.relu}{.satfinite}.bf16.f32", "d:bf16 a", "f32_to_bf16<$rn_rz, $satfinite, $relu>($a)"),
    _row("cvt.rnd{.sat}.f16.f64", "d:f16 a", "saturate_half<Half, $sat>(f64_to_half<$rnd>($a, F16))"),
    _row("cvt.rnd.bf16.f64", "d:bf16 a", "f64_to_half<$rnd>($a, BF16)"),
    _row("cvt.rnd.bf16.f16", "d:bf16 a", "f32_to_bf16<$rnd>(widen<Half>($a))"),
    _row("cvt.rnd.f16.bf16", "d:f16 a", "f32_to_f16<$rnd>(widen<Brain>($a))"),
    _row("cvt.irnd{.sat}.f16.f16", "d a", "saturate_half<Half, $sat>(half_to_integral<$irnd, Half>($a))"),
    _row("cvt.irnd.bf16.bf16", "d a", "half_to_integral<$irnd, Brain>($a)"),
    _row("cvt{.sat}.f16.f16", "d a", "canonical_half<Half, $sat>($a)"),
    # pairs: the first source is the upper half
    _row(
        "cvt.rn_rz{.relu}{.satfinite}.f16x2.f32",
        "d:f16x2 a b",
        "pack16(f32_to_f16<$rn_rz, $satfinite, $relu>($b), f32_to_f16<$rn_rz, $satfinite, $relu>($a))",
    ),
    _row(
        "cvt.rn_rz{.relu}{.satfinite}.bf16x2.f32",
        "d:bf16x2 a b",
        "pack16(f32_to_bf16<$rn_rz, $satfinite, $relu>($b), f32_to_bf16<$rn_rz, $satfinite, $relu>($a))",
    ),
    _row("cvt.rna{.satfinite}.tf32.f32", "d:b32 a", "f32_to_tf32<Round::rna, $satfinite, false>($a)"),
    _row("cvt.rn_rz{.relu}{.satfinite}.tf32.f32", "d:b32 a", "f32_to_tf32<$rn_rz, $satfinite, $relu>($a)"),
    # fp8, fp6, fp4
    _row("cvt.rn.satfinite{.relu}.fp8.f32", "d:b16 a b", "f32_to_small_x2<$relu>($a, $b, $fp8)"),
    _row("cvt.rn.satfinite{.relu}.fp8.f16x2", "d:b16 a", "half_to_small_x2<Half, $relu>($a, $fp8)"),
    _row("cvt.rn{.relu}.f16x2.fp8", "d:f16x2 a:b16", "small_x2_to_f16x2<$relu>($a, $fp8)"),
    _row("cvt.rn.satfinite{.relu}.fp6.f32", "d:b16 a b", "f32_to_small_x2<$relu>($a, $b, $fp6)"),
    _row("cvt.rn{.relu}.f16x2.fp6", "d:f16x2 a:b16", "small_x2_to_f16x2<$relu>($a, $fp6)"),
    _row("cvt.rn.satfinite{.relu}.e2m1x2.f32", "d:b8 a b", "f32_to_e2m1x2<$relu>($a, $b)"),
    _row("cvt.rn{.relu}.f16x2.e2m1x2", "d:f16x2 a:b8", "e2m1x2_to_f16x2<$relu>($a)"),
    _row("cvt.rz_rp{.satfinite}.ue8m0x2.f32", "d:b16 a b", "f32_to_ue8m0x2<$rz_rp, $satfinite>($a, $b)"),
    _row("cvt.rz_rp{.satfinite}.ue8m0x2.bf16x2", "d:b16 a", "bf16x2_to_ue8m0x2<$rz_rp, $satfinite>($a)"),
    _row("cvt.rn.bf16x2.ue8m0x2", "d:bf16x2 a:b16", "ue8m0x2_to_bf16x2($a)"),
    # saturating packs of integers
    _row("cvt.pack.sat.u16.s32", "d:b32 a b", "cvt_pack<16, false>($a, $b)"),
    _row("cvt.pack.sat.s16.s32", "d:b32 a b", "cvt_pack<16, true>($a, $b)"),
    _row("cvt.pack.sat.u8.s32.b32", "d:b32 a:s32 b:s32 c:b32", "cvt_pack<8, false>($a, $b, $c)"),
    _row("cvt.pack.sat.u4.s32.b32", "d:b32 a:s32 b:s32 c:b32", "cvt_pack<4, false>($a, $b, $c)"),
    _row("cvt.pack.sat.s4.s32.b32", "d:b32 a:s32 b:s32 c:b32", "cvt_pack<4, true>($a, $b, $c)"),
    _row("cvt.pack.sat.s8.s32.b32", "d:b32 a:s32 b:s32 c:b32", "cvt_pack<8, true>($a, $b, $c)"),
)

SECTIONS = {
    "Integer arithmetic and carry chains": INTEGER,
    "Logic, shifts, bit fields, bytes": BITS,
    "Video SIMD": VIDEO,
    "Comparison and selection": SELECT,
    "fp32 and fp64": FLOAT,
    "Approximate functions": APPROXIMATE,
    "f16 and bf16": HALF,
    "Conversions": CONVERT,
}
ROWS = tuple(row for rows in SECTIONS.values() for row in rows)


class Access(Protocol):
    """How operands become C++ (`emit/access.py`)."""

    @property
    def carry(self) -> str: ...

    def read(self, operand: ir.Operand, type_: str) -> str: ...

    def write(self, operand: ir.Operand, type_: str, expression: str) -> str: ...


@cache
def _rows_by_opcode() -> dict[str, list[Row]]:
    table: dict[str, list[Row]] = {}
    for row in ROWS:
        table.setdefault(row.opcode, []).append(row)
    return table


@lru_cache(maxsize=4096)
def find(opcode: str, modifiers: tuple[str, ...], types: tuple[str, ...], operands: int) -> Variant | None:
    """The row variant of an opcode, or None if no row accounts for every modifier and type."""
    if not types:
        return None
    for row in _rows_by_opcode().get(opcode, ()):
        if len(row.operands) == operands and (variant := row.match(modifiers, types)):
            return variant
    return None


def _is_plain(operand: ir.Operand) -> bool:
    if isinstance(operand, ir.Register):
        return operand.selector == ""
    return isinstance(operand, ir.Immediate | ir.Sink | ir.Negated | ir.Special | ir.Symbol)


def expression(instruction: ir.Instruction, access: Access) -> str | None:
    """C++ statements for a pure per-thread instruction; None if it is not in the table."""
    variant = find(instruction.opcode, instruction.modifiers, instruction.types, len(instruction.operands))
    if variant is None:
        return None
    row = variant.row
    destination, *sources = instruction.operands
    first, second = destination, None
    if isinstance(destination, ir.Pair):
        if not row.second:
            return None
        first, second = destination.first, destination.second
    if not all(_is_plain(operand) for operand in (first, *sources)):
        return None
    values = dict(variant.values, cc=access.carry)
    for operand, type_, specification in zip(sources, variant.types[1:], row.operands[1:], strict=True):
        values[specification.name] = access.read(operand, type_)
    type_ = variant.types[0]
    value = row.fill(row.expression, values)
    if second is None:
        return access.write(first, type_, value)
    second_value = row.fill(row.second, values)
    return (
        f"const {C_TYPES[type_]} _first = {value}; const bool _second = {second_value}; "
        f"{access.write(first, type_, '_first')} {access.write(second, 'pred', '_second')}"
    )
