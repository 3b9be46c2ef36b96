// Atomic read-modify-write operations. A block never leaves its OS thread, so atomics on its own shared
// memory need no bus lock; all others take it.
#pragma once
#include "device.hpp"
#include "half.hpp"

namespace rt {

template <class T>
struct Bits;
template <unsigned N>
struct Unsigned;
template <>
struct Unsigned<2> { using type = uint16_t; };
template <>
struct Unsigned<4> { using type = uint32_t; };
template <>
struct Unsigned<8> { using type = uint64_t; };
template <>
struct Unsigned<16> { using type = unsigned __int128; };

// *at = f(*at); gives the old value.
template <bool locked, class T, class F>
static inline T update(uint8_t* at, F f) {
  using U = typename Unsigned<sizeof(T)>::type;
  auto* p = reinterpret_cast<U*>(at);
  if (!locked) {
    const T old = load<T>(at);
    store<T>(at, f(old));
    return old;
  }
  U seen;
  __builtin_memcpy(&seen, at, sizeof seen);
  for (;;) {
    const T old = __builtin_bit_cast(T, seen);
    const U next = __builtin_bit_cast(U, T(f(old)));
    const U found = __sync_val_compare_and_swap(p, seen, next);
    if (found == seen) return old;
    seen = found;
  }
}

template <bool locked, class T>
static inline T atomic_add(uint8_t* at, T v) {
  if (locked) return __atomic_fetch_add(reinterpret_cast<T*>(at), v, __ATOMIC_SEQ_CST);
  return update<false, T>(at, [v](T x) { return T(x + v); });
}
template <bool locked, class T>
static inline T atomic_and(uint8_t* at, T v) {
  return update<locked, T>(at, [v](T x) { return T(x & v); });
}
template <bool locked, class T>
static inline T atomic_or(uint8_t* at, T v) {
  return update<locked, T>(at, [v](T x) { return T(x | v); });
}
template <bool locked, class T>
static inline T atomic_xor(uint8_t* at, T v) {
  return update<locked, T>(at, [v](T x) { return T(x ^ v); });
}
template <bool locked, class T>
static inline T atomic_exch(uint8_t* at, T v) {
  return update<locked, T>(at, [v](T) { return v; });
}
template <bool locked, class T>
static inline T atomic_min(uint8_t* at, T v) {
  return update<locked, T>(at, [v](T x) { return x < v ? x : v; });
}
template <bool locked, class T>
static inline T atomic_max(uint8_t* at, T v) {
  return update<locked, T>(at, [v](T x) { return x > v ? x : v; });
}
template <bool locked, class T>
static inline T atomic_inc(uint8_t* at, T v) {
  return update<locked, T>(at, [v](T x) { return x >= v ? T(0) : T(x + 1); });
}
template <bool locked, class T>
static inline T atomic_dec(uint8_t* at, T v) {
  return update<locked, T>(at, [v](T x) { return x == 0 || x > v ? v : T(x - 1); });
}
template <bool locked, class T>
static inline T atomic_cas(uint8_t* at, T compare, T v) {
  return update<locked, T>(at, [=](T x) { return x == compare ? v : x; });
}
// In global memory fp32 sums flush subnormal inputs and results; in shared memory they do not. NaNs lose their bits.
template <bool locked, bool flush>
static inline float atomic_add_f32(uint8_t* at, float v) {
  auto flushed = [](float x) { return flush && __builtin_fabsf(x) < 0x1p-126f ? __builtin_copysignf(0.0f, x) : x; };
  return update<locked, float>(at, [=](float x) {
    const float sum = flushed(flushed(x) + flushed(v));
    return sum == sum ? sum : __builtin_bit_cast(float, 0x7fffffffu);
  });
}
template <bool locked>
static inline double atomic_add_f64(uint8_t* at, double v) {
  return update<locked, double>(at, [v](double x) { return x + v; });
}

enum class HalfOp { add, min, max };
template <class H, HalfOp op>
static inline uint16_t half_op(uint16_t a, uint16_t b) {
  if (op == HalfOp::min) return ptx::hmin<H, false, false, false>(a, b);
  if (op == HalfOp::max) return ptx::hmax<H, false, false, false>(a, b);
  return ptx::hadd<H, false, ptx::Limit::none>(a, b);
}
template <bool locked, class H, HalfOp op>
static inline uint16_t atomic_half(uint8_t* at, uint16_t v) {
  return update<locked, uint16_t>(at, [v](uint16_t x) { return half_op<H, op>(x, v); });
}
template <bool locked, class H, HalfOp op>
static inline uint32_t atomic_half2(uint8_t* at, uint32_t v) {
  return update<locked, uint32_t>(at, [v](uint32_t x) {
    return uint32_t(half_op<H, op>(uint16_t(x), uint16_t(v))) |
           uint32_t(half_op<H, op>(uint16_t(x >> 16), uint16_t(v >> 16))) << 16;
  });
}

}  // namespace rt
