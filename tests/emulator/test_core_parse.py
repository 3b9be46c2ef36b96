"""The parser: initialisers, scopes, numbers, locations, and bad text."""

from __future__ import annotations

import pytest

from cudahercules.emulator.ptx.ir import (
    Group,
    Immediate,
    Instruction,
    Label,
    LabelMark,
    Memory,
    Negated,
    Pair,
    Register,
    Relocated,
    Sink,
    Special,
    Symbol,
    Vector,
)
from cudahercules.emulator.ptx.literals import immediate
from cudahercules.emulator.ptx.parse import parse
from cudahercules.emulator.ptx.tokens import PtxError

HEAD = ".version 8.4\n.target sm_80, debug\n.address_size 64\n"


def body(text: str) -> list[Instruction | LabelMark]:
    function = parse(
        f"{HEAD}.visible .entry k(.param .u64 k_param_0) .maxntid 256, 1, 1 .minnctapersm 2 {{\n"
        ".reg .pred %p<4>; .reg .b32 %r<9>, %q; .reg .b64 %rd<5>; .reg .f32 %f<5>;\n"
        f"{text}\n}}"
    ).functions["k"]
    assert function.directives == {"maxntid": (256, 1, 1), "minnctapersm": (2,)}
    assert function.body is not None
    return function.body


def one(text: str) -> Instruction:
    (item,) = body(text)
    assert isinstance(item, Instruction)
    return item


def test_opcode_modifiers_and_types():
    i = one("@!%p1 ld.global.nc.L1::no_allocate.v2.f32 {%f1, _}, [%rd1+-16];")
    assert (i.opcode, i.modifiers, i.types) == ("ld", ("global", "nc", "L1::no_allocate", "v2"), ("f32",))
    assert i.guard is not None and i.guard.negated and i.guard.register == Register("Rp1", "pred")
    assert i.operands == (Vector((Register("Rf1", "f32"), Sink())), Memory(Register("Rrd1", "b64"), -16))
    assert i.text == "@!%p1 ld.global.nc.L1::no_allocate.v2.f32 {%f1, _}, [%rd1+-16];"


def test_pairs_negation_special_registers_and_calls():
    assert one("setp.lt.and.s32 %p1|%p2, %r1, 010, !%p3;").operands == (
        Pair(Register("Rp1", "pred"), Register("Rp2", "pred")),
        Register("Rr1", "b32"),
        Immediate("int", 8),
        Negated(Register("Rp3", "pred")),
    )
    assert one("mov.u32 %q, %ctaid.y;").operands == (Register("Rq", "b32"), Special("ctaid.y"))
    assert one("call.uni (a), f, (b, c);").operands == (
        Group((Symbol("a"),)),
        Symbol("f"),
        Group((Symbol("b"), Symbol("c"))),
    )
    assert one("ld.param.u64 %rd1, [k_param_0+8];").operands[1] == Memory(Symbol("k_param_0"), 8)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("42", Immediate("int", 42)),
        ("0x1FU", Immediate("int", 31)),
        ("0b101", Immediate("int", 5)),
        ("0f3F800000", Immediate("f32", 0x3F800000)),
        ("0dBFF0000000000000", Immediate("f64", 0xBFF0000000000000)),
        ("1.5", Immediate("f64", 0x3FF8000000000000)),
        ("0x1E5", Immediate("int", 0x1E5)),
    ],
)
def test_numbers(text, expected):
    assert immediate(text) == expected


def test_minus_flips_the_sign():
    assert immediate("7", negative=True) == Immediate("int", -7)
    assert immediate("0f3F800000", negative=True) == Immediate("f32", 0xBF800000)


def test_names_of_inner_scopes_are_their_own():
    items = body(
        "{ .reg .b32 t; bra L; L: mov.b32 t, 1; }\n{ .reg .b32 t; L: bra L; { bra OUT; } }\nOUT: ret;"
    )
    labels = [i.name for i in items if isinstance(i, LabelMark)]
    assert len(set(labels)) == 3
    targets = [i.operands[0] for i in items if isinstance(i, Instruction) and i.opcode == "bra"]
    assert targets == [Label(labels[0]), Label(labels[1]), Label(labels[2])]


def test_branch_tables_and_prototypes():
    function = parse(
        f"{HEAD}.entry k() {{ .reg .b32 %r<2>; T: .branchtargets A, B;\n"
        "prototype_0 : .callprototype (.param .b32 _) _ (.param .b64 _);\n"
        "brx.idx %r1, T; A: ret; B: ret; }"
    ).functions["k"]
    assert function.tables == {"T": ("LA", "LB")}


def test_initialisers():
    module = parse(
        HEAD
        + """
        .global .align 4 .b8 bytes[8] = {1, 2, 0xFF};
        .global .align 8 .u64 pointers[3] = {bytes, generic(bytes)+4, 7};
        .const .f32 floats[2] = {0f3F800000, -2.5};
        .global .align 2 .s16 matrix[2][3] = {{1}, {-1, 2}};
        .global .align 1 .b8 mixed[10] = {9, 0xFF(bytes), 0xFF00(bytes), 0xFF0000(bytes), 0xFF000000(bytes),
            0xFF00000000(bytes), 0xFF0000000000(bytes), 0xFF000000000000(bytes),
            0xFF00000000000000(bytes), 8};
        .extern .shared .align 16 .b8 dynamic[];
        """
    )
    variables = module.variables
    assert (variables["bytes"].data, variables["bytes"].size) == (b"\x01\x02\xff", 8)
    assert variables["pointers"].relocations == (Relocated(0, "bytes", 0), Relocated(8, "bytes", 4))
    assert variables["pointers"].data[16:] == (7).to_bytes(8, "little")
    assert variables["floats"].data.hex() == "0000803f" + "000020c0"
    assert variables["matrix"].data.hex() == "0100" + "0000" * 2 + "ffff" + "0200"
    assert variables["mixed"].relocations == (Relocated(1, "bytes", 0),)
    assert variables["mixed"].data == b"\x09" + bytes(8) + b"\x08"
    assert variables["dynamic"].external and variables["dynamic"].size == 0


def test_location_is_the_line_in_the_candidates_own_file():
    items = body(
        """
        .loc 1 19 3
        mov.b32 %r1, 1;
        .loc 2 909 16, function_name $L__info_string0, inlined_at 1 20 5
        .loc 3 333 17, function_name $L__info_string1, inlined_at 2 909 16
        mov.b32 %r1, 2;
        .loc 4 7 1, function_name $L__info_string2, inlined_at 1 21 5
        mov.b32 %r1, 3;
        .loc 1 0 5
        mov.b32 %r1, 4;
        }
        .file 1 "/tmp/b/kernel.cu"
        .file 2 "/opt/cuda/include/cooperative_groups.h"
        .file 3 "/opt/cuda/include/crt/sm_80_rt.hpp"
        .file 4 "/tmp/b/helper.cuh"
        .func unused() { ret;
        """
    )
    places = [
        (i.location.file, i.location.line, i.location.inner) for i in items if isinstance(i, Instruction)
    ]
    assert places == [
        ("/tmp/b/kernel.cu", 19, ""),
        ("/tmp/b/kernel.cu", 20, "/opt/cuda/include/crt/sm_80_rt.hpp:333"),
        ("/tmp/b/helper.cuh", 7, ""),
        ("/tmp/b/helper.cuh", 7, ""),
    ]


def test_an_operand_that_cannot_be_read_spoils_one_instruction_only():
    first, second = body("tex.1d.v4.f32.s32 {%f0,%f1,%f2,%f3}, [t, <%r0>];\nret;")
    assert isinstance(first, Instruction) and isinstance(second, Instruction)
    assert (first.opcode, first.name, second.opcode) == ("?", "tex.1d.v4.f32.s32", "ret")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hello", "PTX line 1"),
        (HEAD + ".entry k() { ret;", "ends in the middle"),
        (HEAD + ".global .texref t;", "not supported"),
        (HEAD + "\x01", "cannot read"),
    ],
)
def test_bad_text(text, message):
    with pytest.raises(PtxError, match=message):
        parse(text)


def test_vector_registers_are_their_components():
    text = """.reg .v2 .f32 pair; .reg .v4 .b32 %q<2>; .reg .b64 %rd;
    ld.global.v4.b32 %q1, [%rd];
    max.f32 pair.x, pair.g, pair.r;
    { .reg .v2 .f32 pair; mov.f32 pair.x, 0f00000000; }
    """
    load, most, move = body(text)
    assert isinstance(load.operands[0], Vector)
    names = [r.name for r in load.operands[0].elements]
    assert len(set(names)) == 4 and all(r.type == "b32" for r in load.operands[0].elements)
    x, y, again = most.operands
    assert x == again and x != y and move.operands[0] != x
