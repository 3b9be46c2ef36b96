// Rounding of exact values into small binary formats (bf16, fp8, fp6, fp4, tf32, and f16 and f32 in directed modes), and back.
#pragma once

#include "bits.hpp"

namespace ptx {

struct Format {
    int exponent_bits;
    int mantissa_bits;
    u32 largest;   // code of the largest finite value; with an infinity, largest + 1 is its code
    u32 nan;       // canonical NaN; 0: the format has none
    bool infinity;
};

constexpr Format F32 = {8, 23, 0x7f7fffff, 0x7fffffff, true};
constexpr Format TF32 = {8, 10, 0x3fbff, 0x3ffff, true};  // 19 bits: shift left by 13 for the register
constexpr Format BF16 = {8, 7, 0x7f7f, 0x7fff, true};
constexpr Format F16 = {5, 10, 0x7bff, 0x7fff, true};
constexpr Format E5M2 = {5, 2, 0x7b, 0x7f, true};
constexpr Format E4M3 = {4, 3, 0x7e, 0x7f, false};
constexpr Format E3M2 = {3, 2, 0x1f, 0, false};
constexpr Format E2M3 = {2, 3, 0x1f, 0, false};
constexpr Format E2M1 = {2, 1, 0x7, 0, false};

template <Round R>
PTX_INLINE bool rounds_up(bool negative, bool odd, u64 rest, u64 half) {
    switch (R) {
        case Round::rn: return rest > half || (rest == half && odd);
        case Round::rna: return rest >= half;
        case Round::rz: return false;
        case Round::rm: return negative && rest != 0;
        case Round::rp: return !negative && rest != 0;
    }
    return false;
}

// The code of x in `format`, sign at its top. x may carry a sticky last bit (see to_odd): 53 bits are more than any format's.
// satfinite: what overflows, infinities too, becomes the largest finite value; a NaN stays one, or that value if there is none.
template <Round R, bool satfinite>
inline u32 encode(double x, const Format format) {
    const u64 raw = bits<u64>(x);
    const bool negative = raw >> 63;
    const int width = format.exponent_bits + format.mantissa_bits;
    const u32 sign = u32(negative) << width;
    if (is_nan(x)) return format.nan ? format.nan : format.largest;
    const int exponent = int(raw >> 52 & 0x7ff);
    if (exponent == 0x7ff) return sign | (satfinite || !format.infinity ? format.largest : format.largest + 1);
    const u64 significand = (raw & 0xfffffffffffffull) | (exponent ? 1ull << 52 : 0);
    if (significand == 0) return sign;
    const int unbiased = (exponent ? exponent : 1) - 1023;
    const int least = 2 - (1 << (format.exponent_bits - 1));  // exponent of the smallest normal number
    const bool subnormal = unbiased < least;
    int shift = 52 - format.mantissa_bits + (subnormal ? least - unbiased : 0);
    if (shift > 60) shift = 60;  // all of it is rest, below one half
    u64 kept = significand >> shift;
    const u64 rest = significand & ((1ull << shift) - 1);
    kept += rounds_up<R>(negative, kept & 1, rest, 1ull << (shift - 1));
    u64 code = kept;
    if (!subnormal) code += u64(unbiased - least) << format.mantissa_bits;  // the hidden bit counts as the first exponent
    if (code > format.largest) {
        const bool stays_finite = R == Round::rz || (R == Round::rm && !negative) || (R == Round::rp && negative);
        return sign | (satfinite || stays_finite || !format.infinity ? format.largest : format.largest + 1);
    }
    return sign | u32(code);
}

inline double decode(u32 code, const Format format) {
    const int width = format.exponent_bits + format.mantissa_bits;
    const bool negative = code >> width & 1;
    const u32 low = code & ((1u << width) - 1);
    if (low > format.largest) {
        if (format.infinity && low == format.largest + 1) return negative ? -__builtin_inf() : __builtin_inf();
        return nan_f64();
    }
    const int exponent = int(low >> format.mantissa_bits);
    const u64 mantissa = low & ((1u << format.mantissa_bits) - 1);
    const int least = 2 - (1 << (format.exponent_bits - 1));
    const u64 significand = mantissa | (exponent ? 1ull << format.mantissa_bits : 0);
    const int scale = (exponent ? exponent - 1 : 0) + least - format.mantissa_bits;
    const double value = double(significand) * bits<double>(u64(scale + 1023) << 52);
    return negative ? -value : value;
}

// The nearest double whose last bit says "and something more": rounding it again to at most 51 bits rounds once, exactly.
PTX_INLINE double to_odd(double nearest, double error) {
    const u64 raw = bits<u64>(nearest);
    if (error == 0 || (raw & 1) || is_nan(error)) return nearest;
    const bool away = (error > 0) == !(raw >> 63);  // the exact value is larger in magnitude
    return bits<double>(away ? raw + 1 : raw - 1);
}
PTX_INLINE float narrow_odd(double x) {
    const float nearest = float(x);
    const double error = x - nearest;
    const u32 raw = bits<u32>(nearest);
    if (error == 0 || (raw & 1) || is_nan(error)) return nearest;
    return bits<float>((error > 0) == !(raw >> 31) ? raw + 1 : raw - 1);
}
PTX_INLINE double add_odd(double a, double b) {
    const double s = a + b;
    const double t = s - a;
    return to_odd(s, (a - (s - t)) + (b - t));
}
PTX_INLINE double magnitude_to_odd(u64 m) {
    if (m >> 53 == 0) return double(m);
    const int spare = 11 - __builtin_clzll(m);
    const u64 kept = m >> spare | ((m & ((1ull << spare) - 1)) != 0);
    return double(kept) * double(1ull << spare);
}

}  // namespace ptx
