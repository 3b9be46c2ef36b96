"""Planted bugs in mma of small integers, mma.sp, and tensor maps that kernels change."""

from __future__ import annotations

from plant import Mutant

TESTS = [
    "tests/emulator/test_tensor_integer.py",
    "tests/emulator/test_tensor_sparse.py",
    "tests/emulator/test_hopper_maps.py",
    "tests/emulator/test_tensor_wmma.py",
]
_INTEGER = "runtime/mma_integer.cpp"
_SPARSE = "runtime/mma_sparse.cpp"
_MAPS = "runtime/tensor_map.cpp"

MUTANTS = [
    Mutant("4-bit integers have no sign", _INTEGER, "is_signed && value", "false && value"),
    Mutant(
        "single bits are always joined by and", _INTEGER, "form.exclusive ? a[w] ^ b[n][w] :", "false ? 0u :"
    ),
    Mutant("small integers never saturate", _INTEGER, "double(sum), form.saturate", "double(sum), false"),
    Mutant(
        "the other pair of lanes has the metadata", _SPARSE, "2 * form.selector", "2 * (1 - form.selector)"
    ),
    Mutant(
        "rows 8 to 15 use the metadata of rows 0 to 7",
        _SPARSE,
        "r / 8 * 16 + c % 4 * 4",
        "0 * 16 + c % 4 * 4",
    ),
    Mutant("columns and rows of metadata change places", _SPARSE, "c / 8 * 2 + r / 8", "r / 8 * 2 + c / 8"),
    Mutant(
        "the two indices of a chunk change places",
        _SPARSE,
        "indices & 3, second = indices >> 2",
        "indices >> 2, second = indices & 3",
    ),
    Mutant("tf32: one of two is always the first", _SPARSE, "2 * chunk + first / 2", "2 * chunk"),
    Mutant(
        "pairs of 4-bit elements are split",
        _SPARSE,
        "8 * chunk + 2 * second + i",
        "8 * chunk + 2 * second + 1 - i",
    ),
    Mutant("a dimension is stored as it is", _MAPS, "uint32_t(value - 1)", "uint32_t(value)"),
    Mutant("rank is stored as it is", _MAPS, "uint8_t(value + 1)", "uint8_t(value)"),
    Mutant("element types in cuTensorMapEncode's order", _MAPS, "10, 8, 9, 11, 12}", "8, 9, 10, 11, 12}"),
    Mutant("strides are not checked", _MAPS, "value % 16 || value >> 40", "value >> 40"),
    Mutant("a changed map's sum is not renewed", _MAPS, "map.check = checksum(map);", ""),
    Mutant(
        "the map stays in shared memory",
        _MAPS,
        "memcpy(lane.to, lane.from, sizeof(TensorMap));",
        "(void)lane;",
    ),
]
