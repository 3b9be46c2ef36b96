// Integer instructions of PTX: arithmetic, extended precision, shifts, bit fields, byte permutes, dot products.
#pragma once

#include "bits.hpp"

namespace ptx {

// For an integer type: U its unsigned twin, M the unsigned type in which products do not overflow into int, W the double width.
template <class T>
struct Int;
template <> struct Int<u8> { typedef u8 U; typedef u32 M; typedef u16 W; enum { bits = 8, is_signed = 0 }; };
template <> struct Int<s8> { typedef u8 U; typedef u32 M; typedef s16 W; enum { bits = 8, is_signed = 1 }; };
template <> struct Int<u16> { typedef u16 U; typedef u32 M; typedef u32 W; enum { bits = 16, is_signed = 0 }; };
template <> struct Int<s16> { typedef u16 U; typedef u32 M; typedef s32 W; enum { bits = 16, is_signed = 1 }; };
template <> struct Int<u32> { typedef u32 U; typedef u32 M; typedef u64 W; enum { bits = 32, is_signed = 0 }; };
template <> struct Int<s32> { typedef u32 U; typedef u32 M; typedef s64 W; enum { bits = 32, is_signed = 1 }; };
template <> struct Int<u64> { typedef u64 U; typedef u64 M; typedef u128 W; enum { bits = 64, is_signed = 0 }; };
template <> struct Int<s64> { typedef u64 U; typedef u64 M; typedef s128 W; enum { bits = 64, is_signed = 1 }; };

template <class T>
constexpr T smallest() {
    return Int<T>::is_signed ? T(typename Int<T>::U(1) << (Int<T>::bits - 1)) : T(0);
}
template <class T>
constexpr T largest() {
    return T(~smallest<T>());
}

// ---- arithmetic (wraps around) -------------------------------------------------------------------------------------------

template <class T>
PTX_INLINE T add(T a, T b) {
    return T(typename Int<T>::M(a) + typename Int<T>::M(b));
}
template <class T>
PTX_INLINE T sub(T a, T b) {
    return T(typename Int<T>::M(a) - typename Int<T>::M(b));
}
PTX_INLINE s32 clamp_s32(s64 x) { return x < smallest<s32>() ? smallest<s32>() : x > largest<s32>() ? largest<s32>() : s32(x); }
PTX_INLINE s32 add_sat(s32 a, s32 b) { return clamp_s32(s64(a) + b); }
PTX_INLINE s32 sub_sat(s32 a, s32 b) { return clamp_s32(s64(a) - b); }

template <class T>
PTX_INLINE T mul_lo(T a, T b) {
    return T(typename Int<T>::M(a) * typename Int<T>::M(b));
}
template <class T>
PTX_INLINE typename Int<T>::W mul_wide(T a, T b) {
    typedef typename Int<T>::W W;
    return W(W(a) * W(b));
}
template <class T>
PTX_INLINE T mul_hi(T a, T b) {
    return T(mul_wide(a, b) >> Int<T>::bits);
}
template <class T>
PTX_INLINE T mad_lo(T a, T b, T c) {
    return add(mul_lo(a, b), c);
}
template <class T>
PTX_INLINE T mad_hi(T a, T b, T c) {
    return add(mul_hi(a, b), c);
}
template <class T>
PTX_INLINE typename Int<T>::W mad_wide(T a, T b, typename Int<T>::W c) {
    return add<typename Int<T>::W>(mul_wide(a, b), c);
}
PTX_INLINE s32 mad_hi_sat(s32 a, s32 b, s32 c) { return clamp_s32(s64(mul_hi(a, b)) + c); }

// mul24: the operands are the low 24 bits, sign-extended for .s32; .lo and .hi take bits 31..0 and 47..16 of the product.
template <class T>
PTX_INLINE s64 product24(T a, T b) {
    const s64 x = Int<T>::is_signed ? s64(s32(u32(a) << 8) >> 8) : s64(u32(a) & 0xffffffu);
    const s64 y = Int<T>::is_signed ? s64(s32(u32(b) << 8) >> 8) : s64(u32(b) & 0xffffffu);
    return x * y;
}
template <class T>
PTX_INLINE T mul24_lo(T a, T b) {
    return T(product24(a, b));
}
template <class T>
PTX_INLINE T mul24_hi(T a, T b) {
    return T(product24(a, b) >> 16);
}
template <class T>
PTX_INLINE T mad24_lo(T a, T b, T c) {
    return add(mul24_lo(a, b), c);
}
template <class T>
PTX_INLINE T mad24_hi(T a, T b, T c) {
    return add(mul24_hi(a, b), c);
}
PTX_INLINE s32 mad24_hi_sat(s32 a, s32 b, s32 c) { return clamp_s32(s64(mul24_hi(a, b)) + c); }

// Division by zero gives a machine-specific value in PTX and must not trap here: all ones, as an H200 gives.
template <class T>
PTX_INLINE T div_int(T a, T b) {
    if (b == 0) return T(~T(0));
    if (Int<T>::is_signed && b == T(-1)) return sub(T(0), a);  // INT_MIN / -1 wraps
    return T(a / b);
}
template <class T>
PTX_INLINE T rem_int(T a, T b) {
    if (b == 0) return T(~T(0));
    if (Int<T>::is_signed && b == T(-1)) return 0;
    return T(a % b);
}

template <class T>
PTX_INLINE T neg_int(T a) {
    return sub(T(0), a);
}
template <class T>
PTX_INLINE T abs_int(T a) {
    return a < 0 ? neg_int(a) : a;  // the smallest value stays as it is
}
template <class T>
PTX_INLINE T min_int(T a, T b) {
    return a < b ? a : b;
}
template <class T>
PTX_INLINE T max_int(T a, T b) {
    return a < b ? b : a;
}
template <class T>
PTX_INLINE T relu_int(T a) {
    return a < 0 ? T(0) : a;
}
template <class T>
PTX_INLINE T sad(T a, T b, T c) {
    return add(c, a < b ? sub(b, a) : sub(a, b));
}

// Two 16-bit integers in a register.
PTX_INLINE u32 add_x2(u32 a, u32 b) { return each_half(a, b, add<u16>); }
template <class T>
PTX_INLINE u32 min_x2(u32 a, u32 b) {
    return each_half(a, b, [](u16 x, u16 y) { return u16(min_int(T(x), T(y))); });
}
template <class T>
PTX_INLINE u32 max_x2(u32 a, u32 b) {
    return each_half(a, b, [](u16 x, u16 y) { return u16(max_int(T(x), T(y))); });
}
PTX_INLINE u32 relu_s16x2(u32 a) { return each_half(a, [](u16 x) { return u16(relu_int(s16(x))); }); }

// ---- extended precision --------------------------------------------------------------------------------------------------
// cc is the adder's carry-out. A subtraction is a + ~b + 1, so after it cc means "no borrow": nvcc's 128-bit division reads it
// with addc right after sub.cc and relies on that (the manual's "borrow" tells the same story for pure chains of subtractions).

template <class T>
PTX_INLINE T add_cc(T a, T b, bool& cc) {
    typedef typename Int<T>::U U;
    U r;
    cc = __builtin_add_overflow(U(a), U(b), &r);
    return T(r);
}
template <class T>
PTX_INLINE T addc(T a, T b, bool cc) {
    return add(add(a, b), T(cc));
}
template <class T>
PTX_INLINE T addc_cc(T a, T b, bool& cc) {
    typedef typename Int<T>::U U;
    U r;
    const bool first = __builtin_add_overflow(U(a), U(b), &r);
    const bool second = __builtin_add_overflow(r, U(cc), &r);
    cc = first | second;
    return T(r);
}
template <class T>
PTX_INLINE T sub_cc(T a, T b, bool& cc) {
    cc = typename Int<T>::U(a) >= typename Int<T>::U(b);
    return sub(a, b);
}
template <class T>
PTX_INLINE T subc(T a, T b, bool cc) {
    return addc(a, T(~b), cc);
}
template <class T>
PTX_INLINE T subc_cc(T a, T b, bool& cc) {
    return addc_cc(a, T(~b), cc);
}

// ---- logic and shifts ----------------------------------------------------------------------------------------------------

// The truth table's index is a<<2 | b<<1 | c, so table = F(0xF0, 0xCC, 0xAA). The table is an immediate: everything folds.
PTX_INLINE u32 lop3(u32 a, u32 b, u32 c, u32 table) {
    switch (table & 0xff) {  // the forms that compilers emit most
        case 0x80: return a & b & c;
        case 0xfe: return a | b | c;
        case 0x96: return a ^ b ^ c;
        case 0xc0: return a & b;
        case 0xfc: return a | b;
        case 0x3c: return a ^ b;
        case 0xea: return (a & b) | c;
        case 0xf8: return a | (b & c);
        case 0xca: return (a & b) | (~a & c);
        case 0xe8: return (a & b) | (a & c) | (b & c);
        case 0x6a: return (a & b) ^ c;
        case 0x78: return a ^ (b & c);
        default: break;
    }
    u32 result = 0;
    for (u32 index = 0; index < 8; ++index)
        if (table >> index & 1) result |= (index & 4 ? a : ~a) & (index & 2 ? b : ~b) & (index & 1 ? c : ~c);
    return result;
}

template <class T>
PTX_INLINE T shl(T a, u32 n) {
    return n >= u32(Int<T>::bits) ? T(0) : T(typename Int<T>::M(a) << n);
}
template <class T>
PTX_INLINE T shr(T a, u32 n) {
    if (Int<T>::is_signed) return T(a >> (n >= u32(Int<T>::bits) ? u32(Int<T>::bits) - 1 : n));
    return n >= u32(Int<T>::bits) ? T(0) : T(a >> n);
}

// Funnel shifts of b:a; .clamp limits the amount to 32, .wrap takes it modulo 32.
PTX_INLINE u32 funnel(u32 a, u32 b, u32 down) { return u32((u64(b) << 32 | a) >> down); }
PTX_INLINE u32 shf_l_clamp(u32 a, u32 b, u32 n) { return n >= 32 ? a : funnel(a, b, 32 - n); }
PTX_INLINE u32 shf_r_clamp(u32 a, u32 b, u32 n) { return funnel(a, b, n >= 32 ? 32 : n); }
PTX_INLINE u32 shf_l_wrap(u32 a, u32 b, u32 n) { return funnel(a, b, 32 - (n & 31)); }
PTX_INLINE u32 shf_r_wrap(u32 a, u32 b, u32 n) { return funnel(a, b, n & 31); }

// ---- bit fields and counts -----------------------------------------------------------------------------------------------

template <class U>
PTX_INLINE U low_ones(u32 count) {
    return count >= u32(Int<U>::bits) ? U(~U(0)) : U((U(1) << count) - 1);
}

// The 32-bit forms use the low byte of position and length. PTX says so for 64 bits too, but there (a sequence of other
// instructions on real GPUs) an H200 uses all 32 bits.
template <class T>
PTX_INLINE T bfe(T a, u32 position, u32 length) {
    typedef typename Int<T>::U U;
    const u32 width = Int<T>::bits;
    if (width == 32) position &= 0xff, length &= 0xff;
    const U mask = low_ones<U>(length);
    const U field = shr<U>(U(a), position) & mask;
    if (!Int<T>::is_signed || length == 0) return T(field);
    const u64 end = u64(position) + length;
    const u32 top = end < width ? u32(end) - 1 : width - 1;
    if (!(U(a) >> top & 1)) return T(field);
    const u32 taken = top < position ? 0 : top - position + 1;  // bits of the field that exist; the rest is sign
    return T(field | U(~low_ones<U>(taken)));
}
template <class U>
PTX_INLINE U bfi(U field, U base, u32 position, u32 length) {
    if (Int<U>::bits == 32) position &= 0xff, length &= 0xff;
    const U mask = shl<U>(low_ones<U>(length), position);
    return U((base & U(~mask)) | (shl<U>(field, position) & mask));
}

PTX_INLINE u32 clz(u32 a) { return a ? u32(__builtin_clz(a)) : 32; }
PTX_INLINE u32 clz(u64 a) { return a ? u32(__builtin_clzll(a)) : 64; }
PTX_INLINE u32 popc(u32 a) { return u32(__builtin_popcount(a)); }
PTX_INLINE u32 popc(u64 a) { return u32(__builtin_popcountll(a)); }

template <class T>
PTX_INLINE u32 bfind(T a) {
    typedef typename Int<T>::U U;
    const U x = Int<T>::is_signed && a < 0 ? U(~U(a)) : U(a);
    return x == 0 ? 0xffffffffu : u32(Int<T>::bits) - 1 - clz(x);
}
template <class T>
PTX_INLINE u32 bfind_shiftamt(T a) {
    const u32 found = bfind(a);
    return found == 0xffffffffu ? found : u32(Int<T>::bits) - 1 - found;
}

PTX_INLINE u32 brev(u32 x) {
    x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
    x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
    x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
    return __builtin_bswap32(x);
}
PTX_INLINE u64 brev(u64 x) { return u64(brev(u32(x))) << 32 | brev(u32(x >> 32)); }

// The n-th set bit from `base` (offset > 0 upwards, < 0 downwards, 0: is `base` itself set?); 0xffffffff if there is none.
PTX_INLINE u32 fns(u32 mask, u32 base, s32 offset) {
    if (offset == 0) return base < 32 && (mask >> base & 1) ? base : 0xffffffffu;
    const s32 step = offset > 0 ? 1 : -1;
    s64 left = offset > 0 ? s64(offset) - 1 : -s64(offset) - 1;
    for (s64 position = base; position >= 0 && position < 32; position += step)
        if (mask >> position & 1) {
            if (left == 0) return u32(position);
            --left;
        }
    return 0xffffffffu;
}

template <bool clamp>
PTX_INLINE u32 szext_u32(u32 a, u32 n) {
    if (clamp && n >= 32) return a;
    return a & low_ones<u32>(n & 31);
}
template <bool clamp>
PTX_INLINE s32 szext_s32(s32 a, u32 n) {
    if (clamp && n >= 32) return a;
    const u32 kept = n & 31;
    if (kept == 0) return 0;
    return s32(u32(a) << (32 - kept)) >> (32 - kept);
}

template <bool clamp>
PTX_INLINE u32 bmsk(u32 position, u32 width) {
    if (clamp) {
        if (position >= 32) return 0;
        if (width >= 32) width = 32;
    } else {
        position &= 31;
        width &= 31;
    }
    return u32(u64(low_ones<u32>(width)) << position);
}

// ---- bytes ---------------------------------------------------------------------------------------------------------------

// Each nibble of the selector names a byte of b:a; bit 3 replicates that byte's sign.
PTX_INLINE u32 prmt(u32 a, u32 b, u32 selector) {
    const u64 source = u64(b) << 32 | a;
    u32 result = 0;
    for (u32 i = 0; i < 4; ++i) {
        const u32 nibble = selector >> (4 * i) & 15;
        u32 byte = u32(source >> (8 * (nibble & 7))) & 0xff;
        if (nibble & 8) byte = byte & 0x80 ? 0xff : 0;
        result |= byte << (8 * i);
    }
    return result;
}
PTX_INLINE u32 prmt_selector(u32 three, u32 two, u32 one, u32 zero) { return three << 12 | two << 8 | one << 4 | zero; }
PTX_INLINE u32 prmt_f4e(u32 a, u32 b, u32 c) {
    c &= 3;
    return prmt(a, b, prmt_selector(c + 3, c + 2, c + 1, c));
}
PTX_INLINE u32 prmt_b4e(u32 a, u32 b, u32 c) {
    c &= 3;
    return prmt(a, b, prmt_selector((c + 5) & 7, (c + 6) & 7, (c + 7) & 7, c));
}
PTX_INLINE u32 prmt_rc8(u32 a, u32 b, u32 c) { return prmt(a, b, (c & 3) * 0x1111u); }
PTX_INLINE u32 prmt_ecl(u32 a, u32 b, u32 c) {
    c &= 3;
    return prmt(a, b, prmt_selector(3, c > 2 ? c : 2, c > 1 ? c : 1, c));
}
PTX_INLINE u32 prmt_ecr(u32 a, u32 b, u32 c) {
    c &= 3;
    return prmt(a, b, prmt_selector(c, c < 2 ? c : 2, c < 1 ? c : 1, 0));
}
PTX_INLINE u32 prmt_rc16(u32 a, u32 b, u32 c) { return prmt(a, b, c & 1 ? 0x3232u : 0x1010u); }

template <bool is_signed>
PTX_INLINE s32 byte_of(u32 x, u32 index) {
    const u32 byte = x >> (8 * index) & 0xff;
    return is_signed ? s32(s8(byte)) : s32(byte);
}
template <bool is_signed>
PTX_INLINE s32 half_of(u32 x, u32 index) {
    const u32 half = x >> (16 * index) & 0xffff;
    return is_signed ? s32(s16(half)) : s32(half);
}
template <bool a_signed, bool b_signed>
PTX_INLINE u32 dp4a(u32 a, u32 b, u32 c) {
    for (u32 i = 0; i < 4; ++i) c += u32(byte_of<a_signed>(a, i)) * u32(byte_of<b_signed>(b, i));
    return c;
}
// dp2a: two 16-bit values of a times two bytes of b, the lower two or the upper two.
template <bool a_signed, bool b_signed, bool high>
PTX_INLINE u32 dp2a(u32 a, u32 b, u32 c) {
    for (u32 i = 0; i < 2; ++i) c += u32(half_of<a_signed>(a, i)) * u32(byte_of<b_signed>(b, i + (high ? 2 : 0)));
    return c;
}

// ---- video SIMD: four bytes or two halves at a time ----------------------------------------------------------------------

enum class Lane { add, sub, absdiff, average, min, max };

template <Lane op>
PTX_INLINE s32 lane(s32 a, s32 b) {
    switch (op) {
        case Lane::add: return a + b;
        case Lane::sub: return a - b;
        case Lane::absdiff: return a < b ? b - a : a - b;
        case Lane::average: return a + b < 0 ? (a + b) >> 1 : (a + b + 1) >> 1;  // rounds away from zero
        case Lane::min: return a < b ? a : b;
        case Lane::max: return a < b ? b : a;
    }
    return 0;
}
PTX_INLINE s32 clamp_lane(s32 x, u32 width, bool is_signed) {
    const s32 high = is_signed ? (1 << (width - 1)) - 1 : (1 << width) - 1;
    const s32 low = is_signed ? -high - 1 : 0;
    return x < low ? low : x > high ? high : x;
}
// d = op per lane of a and b, plus c lane by lane; with .add: c plus the sum of all lanes.
template <Lane op, u32 width, bool d_signed, bool a_signed, bool b_signed, bool sat, bool accumulate>
PTX_INLINE u32 video(u32 a, u32 b, u32 c) {
    const u32 mask = width == 8 ? 0xffu : 0xffffu;
    u32 result = accumulate ? c : 0;
    for (u32 i = 0; i < 32 / width; ++i) {
        const s32 x = width == 8 ? byte_of<a_signed>(a, i) : half_of<a_signed>(a, i);
        const s32 y = width == 8 ? byte_of<b_signed>(b, i) : half_of<b_signed>(b, i);
        s32 value = lane<op>(x, y);
        if (sat) value = clamp_lane(value, width, d_signed);
        if (accumulate) result += u32(value);
        else result |= (u32(value) & mask) << (width * i);
    }
    return result;
}

// ---- comparisons ---------------------------------------------------------------------------------------------------------

enum class Compare { eq, ne, lt, le, gt, ge, equ, neu, ltu, leu, gtu, geu, num, nan };

template <Compare op, class T>
PTX_INLINE bool compare(T a, T b) {  // for floats too: the plain forms are false and the ...u forms true when either is a NaN
    switch (op) {
        case Compare::eq: return a == b;
        case Compare::ne: return a < b || a > b;
        case Compare::lt: return a < b;
        case Compare::le: return a <= b;
        case Compare::gt: return a > b;
        case Compare::ge: return a >= b;
        case Compare::equ: return !(a < b || a > b);
        case Compare::neu: return !(a == b);
        case Compare::ltu: return !(a >= b);
        case Compare::leu: return !(a > b);
        case Compare::gtu: return !(a <= b);
        case Compare::geu: return !(a < b);
        case Compare::num: return a == a && b == b;
        case Compare::nan: return !(a == a && b == b);
    }
    return false;
}

}  // namespace ptx
