// fp32 and fp64 arithmetic: exact IEEE results in every rounding mode, .ftz, .sat, and PTX's NaN rules for min and max.
#pragma once

#include "encode.hpp"
#include "integer.hpp"

#if !defined(__x86_64__) || !defined(__FMA__)
#include <fenv.h>
#endif

namespace ptx {

// ---- directed rounding ---------------------------------------------------------------------------------------------------
// On x86 one asm statement sets the mode, does the operation and restores the mode that was there, so no compiler can move
// the operation out of it. Elsewhere fesetround around a volatile operation does the same, slowly.

#if defined(__x86_64__) && defined(__FMA__)
template <Round R>
PTX_INLINE u32 rounding_control(u32 saved) {
    constexpr u32 mode = R == Round::rz ? 0x6000u : R == Round::rm ? 0x2000u : R == Round::rp ? 0x4000u : 0u;
    return (saved & ~0x6000u) | mode;
}
PTX_INLINE u32 control_word() {
    u32 saved;
    __asm__ volatile("vstmxcsr %0" : "=m"(saved));
    return saved;
}
#define PTX_DIRECTED_2(name, type, instruction)                                                             \
    template <Round R>                                                                                      \
    PTX_INLINE type name(type a, type b) {                                                                  \
        const u32 saved = control_word(), wanted = rounding_control<R>(saved);                              \
        type r;                                                                                             \
        __asm__("vldmxcsr %3\n\t" instruction " %2, %1, %0\n\tvldmxcsr %4"                                  \
                : "=&x"(r) : "x"(a), "x"(b), "m"(wanted), "m"(saved));                                      \
        return r;                                                                                           \
    }
#define PTX_DIRECTED_FMA(type, instruction)                                                                 \
    template <Round R>                                                                                      \
    PTX_INLINE type directed_fma(type a, type b, type c) {                                                  \
        const u32 saved = control_word(), wanted = rounding_control<R>(saved);                              \
        __asm__("vldmxcsr %3\n\t" instruction " %2, %1, %0\n\tvldmxcsr %4"                                  \
                : "+&x"(a) : "x"(b), "x"(c), "m"(wanted), "m"(saved));                                      \
        return a;                                                                                           \
    }
#define PTX_DIRECTED_SQRT(type, instruction)                                                                \
    template <Round R>                                                                                      \
    PTX_INLINE type directed_sqrt(type a) {                                                                 \
        const u32 saved = control_word(), wanted = rounding_control<R>(saved);                              \
        type r;                                                                                             \
        __asm__("vldmxcsr %2\n\t" instruction " %1, %1, %0\n\tvldmxcsr %3"                                  \
                : "=&x"(r) : "x"(a), "m"(wanted), "m"(saved));                                              \
        return r;                                                                                           \
    }
PTX_DIRECTED_2(directed_add, float, "vaddss")
PTX_DIRECTED_2(directed_add, double, "vaddsd")
PTX_DIRECTED_2(directed_mul, float, "vmulss")
PTX_DIRECTED_2(directed_mul, double, "vmulsd")
PTX_DIRECTED_2(directed_div, float, "vdivss")
PTX_DIRECTED_2(directed_div, double, "vdivsd")
PTX_DIRECTED_FMA(float, "vfmadd213ss")
PTX_DIRECTED_FMA(double, "vfmadd213sd")
PTX_DIRECTED_SQRT(float, "vsqrtss")
PTX_DIRECTED_SQRT(double, "vsqrtsd")
#undef PTX_DIRECTED_2
#undef PTX_DIRECTED_FMA
#undef PTX_DIRECTED_SQRT
#else
template <Round R, class F, class Operation>
__attribute__((noinline)) F under_mode(Operation operation) {
    const int saved = fegetround();
    fesetround(R == Round::rz ? FE_TOWARDZERO : R == Round::rm ? FE_DOWNWARD : R == Round::rp ? FE_UPWARD : FE_TONEAREST);
    const volatile F result = operation();
    fesetround(saved);
    return result;
}
template <Round R, class F>
inline F directed_add(F a, F b) {
    volatile F x = a, y = b;
    return under_mode<R, F>([&] { return x + y; });
}
template <Round R, class F>
inline F directed_mul(F a, F b) {
    volatile F x = a, y = b;
    return under_mode<R, F>([&] { return x * y; });
}
template <Round R, class F>
inline F directed_div(F a, F b) {
    volatile F x = a, y = b;
    return under_mode<R, F>([&] { return x / y; });
}
template <Round R>
inline float directed_fma(float a, float b, float c) {
    volatile float x = a, y = b, z = c;
    return under_mode<R, float>([&] { return __builtin_fmaf(x, y, z); });
}
template <Round R>
inline double directed_fma(double a, double b, double c) {
    volatile double x = a, y = b, z = c;
    return under_mode<R, double>([&] { return __builtin_fma(x, y, z); });
}
template <Round R>
inline float directed_sqrt(float a) {
    volatile float x = a;
    return under_mode<R, float>([&] { return __builtin_sqrtf(x); });
}
template <Round R>
inline double directed_sqrt(double a) {
    volatile double x = a;
    return under_mode<R, double>([&] { return __builtin_sqrt(x); });
}
#endif

PTX_INLINE float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
PTX_INLINE double fused(double a, double b, double c) { return __builtin_fma(a, b, c); }
// __builtin_sqrt may set errno through a library call for a negative operand; the check keeps it one instruction.
PTX_INLINE float root(float a) { return a < 0.0f ? nan_f32() : __builtin_sqrtf(a); }
PTX_INLINE double root(double a) { return a < 0.0 ? nan_f64() : __builtin_sqrt(a); }

template <bool ftz>
PTX_INLINE double flush_if(double x) {
    return x;  // no .ftz in fp64
}

// .ftz of a result: flushed if it is below the smallest normal number after rounding to full precision with an unbounded
// exponent (as an H200 does). Only a result of exactly that number needs the exact value to decide.
template <Round R>
PTX_INLINE bool is_tiny(double exact, double smallest_normal, double half_ulp) {
    const double m = exact < 0 ? -exact : exact;
    if (R == Round::rn) return m < smallest_normal - half_ulp;
    const bool away = R == (exact < 0 ? Round::rm : Round::rp);
    return away ? m <= smallest_normal - 2 * half_ulp : m < smallest_normal;
}
template <Round R, class Exact>
PTX_INLINE float flush_result(float r, Exact exact) {
    const u32 b = bits<u32>(r);
    if (__builtin_expect((b & 0x7fffffffu) == 0x00800000u, 0) && is_tiny<R>(exact(), 0x1p-126, 0x1p-151))
        return bits<float>(b & 0x80000000u);
    return flush(r);
}

// ---- arithmetic ----------------------------------------------------------------------------------------------------------

template <Round R, bool ftz, bool sat, class F>
PTX_INLINE F fadd(F a, F b) {
    a = flush_if<ftz>(a);
    b = flush_if<ftz>(b);
    const F r = R == Round::rn ? a + b : directed_add<R>(a, b);
    return saturate_if<sat>(hot(flush_if<ftz>(r)));
}
template <Round R, bool ftz, bool sat, class F>
PTX_INLINE F fsub(F a, F b) {
    a = flush_if<ftz>(a);
    b = flush_if<ftz>(b);
    const F r = R == Round::rn ? a - b : directed_add<R>(a, -b);
    return saturate_if<sat>(hot(flush_if<ftz>(r)));
}
template <Round R, bool ftz, bool sat, class F>
PTX_INLINE F fmul(F a, F b) {
    a = flush_if<ftz>(a);
    b = flush_if<ftz>(b);
    F r = R == Round::rn ? a * b : directed_mul<R>(a, b);
    if constexpr (ftz) r = flush_result<R>(r, [&] { return double(a) * b; });
    return saturate_if<sat>(hot(r));
}
template <Round R, bool ftz, bool sat, class F>
PTX_INLINE F ffma(F a, F b, F c) {
    a = flush_if<ftz>(a);
    b = flush_if<ftz>(b);
    c = flush_if<ftz>(c);
    F r = R == Round::rn ? fused(a, b, c) : directed_fma<R>(a, b, c);
    if constexpr (ftz) r = flush_result<R>(r, [&] { return add_odd(double(a) * b, c); });
    return saturate_if<sat>(hot(r));
}
template <Round R, bool ftz, class F>
PTX_INLINE F fdiv(F a, F b) {
    a = flush_if<ftz>(a);
    b = flush_if<ftz>(b);
    F r = R == Round::rn ? a / b : directed_div<R>(a, b);
    if constexpr (ftz) r = flush_result<R>(r, [&] { return double(a) / double(b); });
    return canonical(r);
}
template <Round R, bool ftz, class F>
PTX_INLINE F frcp(F a) {
    return fdiv<R, ftz>(F(1), a);
}
template <Round R, bool ftz, class F>
PTX_INLINE F fsqrt(F a) {
    a = flush_if<ftz>(a);
    return canonical(R == Round::rn ? root(a) : directed_sqrt<R>(a));
}

PTX_INLINE float sign_flip(float a) { return bits<float>(bits<u32>(a) ^ 0x80000000u); }
PTX_INLINE double sign_flip(double a) { return bits<double>(bits<u64>(a) ^ 0x8000000000000000ull); }
PTX_INLINE float magnitude(float a) { return bits<float>(bits<u32>(a) & 0x7fffffffu); }
PTX_INLINE double magnitude(double a) { return bits<double>(bits<u64>(a) & 0x7fffffffffffffffull); }
PTX_INLINE bool sign_of(float a) { return bits<u32>(a) >> 31; }
PTX_INLINE bool sign_of(double a) { return bits<u64>(a) >> 63; }
PTX_INLINE float canonical_of(float) { return nan_f32(); }
PTX_INLINE double canonical_of(double) { return nan_f64(); }

template <bool ftz, class F>
PTX_INLINE F fneg(F a) {
    return hot(flush_if<ftz>(sign_flip(a)));
}
template <bool ftz, class F>
PTX_INLINE F fabs_(F a) {
    return hot(flush_if<ftz>(magnitude(a)));
}
// The sign of a on the magnitude of b.
template <class F>
PTX_INLINE F fcopysign(F a, F b) {
    return sign_of(a) ? sign_flip(magnitude(b)) : magnitude(b);
}

// One NaN loses against a number (with .NaN it wins); -0 counts as less than +0.
template <bool nan_wins, class F>
PTX_INLINE F min2(F a, F b) {
    if (is_nan(a)) return nan_wins ? canonical_of(a) : canonical(b);
    if (is_nan(b)) return nan_wins ? canonical_of(a) : a;
    return a == b ? (sign_of(a) ? a : b) : (a < b ? a : b);
}
template <bool nan_wins, class F>
PTX_INLINE F max2(F a, F b) {
    if (is_nan(a)) return nan_wins ? canonical_of(a) : canonical(b);
    if (is_nan(b)) return nan_wins ? canonical_of(a) : a;
    return a == b ? (sign_of(a) ? b : a) : (a < b ? b : a);
}
// .xorsign.abs: the smaller (larger) magnitude with the exclusive or of the two signs.
template <class F>
PTX_INLINE F with_xor_sign(F m, F a, F b) {
    return !is_nan(m) && sign_of(a) != sign_of(b) ? sign_flip(m) : m;
}
template <bool ftz, bool nan_wins, bool xorsign, class F>
PTX_INLINE F fmin_(F a, F b) {
    a = flush_if<ftz>(a);
    b = flush_if<ftz>(b);
    if (xorsign) return with_xor_sign(min2<nan_wins>(magnitude(a), magnitude(b)), a, b);
    return min2<nan_wins>(a, b);
}
template <bool ftz, bool nan_wins, bool xorsign, class F>
PTX_INLINE F fmax_(F a, F b) {
    a = flush_if<ftz>(a);
    b = flush_if<ftz>(b);
    if (xorsign) return with_xor_sign(max2<nan_wins>(magnitude(a), magnitude(b)), a, b);
    return max2<nan_wins>(a, b);
}
template <bool ftz, bool nan_wins, bool absolute>
PTX_INLINE float fmin3(float a, float b, float c) {
    if (absolute) a = magnitude(a), b = magnitude(b), c = magnitude(c);
    return fmin_<ftz, nan_wins, false>(fmin_<ftz, nan_wins, false>(a, b), c);
}
template <bool ftz, bool nan_wins, bool absolute>
PTX_INLINE float fmax3(float a, float b, float c) {
    if (absolute) a = magnitude(a), b = magnitude(b), c = magnitude(c);
    return fmax_<ftz, nan_wins, false>(fmax_<ftz, nan_wins, false>(a, b), c);
}

// ---- .f32x2: two floats in a 64-bit register -----------------------------------------------------------------------------

PTX_INLINE float low_f32(u64 x) { return bits<float>(u32(x)); }
PTX_INLINE float high_f32(u64 x) { return bits<float>(u32(x >> 32)); }
PTX_INLINE u64 pack_f32x2(float low, float high) { return u64(bits<u32>(low)) | u64(bits<u32>(high)) << 32; }
template <Round R, bool ftz>
PTX_INLINE u64 fadd_x2(u64 a, u64 b) {
    return pack_f32x2(fadd<R, ftz, false>(low_f32(a), low_f32(b)), fadd<R, ftz, false>(high_f32(a), high_f32(b)));
}
template <Round R, bool ftz>
PTX_INLINE u64 fsub_x2(u64 a, u64 b) {
    return pack_f32x2(fsub<R, ftz, false>(low_f32(a), low_f32(b)), fsub<R, ftz, false>(high_f32(a), high_f32(b)));
}
template <Round R, bool ftz>
PTX_INLINE u64 fmul_x2(u64 a, u64 b) {
    return pack_f32x2(fmul<R, ftz, false>(low_f32(a), low_f32(b)), fmul<R, ftz, false>(high_f32(a), high_f32(b)));
}
template <Round R, bool ftz>
PTX_INLINE u64 ffma_x2(u64 a, u64 b, u64 c) {
    return pack_f32x2(ffma<R, ftz, false>(low_f32(a), low_f32(b), low_f32(c)),
                      ffma<R, ftz, false>(high_f32(a), high_f32(b), high_f32(c)));
}

// ---- predicates ----------------------------------------------------------------------------------------------------------

enum class Test { finite, infinite, number, notanumber, normal, subnormal };

template <Test test, class F>
PTX_INLINE bool testp(F a) {
    constexpr F least_normal = sizeof(F) == 4 ? F(0x1p-126) : F(0x1p-1022);
    const F m = magnitude(a);
    const bool finite = m - m == 0;
    switch (test) {
        case Test::finite: return finite;
        case Test::infinite: return !finite && !is_nan(a);
        case Test::number: return !is_nan(a);
        case Test::notanumber: return is_nan(a);
        case Test::normal: return finite && (m >= least_normal || m == 0);  // zero counts as normal
        case Test::subnormal: return m < least_normal && m > 0;
    }
    return false;
}

template <Compare op, bool ftz, class F>
PTX_INLINE bool fcompare(F a, F b) {
    return compare<op>(flush_if<ftz>(a), flush_if<ftz>(b));
}

}  // namespace ptx
