"""Words that mutations put into PTX: types, sizes, numbers at every edge, and plain noise."""

from __future__ import annotations


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


TYPES = _words(
    "b8 b16 b32 b64 b128 u8 u16 u32 u64 s8 s16 s32 s64 f16 f16x2 bf16 bf16x2 f32 f64 tf32 e4m3x2 e5m2 pred"
    " f32x2 s4 b1 u128"
)
SPACES = ("global", "shared", "local", "param", "const", "shared::cta", "shared::cluster", "param::entry")
NUMBERS = _words(
    "0 1 -1 2 3 31 32 33 63 64 127 255 256 1024 65535 -2147483648 4294967295 4294967296 9223372036854775807"
    " -9223372036854775808 18446744073709551616 340282366920938463463374607431768211456 0x7FFFFFFF"
    " 0xFFFFFFFFFFFFFFFF 0b101 017 09 0f7F800000 0f7FC00000 0f00000001 0d7FF0000000000000 0dFFF8000000000000"
    " 1.5 1e400 1.0e-400 0U 99999999999999999999999999"
)
SIZES = (
    *_words("0 1 3 5 16 1024 65536 1048576 4294967295 4294967296 1099511627776 9223372036854775807"),
    *("18446744073709551616", "-1", "09", ""),
)
SPECIALS = _words(
    "%tid.x %tid.w %tid %laneid %clock64 %globaltimer %envreg31 %envreg99 %pm0 % %nclusterid.y %ntid.z"
    " WARP_SZ %dynamic_smem_size %nosuch %lanemask_lt"
)
LINES = (
    *(
        "\n.loc 1 2 3\n",
        "\n.loc 1\n",
        "\n.loc\n",
        "\n.loc x y z\n",
        "\n.file\n",
        '\n.file 1 "a"\n',
        "\n.file x\n",
    ),
    "\n.loc 9 9 9, function_name $L, inlined_at 9\n",
)
NOISE = (
    *"{}[]()<>,;:=|!@-+_&*^?/%#$'\\\x00é",
    *_words(
        "%r L0 .reg .param .b32 .func .entry .align .shared .pragma .section .extern .visible .branchtargets"
    ),
    *_words('.callprototype .v4 ret bra call mov.b32 _ x.y a::b // /* 0x 1. 0f "text" "'),
    *LINES,
    *NUMBERS,
)
HEADERS = _words("sm_80 sm_90a sm_70 sm_ sm sm_999999999999 8.4 9.9 64 32 compute_90 ; x")
DIRECTIVES = _words(
    ".maxntid .reqntid .minnctapersm .maxnreg .reqnctapercluster .explicitcluster .noreturn"
    " .blocksareclusters .pragma .unknown .attribute"
)
CHARACTERS = tuple("%.;{}()[]09afxFX$_ \n\"'\t\\:@!|\x7f")
