// f16, bf16 and their packed pairs. Every result is rounded once:
//   * add, sub, mul: a float holds 24 >= 2 * 11 + 2 bits, so rounding twice is harmless (but for subnormal bf16 products);
//   * fma: a float fma, rounded again, unless it fell on the middle between two results or is subnormal. Then the sum is formed
//     in double (f16: where that is inexact, one term lies below 2^-42 of the other and cannot move it across a boundary; bf16:
//     with a sticky last bit) and narrowed to float with a sticky last bit.
#pragma once

#include "encode.hpp"
#include "float.hpp"

namespace ptx {

struct Half {  // .f16
    static PTX_INLINE float widen(u16 x) { return float(__builtin_bit_cast(_Float16, x)); }
    static PTX_INLINE u16 narrow(float x) { return is_nan(x) ? NAN_F16 : __builtin_bit_cast(u16, _Float16(x)); }
    static PTX_INLINE bool is_subnormal(u16 x) { return (x & 0x7c00) == 0; }
    static PTX_INLINE u16 sum(u16 a, u16 b) { return narrow(widen(a) + widen(b)); }
    static PTX_INLINE u16 product(u16 a, u16 b) { return narrow(widen(a) * widen(b)); }
    static PTX_INLINE u16 fused(u16 a, u16 b, u16 c) {
        const float r = __builtin_fmaf(widen(a), widen(b), widen(c));
        const float m = magnitude(r);
        const bool between = (bits<u32>(r) & 0x1fff) == 0x1000;  // rounded to the middle of two f16 numbers
        if (__builtin_expect((!between && m >= 0x1p-14f) || m == 0 || m != m, 1)) return narrow(r);
        return narrow(narrow_odd(double(widen(a)) * widen(b) + widen(c)));
    }
    static constexpr u16 one = 0x3c00, infinity = 0x7c00;
};

PTX_INLINE u16 bf16_from_f32(float x) {
    const u32 b = bits<u32>(x);
    return is_nan(x) ? NAN_BF16 : u16((b + 0x7fff + (b >> 16 & 1)) >> 16);
}
struct Brain {  // .bf16
    static PTX_INLINE float widen(u16 x) { return bits<float>(u32(x) << 16); }
    static PTX_INLINE u16 narrow(float x) { return bf16_from_f32(x); }
    static PTX_INLINE bool is_subnormal(u16 x) { return (x & 0x7f80) == 0; }
    static PTX_INLINE u16 sum(u16 a, u16 b) { return narrow(widen(a) + widen(b)); }  // a subnormal float sum is exact
    static PTX_INLINE u16 product(u16 a, u16 b) {
        const float p = widen(a) * widen(b);  // 16 bits: exact in a float unless it is subnormal
        return magnitude(p) >= 0x1p-100f || p != p ? narrow(p) : narrow(narrow_odd(double(widen(a)) * widen(b)));
    }
    static PTX_INLINE u16 fused(u16 a, u16 b, u16 c) {
        const float r = __builtin_fmaf(widen(a), widen(b), widen(c));
        const float m = magnitude(r);
        const bool between = (bits<u32>(r) & 0xffff) == 0x8000;  // rounded to the middle of two bf16 numbers
        if (__builtin_expect((!between && m >= 0x1p-126f) || m == 0 || m != m, 1)) return narrow(r);
        return narrow(narrow_odd(add_odd(double(widen(a)) * widen(b), double(widen(c)))));
    }
    static constexpr u16 one = 0x3f80, infinity = 0x7f80;
};

template <class H>
PTX_INLINE bool is_nan_half(u16 x) {
    return (x & 0x7fff) > H::infinity;
}
template <class H, bool ftz>
PTX_INLINE u16 flush_half(u16 x) {
    return ftz && H::is_subnormal(x) ? u16(x & 0x8000) : x;
}
enum class Limit { none, sat, relu };  // .sat: to [0, 1], NaN to +0; .relu: negative to +0, NaN canonical
template <class H, Limit limit>
PTX_INLINE u16 limit_half(u16 x) {
    if (limit == Limit::none) return x;
    if (is_nan_half<H>(x)) return limit == Limit::sat ? u16(0) : NAN_F16;
    if (x & 0x8000) return 0;
    return limit == Limit::sat && x > H::one ? H::one : x;
}

// A result of exactly the smallest normal f16 is flushed if it was smaller before it was rounded (see is_tiny).
template <bool ftz>
PTX_INLINE u16 flush_product(u16 r, double exact) {
    if (ftz && (r & 0x7fff) == 0x0400 && is_tiny<Round::rn>(exact, 0x1p-14, 0x1p-26)) return u16(r & 0x8000);
    return flush_half<Half, ftz>(r);
}

template <class H, bool ftz, Limit limit>
PTX_INLINE u16 hadd(u16 a, u16 b) {
    return limit_half<H, limit>(flush_half<H, ftz>(H::sum(flush_half<H, ftz>(a), flush_half<H, ftz>(b))));
}
template <class H, bool ftz, Limit limit>
PTX_INLINE u16 hsub(u16 a, u16 b) {
    return hadd<H, ftz, limit>(a, u16(b ^ 0x8000));
}
template <class H, bool ftz, Limit limit>
PTX_INLINE u16 hmul(u16 a, u16 b) {
    a = flush_half<H, ftz>(a), b = flush_half<H, ftz>(b);
    return limit_half<H, limit>(flush_product<ftz>(H::product(a, b), double(H::widen(a)) * H::widen(b)));
}
template <class H, bool ftz, Limit limit>
PTX_INLINE u16 hfma(u16 a, u16 b, u16 c) {
    a = flush_half<H, ftz>(a), b = flush_half<H, ftz>(b), c = flush_half<H, ftz>(c);
    const double exact = ftz ? double(H::widen(a)) * H::widen(b) + H::widen(c) : 0;  // .ftz is for f16 only
    return limit_half<H, limit>(flush_product<ftz>(H::fused(a, b, c), exact));
}
template <class H, bool ftz>
PTX_INLINE u16 hneg(u16 a) {
    return is_nan_half<H>(a) ? NAN_F16 : flush_half<H, ftz>(u16(a ^ 0x8000));
}
template <class H, bool ftz>
PTX_INLINE u16 habs(u16 a) {
    return is_nan_half<H>(a) ? NAN_F16 : flush_half<H, ftz>(u16(a & 0x7fff));
}
// Sign-magnitude order of finite values and infinities: -0 below +0.
PTX_INLINE s32 half_order(u16 x) { return x & 0x8000 ? -s32(x & 0x7fff) - 1 : s32(x); }
template <class H, bool ftz, bool nan_wins, bool xorsign, bool take_max>
PTX_INLINE u16 hminmax(u16 a, u16 b) {
    a = flush_half<H, ftz>(a);
    b = flush_half<H, ftz>(b);
    const u16 sign = (a ^ b) & 0x8000;
    if (xorsign) a &= 0x7fff, b &= 0x7fff;
    u16 r;
    if (is_nan_half<H>(a) || is_nan_half<H>(b)) {
        if (nan_wins || (is_nan_half<H>(a) && is_nan_half<H>(b))) return NAN_F16;
        r = is_nan_half<H>(a) ? b : a;
    } else {
        r = (half_order(a) < half_order(b)) != take_max ? a : b;
    }
    return xorsign ? u16(r | sign) : r;
}
template <class H, bool ftz, bool nan_wins, bool xorsign>
PTX_INLINE u16 hmin(u16 a, u16 b) {
    return hminmax<H, ftz, nan_wins, xorsign, false>(a, b);
}
template <class H, bool ftz, bool nan_wins, bool xorsign>
PTX_INLINE u16 hmax(u16 a, u16 b) {
    return hminmax<H, ftz, nan_wins, xorsign, true>(a, b);
}
template <class H, Compare op, bool ftz>
PTX_INLINE bool hcompare(u16 a, u16 b) {
    return compare<op>(H::widen(flush_half<H, ftz>(a)), H::widen(flush_half<H, ftz>(b)));
}

template <class H, Compare op, bool ftz>
PTX_INLINE u32 hset_x2(u32 a, u32 b) {
    return each_half(a, b, [](u16 x, u16 y) { return hcompare<H, op, ftz>(x, y) ? H::one : u16(0); });
}

template <class H, Compare op, bool ftz>
PTX_INLINE u32 hset_mask(u32 a, u32 b) {
    return each_half(a, b, [](u16 x, u16 y) { return hcompare<H, op, ftz>(x, y) ? u16(0xffff) : u16(0); });
}

// Mixed precision (sm_100): a half operand in fp32 arithmetic.
template <class H>
PTX_INLINE float widen(u16 x) {
    return H::widen(x);
}

}  // namespace ptx
