// Types, bit casts and canonical NaNs shared by the scalar headers.
//
// Conventions of every header in this folder:
//   * a PTX value of type .u/.b is an unsigned C++ integer of its width, .s a signed one, .f32 a float, .f64 a double,
//     .f16 and .bf16 a uint16_t of bits, every packed pair a uint32_t (low half = first element), .pred a bool;
//   * functions are pure; only the carry flag of add.cc and friends is passed by reference;
//   * the code must be compiled with -ffp-contract=off and without -ffast-math, in round-to-nearest mode with
//     subnormals on (the state in which a thread starts).
#pragma once

#include <stdint.h>

#define PTX_INLINE __attribute__((always_inline)) inline

// 1: add, sub, mul and fma return the GPU's canonical NaN (0x7fffffff, 0x7fff...). 0 (default): an invalid operation gives the
// host's NaN, whose sign and payload differ; still a NaN everywhere, only reinterpreting its bits shows a difference.
// Canonicalising costs a compare and a blend for each operation.
#ifndef PTX_CANONICAL_NAN
#define PTX_CANONICAL_NAN 0
#endif

namespace ptx {

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t s8;
typedef int16_t s16;
typedef int32_t s32;
typedef int64_t s64;
typedef unsigned __int128 u128;
typedef __int128 s128;

template <class To, class From>
PTX_INLINE To bits(From value) {
    static_assert(sizeof(To) == sizeof(From), "a bit cast keeps the size");
    return __builtin_bit_cast(To, value);
}

enum class Round { rn, rz, rm, rp, rna };  // nearest even, toward 0, toward -inf, toward +inf, nearest with ties away from 0

constexpr u32 NAN_F32 = 0x7fffffffu;
constexpr u64 NAN_F64 = 0xfff8000000000000ull;  // what an invalid fp64 operation gives, on the GPU and on x86
constexpr u16 NAN_F16 = 0x7fff;
constexpr u16 NAN_BF16 = 0x7fff;

PTX_INLINE bool is_nan(float x) { return x != x; }
PTX_INLINE bool is_nan(double x) { return x != x; }
PTX_INLINE float nan_f32() { return bits<float>(NAN_F32); }
PTX_INLINE double nan_f64() { return bits<double>(NAN_F64); }

PTX_INLINE float canonical(float x) { return is_nan(x) ? nan_f32() : x; }
PTX_INLINE double canonical(double x) { return x; }  // fp64 units keep a NaN's payload and make it quiet, as the host does

#if PTX_CANONICAL_NAN
PTX_INLINE float hot(float x) { return canonical(x); }
#else
PTX_INLINE float hot(float x) { return x; }
#endif
PTX_INLINE double hot(double x) { return x; }

// .ftz: a subnormal becomes a zero of the same sign.
PTX_INLINE float flush(float x) {
    const u32 b = bits<u32>(x);
    return (b & 0x7f800000u) == 0 ? bits<float>(b & 0x80000000u) : x;
}
template <bool ftz>
PTX_INLINE float flush_if(float x) {
    return ftz ? flush(x) : x;
}

// .sat: clamp to [0, 1]; a NaN becomes +0.
PTX_INLINE float saturate(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
PTX_INLINE double saturate(double x) { return x > 0.0 ? (x < 1.0 ? x : 1.0) : 0.0; }
template <bool sat, class F>
PTX_INLINE F saturate_if(F x) {
    return sat ? saturate(x) : x;
}

// Two 16-bit halves of a packed register.
PTX_INLINE u16 low16(u32 x) { return u16(x); }
PTX_INLINE u16 high16(u32 x) { return u16(x >> 16); }
PTX_INLINE u32 pack16(u16 low, u16 high) { return u32(low) | u32(high) << 16; }

template <class Function>
PTX_INLINE u32 each_half(u32 a, Function f) {
    return pack16(f(low16(a)), f(high16(a)));
}
template <class Function>
PTX_INLINE u32 each_half(u32 a, u32 b, Function f) {
    return pack16(f(low16(a), low16(b)), f(high16(a), high16(b)));
}
template <class Function>
PTX_INLINE u32 each_half(u32 a, u32 b, u32 c, Function f) {
    return pack16(f(low16(a), low16(b), low16(c)), f(high16(a), high16(b), high16(c)));
}

}  // namespace ptx
