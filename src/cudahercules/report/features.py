"""From SASS instructions to what a kernel *uses*: tensor cores, wide loads, asynchronous copies.

The mix of two kernels says little number by number, because counts are static and unrolling multiplies
them. That one has a kind of instruction which the other lacks says a lot.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

FEATURES: tuple[tuple[str, str], ...] = (
    (r"UTC\w*MMA", "tensor-core products from tensor memory"),
    (r"[HIQB]GMMA", "tensor-core products of a warp group"),
    (r"[HIDQOB]MMA", "tensor-core products of a warp"),
    (r"UTMALDG", "tensor loads by the copy engine (TMA)"),
    (r"UTMASTG|UTMAREDG", "tensor stores by the copy engine (TMA)"),
    (r"UBLKCP", "bulk copies (TMA)"),
    (r"SYNCS", "barriers in shared memory that copies arrive at (mbarrier)"),
    (r"LDGSTS", "asynchronous copies to shared memory (cp.async)"),
    (r"USETMAXREG", "registers moved between warps (setmaxnreg)"),
    (r"UCGABAR_ARV|UCGABAR", "clusters of blocks"),
    (r"LDSM", "matrix loads from shared memory (ldmatrix)"),
    (r"STSM", "matrix stores to shared memory (stmatrix)"),
    (r"LDG\.256", "32-byte loads"),
    (r"LDG\.128", "16-byte loads"),
    (r"STG\.256", "32-byte stores"),
    (r"STG\.128", "16-byte stores"),
    (r"LDS\.128", "16-byte loads from shared memory"),
    (r"LDS|LDS\.\d+", "shared memory"),
    (r"SHFL", "warp shuffles"),
    (r"REDUX|CREDUX", "warp reductions in one instruction"),
    (r"HFMA2|HADD2|HMUL2", "packed half-precision arithmetic"),
    (r"FFMA2|FADD2|FMUL2", "packed single-precision arithmetic"),
    (r"MATCH|VOTE", "warp votes and matches"),
    (r"ATOMS", "atomics in shared memory"),
    (r"REDG|RED", "reductions in memory"),
    (r"ACQBULK|PREEXIT", "programmatic dependent launch"),
)
"""Opcode (the part before its first modifier counts, too) and what it means, the telling ones first."""

_LOCAL = re.compile(r"(?:LDL|STL)(?:\.\d+)?")


def features(mix: Mapping[str, int]) -> dict[str, str]:
    """What a mix shows, phrase -> the opcodes that show it, the telling ones first."""
    found: dict[str, str] = {}
    for pattern, phrase in FEATURES:
        opcodes = [name for name in mix if mix[name] and re.fullmatch(rf"(?:{pattern})(?:\..*)?", name)]
        if opcodes:
            found[phrase] = ", ".join(sorted({_short(name) for name in opcodes}))
    return found


def _short(opcode: str) -> str:
    """Loads and stores with their width, everything else bare."""
    base, _, rest = opcode.partition(".")
    return opcode if rest.isdigit() else base


def only_in(one: Mapping[str, int], other: Mapping[str, int], limit: int = 4) -> list[str]:
    """What ``one`` uses and ``other`` does not, as ``16-byte loads (LDG.128)``; nothing if either is
    unknown (empty)."""
    if not one or not other:
        return []
    theirs = features(other)
    found = [f"{phrase} [{ops}]" for phrase, ops in features(one).items() if phrase not in theirs]
    return found[:limit]


def total(mixes: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Several kernels' mixes added up."""
    added: dict[str, int] = {}
    for mix in mixes:
        for name, count in mix.items():
            added[name] = added.get(name, 0) + count
    return added


def spills(mix: Mapping[str, int]) -> int:
    """Loads and stores of local memory: spilled registers, or arrays that do not fit into registers."""
    return sum(count for name, count in mix.items() if _LOCAL.fullmatch(name))
