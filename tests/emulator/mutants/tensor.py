"""Planted bugs in mma, wmma, wgmma, the matrix moves, and in what orders them."""

from __future__ import annotations

from plant import Mutant

TESTS = [
    f"tests/emulator/test_tensor_{name}.py" for name in ("mma", "wgmma", "async", "matrices", "wmma", "gemm")
]
_TILE = "runtime/tile.hpp"
_MMA = "runtime/mma.cpp"
_WARP = "runtime/warp.cpp"
_WMMA = "runtime/wmma.hpp"
_SWIZZLE = "runtime/swizzle.hpp"
_SUMS = "runtime/sums.hpp"
_COMPUTE = "runtime/wgmma_compute.cpp"
_WGMMA = "runtime/wgmma.cpp"

MUTANTS = [
    Mutant(
        "neighbouring lanes swapped, the same way in A, B and C",
        _TILE,
        "* 4 + w % 4;",
        "* 4 + (w ^ 1) % 4;",
    ),
    Mutant(
        "registers of 16 x 8 fragments in the other order",
        _TILE,
        "return w / 4 * (rows / 8) + r / 8;",
        "return rows == 16 && w < 8 ? r / 8 * 2 + w / 4 : w / 4 * (rows / 8) + r / 8;",
    ),
    Mutant(
        "tf32 keeps its low bits",
        _TILE,
        "0xffffe000u",
        "0xffffffffu",
    ),
    Mutant(
        "tf32 loses one bit too many",
        _TILE,
        "0xffffe000u",
        "0xffffc000u",
    ),
    Mutant(
        "e4m3 has no NaN",
        _TILE,
        "if ((bits & 0x7f) == 0x7f) return NAN;",
        "",
    ),
    Mutant(
        "e4m3 subnormals are half as large",
        _TILE,
        "std::ldexp(float(mantissa), -9)",
        "std::ldexp(float(mantissa), -10)",
    ),
    Mutant(
        "e5m2: upper half of 16 bytes first",
        _TILE,
        "_mm_unpackhi_epi8",
        "_mm_unpacklo_epi8",
    ),
    Mutant(
        "s8 read as u8",
        _TILE,
        "double(int8_t(from[i]))",
        "double(from[i])",
    ),
    Mutant(
        "the last k is left out",
        _TILE,
        "k < depth; k++",
        "k + 1 < depth; k++",
    ),
    Mutant(
        "products rounded before they are added",
        _TILE,
        "sum[i][0] = _mm256_fmadd_pd(factor, left, sum[i][0]);",
        "sum[i][0] = _mm256_add_pd(_mm256_mul_pd(factor, left), sum[i][0]);",
    ),
    Mutant(
        "f16 sums rounded twice",
        _TILE,
        "bits |= 1;",
        "",
    ),
    Mutant(
        "f16 NaN of the host",
        _TILE,
        "nan_f16 = 0x7fffu",
        "nan_f16 = 0x7e00u",
    ),
    Mutant(
        "f32 NaN of the host",
        _TILE,
        "return f == f ? bits : nan_f32;",
        "return bits;",
    ),
    Mutant(
        "no saturation",
        _TILE,
        "if (saturate) return",
        "if (false) return",
    ),
    Mutant(
        "saturation to the wrong end",
        _TILE,
        "? 2147483647.0 : x)",
        "? -2147483648.0 : x)",
    ),
    Mutant(
        "halves of an f16 accumulator swapped on the way in",
        _TILE,
        "out[0] = double(_cvtsh_ss(uint16_t(registers[pair])));\n"
        "    out[1] = double(_cvtsh_ss(uint16_t(registers[pair] >> 16)));",
        "out[1] = double(_cvtsh_ss(uint16_t(registers[pair])));\n"
        "    out[0] = double(_cvtsh_ss(uint16_t(registers[pair] >> 16)));",
    ),
    Mutant(
        "s32 accumulators read as u32",
        _TILE,
        "double(int32_t(bits))",
        "double(bits)",
    ),
    Mutant(
        "columns of B mirrored",
        _MMA,
        "b[k * N + n] = b_rows[n * K + k]",
        "b[k * N + n] = b_rows[(N - 1 - n) * K + k]",
    ),
    Mutant(
        "a warp that is not whole may multiply",
        _WARP,
        'if (t.warp->alive != all_lanes)\n    fault(t, site, "illegal_instruction"',
        'if (false)\n    fault(t, site, "illegal_instruction"',
    ),
    Mutant(
        "ldmatrix takes all rows from the first eight lanes",
        _MMA,
        "memcpy(m[row], matrix_lane(l, index * 8 + row).row, 16);",
        "memcpy(m[row], matrix_lane(l, row).row, 16);",
    ),
    Mutant(
        "ldmatrix swaps neighbours",
        _MMA,
        "matrix_lane(l, lane).d[index] = low | high << 16;",
        "matrix_lane(l, lane).d[index] = high | low << 16;",
    ),
    Mutant(
        "ldmatrix.trans takes the column's neighbour",
        _MMA,
        "transposed ? m[column + 1][row] : m[row][column + 1];",
        "transposed ? m[column][row + 1 & 7] : m[row][column + 1];",
    ),
    Mutant(
        "stmatrix ignores .trans",
        _MMA,
        "from_lanes(l, index, m, transposed);",
        "from_lanes(l, index, m, false);",
    ),
    Mutant(
        "movmatrix does nothing",
        _MMA,
        "to_lanes(l, 0, m, true);",
        "to_lanes(l, 0, m, false);",
    ),
    Mutant(
        "wmma.load: rows and columns exchanged",
        _WMMA,
        "const uint64_t offset = (by_columns ? uint64_t(c) * stride + r : uint64_t(r) * stride + "
        "c) * sizeof(Value);\n"
        "    to[index]",
        "const uint64_t offset = (!by_columns ? uint64_t(c) * stride + r : uint64_t(r) * stride "
        "+ c) * sizeof(Value);\n"
        "    to[index]",
    ),
    Mutant(
        "wmma: fragments of all shapes as those of 16 rows",
        _WMMA,
        "w / 4 * (rows / 8) + r / 8",
        "w / 4 * 2 + r / 8",
    ),
    Mutant(
        "wmma does not meet before it loads",
        _WARP,
        "  together(t, all_lanes, function, operands, site);",
        "  if (function != wmma_sync) together(t, all_lanes, function, operands, site);",
    ),
    Mutant(
        "128-byte swizzle takes the bits above",
        _SWIZZLE,
        "address >> 7 & bits",
        "address >> 8 & bits",
    ),
    Mutant(
        "64-byte swizzle as 128-byte swizzle",
        _SWIZZLE,
        "bytes64 = 2",
        "bytes64 = 3",
    ),
    Mutant(
        "modes 2 and 3 of the descriptor exchanged",
        _COMPUTE,
        "Swizzle::bytes64, Swizzle::bytes32}",
        "Swizzle::bytes32, Swizzle::bytes64}",
    ),
    Mutant(
        "strides lose their high bit",
        _COMPUTE,
        "bits >> at & 0x3fff",
        "bits >> at & 0xff",
    ),
    Mutant(
        "K-major without swizzle: leading taken for 16",
        _COMPUTE,
        "swizzle_ == Swizzle::none ? leading_ : 16;",
        "16;",
    ),
    Mutant(
        "K-major with swizzle: leading used",
        _COMPUTE,
        "swizzle_ == Swizzle::none ? leading_ : 16;",
        "leading_;",
    ),
    Mutant(
        "K-major: stride for 16 rows",
        _COMPUTE,
        "row / 8 * stride_ + unit * step",
        "row / 16 * stride_ + unit * step",
    ),
    Mutant(
        "MN-major without swizzle: strides exchanged",
        _COMPUTE,
        "unit * stride_ + k % 8 * 16 + k / 8 * leading_",
        "unit * leading_ + k % 8 * 16 + k / 8 * stride_",
    ),
    Mutant(
        "MN-major with swizzle: strides exchanged",
        _COMPUTE,
        "unit / units * leading_ + k % 8 * width_ + k / 8 * stride_",
        "unit / units * stride_ + k % 8 * width_ + k / 8 * leading_",
    ),
    Mutant(
        "base offset ignored",
        _COMPUTE,
        "base = base_ * 128;",
        "base = 0;",
    ),
    Mutant(
        "swizzle of the offset instead of the address",
        _COMPUTE,
        "(swizzled(address - base, swizzle_) + base)",
        "(start_ + swizzled(offset, swizzle_))",
    ),
    Mutant(
        "sign of B ignored",
        _COMPUTE,
        "const double sign = form.b_negated ? -1 : 1;",
        "const double sign = 1;",
    ),
    Mutant(
        "sign of A in registers ignored",
        _COMPUTE,
        "if (form.a_negated)\n        for",
        "if (false)\n        for",
    ),
    Mutant(
        "A in registers: every warp takes the first warp's",
        _COMPUTE,
        "threads[row / warp_rows * 32 + lane_of(r, w)]",
        "threads[lane_of(r, w)]",
    ),
    Mutant(
        "A transposed although it is not said",
        _COMPUTE,
        "read_matrix<F>(descriptor, form.a_transposed, warpgroup_rows",
        "read_matrix<F>(descriptor, form.b_transposed, warpgroup_rows",
    ),
    Mutant(
        "scale-d ignored",
        _COMPUTE,
        "    if (keep)\n",
        "    if (true)\n",
    ),
    Mutant(
        "the second half of a unit may lie outside",
        _COMPUTE,
        "address + 16 <= end",
        "address < end + 65536",
    ),
    Mutant(
        "a wait covers only the oldest group",
        _WGMMA,
        "thread.target = thread.groups[covered - 1];",
        "thread.target = thread.groups[0];",
    ),
    Mutant(
        "accumulators stay readable before the wait",
        _WGMMA,
        "acc.value[r] = poison;",
        "",
    ),
    Mutant(
        "a wait frees all registers",
        _WGMMA,
        "if (acc->until[i] && acc->until[i] <= target)",
        "if (acc->until[i])",
    ),
    Mutant(
        "copies of accumulators under way are forgotten",
        _WGMMA,
        "    thread.moves.push_back({thread.issued, &acc.shadow[to], &acc.shadow[from]});",
        "",
    ),
    Mutant(
        "copies are made after the product instead of before",
        _WGMMA,
        "for (GroupThread& thread : g.threads) apply_moves(thread, g.performed + i);",
        "",
    ),
    Mutant(
        "products happen at issue in every mode",
        _WGMMA,
        "if (complete_now(g.random)) {",
        "if (true) {",
    ),
    Mutant(
        "products never happen before a wait",
        _WGMMA,
        "if (complete_now(g.random)) {",
        "if (false) {",
    ),
    Mutant(
        "a commit takes back what was issued last",
        _WGMMA,
        "thread.groups.push_back(thread.issued);",
        "thread.groups.push_back(thread.issued ? thread.issued - 1 : 0);",
    ),
    Mutant(
        "no fence is needed",
        _WGMMA,
        "if (!thread.fenced)",
        "if (false)",
    ),
    Mutant(
        "descriptors of other threads are not compared",
        _WGMMA,
        "o.operands.b != operands.b ||",
        "",
    ),
    Mutant(
        "instructions of other threads are not compared",
        _WGMMA,
        "x.a_negated == y.a_negated &&",
        "",
    ),
    Mutant(
        "a wait does not wait for other warps",
        _WGMMA,
        "while (g->performed < thread.target) {",
        "while (false) {",
    ),
    Mutant(
        "nobody is woken",
        _WGMMA,
        "make_runnable(b, b.warps[first_warp + w], ready);",
        "",
    ),
    Mutant(
        "half a warpgroup will do",
        _WGMMA,
        "uint32_t gone = exists ? ~b.warps[first + w].alive : all_lanes;",
        "uint32_t gone = 0;",
    ),
    Mutant("products keep one bit more", _SUMS, "{d, a, b, 0x1p25, 0x1p23}", "{d, a, b, 0x1p26, 0x1p23}"),
    Mutant("products keep one bit less", _SUMS, "{d, a, b, 0x1p25, 0x1p23}", "{d, a, b, 0x1p24, 0x1p23}"),
    Mutant("wgmma of bytes keeps 25 bits", _SUMS, "{d, a, b, 0x1p13, 0x1p13}", "{d, a, b, 0x1p25, 0x1p13}"),
    Mutant("sums of bytes have 23 bits", _SUMS, "{d, a, b, 0x1p13, 0x1p13}", "{d, a, b, 0x1p13, 0x1p23}"),
    Mutant(
        "products are rounded, not cut",
        _SUMS,
        "_MM_FROUND_TO_ZERO |",
        "_MM_FROUND_TO_NEAREST_INT |",
    ),
    Mutant(
        "sums are rounded to fp32",
        _SUMS,
        "if (rule.d != Format::f16) result = cut_fraction(result, rule.fraction);",
        "",
    ),
    Mutant(
        "zeros have an exponent",
        _SUMS,
        "_mm256_cmp_pd(x, _mm256_setzero_pd(), _CMP_NEQ_UQ)",
        "_mm256_cmp_pd(x, x, _CMP_TRUE_UQ)",
    ),
    Mutant(
        "subnormal factors align by their highest bit",
        _SUMS,
        "_mm256_and_pd(_mm256_max_pd(exponent, least),",
        "_mm256_and_pd(exponent,",
    ),
    Mutant(
        "the old sum does not count among the exponents",
        _SUMS,
        "largest[i] = _mm256_max_pd(powers(old[i], least_c), tiny);",
        "largest[i] = tiny;",
    ),
    Mutant(
        "mma of bytes takes the first half of k first",
        _SUMS,
        "if (k % group / (group / 2) != half) continue;",
        "if (k / (depth / 2) != half) continue;",
    ),
    Mutant(
        "an infinity makes the others' operands zero and nothing else",
        _SUMS,
        "if (!std::isfinite(met[i])) c[i] = met[i];",
        "c[i] = c[i];",
    ),
]
