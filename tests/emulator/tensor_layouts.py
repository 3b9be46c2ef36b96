"""Fragment layouts as the PTX manual states them, case by case: (row, column) of value i of lane l.

Written from the manual's text for each shape and type, not from the rule that the runtime uses.
B's place is (k, n).
"""

from __future__ import annotations

from collections.abc import Callable

Place = Callable[[int, int], tuple[int, int]]


def a_f16_k8(lane: int, i: int) -> tuple[int, int]:
    group, thread = lane >> 2, lane % 4
    return (group if i in (0, 1) else group + 8), thread * 2 + (i & 1)


def b_f16_k8(lane: int, i: int) -> tuple[int, int]:
    return (lane % 4) * 2 + i, lane >> 2


def a_f16_k16(lane: int, i: int) -> tuple[int, int]:
    group, thread = lane >> 2, lane % 4
    row = group if 0 <= i < 2 or 4 <= i < 6 else group + 8
    column = thread * 2 + (i & 1) if i < 4 else thread * 2 + (i & 1) + 8
    return row, column


def b_f16_k16(lane: int, i: int) -> tuple[int, int]:
    row = (lane % 4) * 2 + (i & 1)
    return (row if i < 2 else row + 8), lane >> 2


def a_tf32_k4(lane: int, i: int) -> tuple[int, int]:
    return (lane >> 2) + (8 if i == 1 else 0), lane % 4


def b_tf32_k4(lane: int, i: int) -> tuple[int, int]:
    return lane % 4, lane >> 2


def a_tf32_k8(lane: int, i: int) -> tuple[int, int]:
    row = lane >> 2 if i in (0, 2) else (lane >> 2) + 8
    column = lane % 4 if i in (0, 1) else lane % 4 + 4
    return row, column


def b_tf32_k8(lane: int, i: int) -> tuple[int, int]:
    return (lane % 4 if i == 0 else lane % 4 + 4), lane >> 2


def a_f64_m8(lane: int, i: int) -> tuple[int, int]:
    return lane >> 2, lane % 4


def a_f64_m16(lane: int, i: int) -> tuple[int, int]:
    return (lane >> 2) + 8 * (i % 2), lane % 4 + 4 * (i // 2)


def b_f64(lane: int, i: int) -> tuple[int, int]:
    return lane % 4 + 4 * i, lane >> 2


def a_byte_k16(lane: int, i: int) -> tuple[int, int]:
    return (lane >> 2 if i < 4 else (lane >> 2) + 8), (lane % 4) * 4 + (i & 3)


def b_byte_k16(lane: int, i: int) -> tuple[int, int]:
    return (lane % 4) * 4 + i, lane >> 2


def a_byte_k32(lane: int, i: int) -> tuple[int, int]:
    row = lane >> 2 if 0 <= i < 4 or 8 <= i < 12 else (lane >> 2) + 8
    column = (lane % 4) * 4 + (i & 3) if i < 8 else (lane % 4) * 4 + (i & 3) + 16
    return row, column


def b_byte_k32(lane: int, i: int) -> tuple[int, int]:
    row = (lane % 4) * 4 + (i & 3)
    return (row if i < 4 else row + 16), lane >> 2


def c_m8(lane: int, i: int) -> tuple[int, int]:
    return lane >> 2, (lane % 4) * 2 + (i & 1)


def c_m16(lane: int, i: int) -> tuple[int, int]:
    return (lane >> 2 if i < 2 else (lane >> 2) + 8), (lane % 4) * 2 + (i & 1)


def layouts(shape: tuple[int, int, int], type_: str) -> tuple[Place, Place, Place]:
    """Places of A, B and C for values of ``type_``."""
    m, _, k = shape
    c = c_m16 if m == 16 else c_m8
    match type_, k:
        case (("f16" | "bf16"), 8):
            return a_f16_k8, b_f16_k8, c
        case (("f16" | "bf16"), 16):
            return a_f16_k16, b_f16_k16, c
        case "tf32", 4:
            return a_tf32_k4, b_tf32_k4, c
        case "tf32", 8:
            return a_tf32_k8, b_tf32_k8, c
        case "f64", _:
            return (a_f64_m16 if m == 16 else a_f64_m8), b_f64, c
        case _, 16:
            return a_byte_k16, b_byte_k16, c
        case _, 32:
            return a_byte_k32, b_byte_k32, c
    raise AssertionError((shape, type_))


def wgmma_d(lane: int, i: int) -> tuple[int, int]:
    """Accumulator i of thread ``lane`` of the warpgroup (128 threads), 64 rows."""
    warp, within = lane // 32, lane % 32
    row = 16 * warp + within // 4 + (8 if i % 4 >= 2 else 0)
    return row, 8 * (i // 4) + (within % 4) * 2 + i % 2


def wgmma_a(type_: str) -> Place:
    """A's fragment in registers: per warp that of the mma with 16 rows."""
    base = {"f16": a_f16_k16, "bf16": a_f16_k16, "tf32": a_tf32_k8}.get(type_, a_byte_k32)

    def place(lane: int, i: int) -> tuple[int, int]:
        row, column = base(lane % 32, i)
        return row + 16 * (lane // 32), column

    return place
