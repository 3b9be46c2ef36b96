// cvt: every pair of integer and floating-point types, the packed forms, fp8 and smaller, tf32.
#pragma once

#include "half.hpp"

namespace ptx {

// ---- integer to integer --------------------------------------------------------------------------------------------------

template <class To, bool sat, class From>
PTX_INLINE To cvt_int(From x) {
    if (!sat) return To(x);
    const s128 wide = x, low = smallest<To>(), high = largest<To>();
    return To(wide < low ? low : wide > high ? high : wide);
}

// ---- float to integer: rounds, then clamps -------------------------------------------------------------------------------

template <Round R, class F>
PTX_INLINE F integral(F x) {
    if (sizeof(F) == 4) {
        if (R == Round::rz) return F(__builtin_truncf(float(x)));
        if (R == Round::rm) return F(__builtin_floorf(float(x)));
        if (R == Round::rp) return F(__builtin_ceilf(float(x)));
        return F(__builtin_nearbyintf(float(x)));
    }
    if (R == Round::rz) return F(__builtin_trunc(double(x)));
    if (R == Round::rm) return F(__builtin_floor(double(x)));
    if (R == Round::rp) return F(__builtin_ceil(double(x)));
    return F(__builtin_nearbyint(double(x)));
}
// A NaN gives 0, but 1 << (width - 1) where the source is .f64 or the destination has 64 bits.
template <class To, Round R, bool ftz, class F>
PTX_INLINE To float_to_int(F x) {
    x = integral<R>(flush_if<ftz>(x));
    if (is_nan(x))
        return sizeof(F) == 8 || sizeof(To) == 8 ? To(typename Int<To>::U(1) << (Int<To>::bits - 1)) : To(0);
    constexpr int digits = Int<To>::bits - Int<To>::is_signed;
    const F limit = F(u64(1) << (digits - 1)) * F(2);  // 2^digits: the first value that is too large
    if (x >= limit) return largest<To>();
    if (x < (Int<To>::is_signed ? -limit : F(0))) return smallest<To>();
    return To(x);
}
template <class To, Round R, class H>
PTX_INLINE To half_to_int(u16 x) {
    return float_to_int<To, R, false>(H::widen(x));
}

// ---- integer to float ----------------------------------------------------------------------------------------------------

template <class T>
PTX_INLINE u64 magnitude_int(T x) {
    return x < 0 ? u64(0) - u64(x) : u64(x);
}
template <Round R, class T>
PTX_INLINE float int_to_f32(T x) {
    if (R == Round::rn || sizeof(T) < 3) return float(x);
    const double exact = magnitude_to_odd(magnitude_int(x));
    return bits<float>(encode<R, false>(x < 0 ? -exact : exact, F32));
}
template <Round R, class T>
PTX_INLINE double int_to_f64(T x) {
    if (R == Round::rn || sizeof(T) < 8) return double(x);
    const u64 m = magnitude_int(x);
    const int spare = m >> 53 ? 11 - __builtin_clzll(m) : 0;
    u64 kept = m >> spare;
    const u64 rest = m & ((1ull << spare) - 1);
    kept += rounds_up<R>(x < 0, kept & 1, rest, spare ? 1ull << (spare - 1) : ~0ull);
    const double r = double(kept) * double(1ull << spare);
    return x < 0 ? -r : r;
}
template <Round R, class T>
PTX_INLINE u16 int_to_half(T x, const Format format) {
    const double exact = magnitude_to_odd(magnitude_int(x));
    return u16(encode<R, false>(x < 0 ? -exact : exact, format));
}

// ---- float to float ------------------------------------------------------------------------------------------------------

// A NaN keeps its sign and the upper bits of its payload, as it does on the host.
template <Round R, bool ftz>
PTX_INLINE float f64_to_f32(double x) {
    return flush_if<ftz>(R == Round::rn || is_nan(x) ? float(x) : bits<float>(encode<R, false>(x, F32)));
}
template <bool ftz>
PTX_INLINE double f32_to_f64(float x) {
    return is_nan(x) ? bits<double>(0x7fffffffffffffffull) : double(flush_if<ftz>(x));
}
// cvt.rni.f32.f32 and friends: round to an integral value.
template <Round R, bool ftz, bool sat, class F>
PTX_INLINE F float_to_integral(F x) {
    return saturate_if<sat>(canonical(integral<R>(flush_if<ftz>(x))));
}
template <bool ftz, bool sat, class F>
PTX_INLINE F float_same(F x) {
    return saturate_if<sat>(ftz ? canonical(flush_if<ftz>(x)) : x);
}
template <bool ftz>
PTX_INLINE float f16_to_f32(u16 x) {
    return canonical(Half::widen(x));  // every f16 value is a normal float or zero: nothing to flush
}
template <bool ftz>
PTX_INLINE float bf16_to_f32(u16 x) {
    return ftz ? canonical(flush(Brain::widen(x))) : Brain::widen(x);
}

// To f16 or bf16 from a double that holds the value exactly.
template <Round R, bool satfinite = false, bool relu = false>
PTX_INLINE u16 to_half(double x, const Format format) {
    if (relu && x <= 0) return 0;
    return u16(encode<R, satfinite>(x, format));
}
template <Round R, bool satfinite = false, bool relu = false>
PTX_INLINE u16 f32_to_f16(float x) {
    if (R != Round::rn || satfinite) return to_half<R, satfinite, relu>(double(x), F16);
    return Half::narrow(relu && x <= 0 ? 0.0f : x);
}
template <Round R, bool satfinite = false, bool relu = false>
PTX_INLINE u16 f32_to_bf16(float x) {
    if (R != Round::rn || satfinite) return to_half<R, satfinite, relu>(double(x), BF16);
    return Brain::narrow(relu && x <= 0 ? 0.0f : x);
}
// From .f64 a NaN keeps its sign and the upper bits of its payload.
template <Round R>
PTX_INLINE u16 f64_to_half(double x, const Format format) {
    if (!is_nan(x)) return to_half<R>(x, format);
    const u16 quiet = u16(format.largest + 1) | u16(1 << (format.mantissa_bits - 1));
    return u16(quiet | (bits<u64>(x) & 0xfffffffffffffull) >> (52 - format.mantissa_bits) | (bits<u64>(x) >> 63) << 15);
}
template <class H, bool sat>
PTX_INLINE u16 canonical_half(u16 x) {
    return is_nan_half<H>(x) ? (sat ? u16(0) : NAN_F16) : limit_half<H, sat ? Limit::sat : Limit::none>(x);
}
template <class H, bool sat>
PTX_INLINE u16 saturate_half(u16 x) {
    return sat ? limit_half<H, Limit::sat>(x) : x;
}
template <Round R, class H>
PTX_INLINE u16 half_to_integral(u16 x) {
    return H::narrow(integral<R>(H::widen(x)));
}

// tf32 lives in a 32-bit register with its 13 last bits zero. A NaN: .rna only clears these bits, the others give 0x7fffe000.
template <Round R, bool satfinite, bool relu>
PTX_INLINE u32 f32_to_tf32(float x) {
    if (R == Round::rna && !satfinite && is_nan(x)) return bits<u32>(x) & 0xffffe000u;
    if (relu && x <= 0) return 0;
    return encode<R, satfinite>(double(x), TF32) << 13;
}

// ---- fp8, fp6, fp4: the first source goes to the upper part --------------------------------------------------------------

template <bool relu>
PTX_INLINE u32 to_small(double x, const Format format) {
    if (relu && x <= 0) return 0;
    return encode<Round::rn, true>(x, format);
}
template <bool relu>
PTX_INLINE u16 f32_to_small_x2(float a, float b, const Format format) {
    return u16(to_small<relu>(a, format) << 8 | to_small<relu>(b, format));
}
template <class H, bool relu>
PTX_INLINE u16 half_to_small_x2(u32 x, const Format format) {
    return f32_to_small_x2<relu>(H::widen(high16(x)), H::widen(low16(x)), format);
}
template <bool relu>
PTX_INLINE u8 f32_to_e2m1x2(float a, float b) {
    return u8(to_small<relu>(a, E2M1) << 4 | to_small<relu>(b, E2M1));
}
template <bool relu>
PTX_INLINE u16 relu_half(u16 x) {
    return relu ? limit_half<Half, Limit::relu>(x) : x;
}
template <bool relu>
PTX_INLINE u16 small_to_f16(u32 code, const Format format) {
    return relu_half<relu>(Half::narrow(float(decode(code, format))));
}
template <bool relu>
PTX_INLINE u32 small_x2_to_f16x2(u16 x, const Format format) {
    return pack16(small_to_f16<relu>(x & 0xff, format), small_to_f16<relu>(x >> 8, format));
}
template <bool relu>
PTX_INLINE u32 e2m1x2_to_f16x2(u8 x) {
    return pack16(small_to_f16<relu>(x & 15, E2M1), small_to_f16<relu>(x >> 4, E2M1));
}

// ue8m0 is a bare power of two, 2^(code - 127); 0xff is the NaN. Signs are dropped; values below 2^-127 become code 0.
template <Round R, bool satfinite>
PTX_INLINE u32 to_ue8m0(float x) {
    const u32 b = bits<u32>(x) & 0x7fffffffu;
    if (b > 0x7f800000u) return 0xff;
    if (b == 0x7f800000u) return satfinite ? 0xfe : 0xff;
    u32 code = b >> 23;
    const u32 rest = b & 0x7fffffu;
    if (R == Round::rp) {
        if (code == 0) return rest > 0x400000u ? 1 : 0;  // 2^-127 is the subnormal 0x400000
        code += rest != 0;
    }
    return code > 0xfe ? (satfinite ? 0xfe : 0xff) : code;
}
template <Round R, bool satfinite>
PTX_INLINE u16 f32_to_ue8m0x2(float a, float b) {
    return u16(to_ue8m0<R, satfinite>(a) << 8 | to_ue8m0<R, satfinite>(b));
}
template <Round R, bool satfinite>
PTX_INLINE u16 bf16x2_to_ue8m0x2(u32 x) {
    return f32_to_ue8m0x2<R, satfinite>(Brain::widen(high16(x)), Brain::widen(low16(x)));
}
PTX_INLINE u16 ue8m0_to_bf16(u32 code) { return code == 0xff ? NAN_BF16 : code == 0 ? u16(0x0040) : u16(code << 7); }
PTX_INLINE u32 ue8m0x2_to_bf16x2(u16 x) { return pack16(ue8m0_to_bf16(x & 0xff), ue8m0_to_bf16(x >> 8)); }

// cvt.pack.sat: a and b saturated to 16 bits, or to 8 (4, 2) bits below which c moves up.
template <u32 width, bool is_signed>
PTX_INLINE u32 saturate_bits(s32 x) {
    const s32 high = is_signed ? s32((1u << (width - 1)) - 1) : s32((1u << width) - 1);
    const s32 low = is_signed ? -high - 1 : 0;
    return u32(x < low ? low : x > high ? high : x) & ((1u << width) - 1);
}
template <u32 width, bool is_signed>
PTX_INLINE u32 cvt_pack(s32 a, s32 b) {
    return saturate_bits<width, is_signed>(a) << width | saturate_bits<width, is_signed>(b);
}
template <u32 width, bool is_signed>
PTX_INLINE u32 cvt_pack(s32 a, s32 b, u32 c) {
    return c << (2 * width) | cvt_pack<width, is_signed>(a, b);
}

}  // namespace ptx
