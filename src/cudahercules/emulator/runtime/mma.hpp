// Tensor-core instructions of one warp: mma, wmma, and the moves of 8 x 8 matrices between shared memory and
// registers. Declarations only: translations see the lanes' operands, the host program has the functions.
//
// Fragments. All of them follow one rule. A matrix of R rows (A by rows of m, B by rows of n: always along k)
// is cut into registers along its rows; register `w` of row `r` lies with lane (r % 8) * 4 + w % 4, as that
// lane's register (w / 4) * (R / 8) + r / 8. An accumulator is cut into pairs of columns instead, and a pair
// of fp16 is one register, of anything wider two. The PTX manual states this case by case; for wmma, whose
// fragments are opaque, it is this emulator's choice (and that of sm_80 for accumulators).
//
// Arithmetic is that of an H200, bit for bit (sums.hpp; found from its results, and as arXiv:2511.10909 has it).
// An instruction multiplies exactly. All K products of an element and its old sum are cut toward zero to
// multiples of 2^(e - kept), where e is the largest exponent among them (a product's is the sum of its factors',
// zeros have none), added exactly, and then cut to fp32 or rounded to fp16:
//   f16, bf16, tf32 into f32 or f16   kept = 25 (wmma of tf32: two instructions of k = 4)
//   wgmma of e4m3, e5m2               kept = 13, and sums in f32 have 13 bits of fraction
//   mma.sync of e4m3, e5m2            two products of f16, one for each half of every four (mma.sp: eight)
//                                     elements along k, from zero; the old sum is then added with rounding
//   integers                          exact; they wrap around, or saturate once at the end
//   f64                               one fused multiply-add after another, k rising
// Inputs of tf32 lose their low 13 bits. Subnormals are kept. Zero is positive. A NaN result is 0x7fffffff (0x7fff in f16), as is
// infinity times zero or minus infinity.
#pragma once
#include "device.hpp"

namespace rt {

enum class Format : uint8_t { f16, bf16, tf32, f64, s8, u8, e4m3, e5m2, f32, s32, s4, u4 };  // s4, u4: mma.sp only

constexpr uint32_t size_of(Format f) {
  switch (f) {
    case Format::f16:
    case Format::bf16:
      return 2;
    case Format::s8:
    case Format::u8:
    case Format::e4m3:
    case Format::e5m2:
      return 1;
    case Format::f64:
      return 8;
    default:
      return 4;
  }
}
constexpr uint32_t per_register(Format f) { return f == Format::f64 ? 1 : 4 / size_of(f); }
// Registers that each lane holds of a matrix.
constexpr uint32_t registers(Format f, uint32_t rows, uint32_t columns) { return rows * columns / per_register(f) / 32; }

template <Format F>
struct RegisterOf {
  using type = uint32_t;
};
template <>
struct RegisterOf<Format::f64> {
  using type = uint64_t;
};

template <uint32_t M, uint32_t N, uint32_t K, Format D, Format A, Format B>
struct MmaLane {
  typename RegisterOf<A>::type a[registers(A, M, K)];
  typename RegisterOf<B>::type b[registers(B, N, K)];
  typename RegisterOf<D>::type c[registers(D, M, N)];  // D afterwards
};
template <uint32_t M, uint32_t N, uint32_t K, Format D, Format A, Format B, bool saturate>
void mma(const Lanes&);

// The integer forms that tile.hpp's doubles do not cover: elements of `width` bits (1, 4 or 8), n always 8.
struct IntegerForm {
  uint16_t m, k, width;
  bool a_signed, b_signed, saturate, exclusive;  // exclusive: single bits are joined by xor, not by and
};
struct IntegerLane {
  IntegerForm form;
  uint32_t a[4], b[2], c[4];  // in c D afterwards
};
void mma_integer(const Lanes&);

// mma.sp, always 16 x 8 x k: A has half of its elements, e the places of those; `selector` the lanes that have e.
struct SparseForm {
  uint16_t k;
  Format d, a, b;
  uint8_t selector;
  bool saturate;
};
struct SparseLane {
  SparseForm form;
  uint32_t a[4], b[4], c[4];  // in c D afterwards
  uint32_t e;
};
void mma_sparse(const Lanes&);

struct MatrixLane {
  uint8_t* row;  // 16 bytes of shared memory: row lane % 8 of matrix lane / 8
  uint32_t d[4];
};
template <uint32_t count, bool transposed>
void ldmatrix(const Lanes&);
template <uint32_t count, bool transposed>
void stmatrix(const Lanes&);
void movmatrix(const Lanes&);
void wmma_sync(const Lanes&);

// `together` for instructions that all 32 lanes of a warp must execute.
void whole_warp(Thread& t, Collective function, void* operands, uint32_t site);

}  // namespace rt
