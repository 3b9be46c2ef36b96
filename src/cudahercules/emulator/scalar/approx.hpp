// The .approx functions. Hardware's bits are not documented, only bounds; these are at least as accurate as the bounds that
// the comments quote from the PTX ISA (table lookups there, the C library here). Code that leans on the error of the
// hardware's version can therefore pass here and be a little worse on a GPU.
#pragma once

#include "half.hpp"

namespace ptx {

// The hardware takes the angle in turns: x times 1/(2 pi), rounded toward zero to fp32, then a table over one turn. Far from
// zero that product's rounding is the error (0.005 at 57344), and it is the same here.
PTX_INLINE double in_turns(float x) {
    const double product = double(x) * double(0.15915494309189535f);  // exact
    const double turns = bits<double>(bits<u64>(product) & ~u64(0x1fffffff));
    return (turns - __builtin_nearbyint(turns)) * 6.283185307179586;
}
template <bool ftz>
PTX_INLINE float sin_approx(float x) {  // absolute error 2^-20.5 in [-pi, pi]
    x = flush_if<ftz>(x);
    return canonical(x == 0 ? x : flush_if<ftz>(float(__builtin_sin(in_turns(x)))));
}
template <bool ftz>
PTX_INLINE float cos_approx(float x) {  // absolute error 2^-20.5 in [-pi, pi]
    return canonical(flush_if<ftz>(float(__builtin_cos(in_turns(flush_if<ftz>(x))))));
}
template <bool ftz>
PTX_INLINE float lg2_approx(float x) {  // absolute error 2^-22 for arguments in [0.5, 2], relative 2^-22 elsewhere
    return canonical(flush_if<ftz>(__builtin_log2f(flush_if<ftz>(x))));
}
template <bool ftz>
PTX_INLINE float ex2_approx(float x) {  // 2 ulp
    return canonical(flush_if<ftz>(__builtin_exp2f(flush_if<ftz>(x))));
}
PTX_INLINE float tanh_approx(float x) {  // relative error 2^-11
    return canonical(__builtin_tanhf(x));
}
template <bool ftz>
PTX_INLINE float rcp_approx(float x) {  // 1 ulp
    return frcp<Round::rn, ftz>(x);
}
template <bool ftz>
PTX_INLINE float sqrt_approx(float x) {  // relative error 2^-23
    return flush_if<ftz>(fsqrt<Round::rn, ftz>(x));
}
template <bool ftz>
PTX_INLINE float rsqrt_approx(float x) {  // relative error 2^-22.9
    x = flush_if<ftz>(x);
    if (x == 0) return 1.0f / x;
    return canonical(float(1.0 / root(double(x))));
}
// 2 ulp for divisors in [2^-126, 2^126]. Beyond 2^126 the reciprocal is flushed: 0 for a finite a, NaN for an infinite one.
template <bool ftz>
PTX_INLINE float div_approx(float a, float b) {
    const float m = magnitude(b);
    if (m > 0x1p126f && m < __builtin_inff()) return canonical(flush_if<ftz>(a) * (sign_of(b) ? -0.0f : 0.0f));
    return fdiv<Round::rn, ftz>(a, b);
}
template <bool ftz>
PTX_INLINE float div_full(float a, float b) {  // 2 ulp over the full range
    return fdiv<Round::rn, ftz>(a, b);
}

// fp64: only the upper word of the argument is used and of the result is set; 20 bits. ptxas refines it by Newton steps.
PTX_INLINE double upper_word(double x) { return bits<double>(bits<u64>(x) & 0xffffffff00000000ull); }
PTX_INLINE double flush_f64(double x) { return magnitude(x) < 0x1p-1022 ? fcopysign(x, 0.0) : x; }
PTX_INLINE double nan_upper() { return bits<double>(0x7fffffff00000000ull); }
PTX_INLINE double rcp_approx_ftz(double x) {
    x = upper_word(x);  // of a NaN that infinity may be
    if (is_nan(x)) return nan_upper();
    return upper_word(flush_f64(1.0 / flush_f64(x)));
}
PTX_INLINE double rsqrt_approx_ftz(double x) {
    const double flushed = flush_f64(upper_word(x));
    if (is_nan(flushed) || flushed < 0) return nan_upper();
    return upper_word(flushed == 0 ? 1.0 / flushed : 1.0 / root(flushed));
}
PTX_INLINE double rsqrt_approx(double x) {  // relative error 2^-20 promised; code generated from rsqrt() wants 2 ulp
    return x == 0 ? 1.0 / x : 1.0 / root(x);
}

template <class H, bool ftz>
PTX_INLINE u16 hex2(u16 x) {  // f16: 2^-9.9 relative; bf16: 2^-7
    return flush_half<H, ftz>(H::narrow(__builtin_exp2f(H::widen(flush_half<H, ftz>(x)))));
}
template <class H>
PTX_INLINE u16 htanh(u16 x) {  // f16: 2^-10.987 absolute; bf16: 2^-8 relative
    return H::narrow(__builtin_tanhf(H::widen(x)));
}

}  // namespace ptx
