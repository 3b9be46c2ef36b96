// What mma and wgmma compute with: small matrices of doubles, and the formats around them.
#pragma once
#include <immintrin.h>

#include <cmath>
#include <cstring>

#include "mma.hpp"

namespace rt {

constexpr uint32_t nan_f32 = 0x7fffffffu;
constexpr uint16_t nan_f16 = 0x7fffu;

// Where the rule of mma.hpp puts register `w` of row `r` of a matrix with `rows` rows.
constexpr uint32_t lane_of(uint32_t r, uint32_t w) { return r % 8 * 4 + w % 4; }
constexpr uint32_t register_of(uint32_t r, uint32_t w, uint32_t rows) { return w / 4 * (rows / 8) + r / 8; }

inline float e4m3_value(uint8_t bits) {
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  if ((bits & 0x7f) == 0x7f) return NAN;
  const float magnitude = exponent ? std::ldexp(float(8 + mantissa), exponent - 10) : std::ldexp(float(mantissa), -9);
  return bits & 0x80 ? -magnitude : magnitude;
}

struct E4m3Table {
  float value[256];
  E4m3Table() {
    for (int i = 0; i < 256; i++) value[i] = e4m3_value(uint8_t(i));
  }
};
inline const E4m3Table e4m3_table;

inline void halves_to_doubles(__m128i halves, double* out) {
  const __m256 floats = _mm256_cvtph_ps(halves);
  _mm256_storeu_pd(out, _mm256_cvtps_pd(_mm256_castps256_ps128(floats)));
  _mm256_storeu_pd(out + 4, _mm256_cvtps_pd(_mm256_extractf128_ps(floats, 1)));
}

// The 16 bytes at `from` as doubles: 8 halves, 4 tf32, 16 bytes or 2 doubles. Gives their number.
template <Format F>
inline uint32_t decode16(const uint8_t* from, double* out) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  if constexpr (F == Format::f16) {
    halves_to_doubles(bytes, out);
  } else if constexpr (F == Format::bf16) {
    const __m256i floats = _mm256_slli_epi32(_mm256_cvtepu16_epi32(bytes), 16);
    _mm256_storeu_pd(out, _mm256_cvtps_pd(_mm_castsi128_ps(_mm256_castsi256_si128(floats))));
    _mm256_storeu_pd(out + 4, _mm256_cvtps_pd(_mm_castsi128_ps(_mm256_extracti128_si256(floats, 1))));
  } else if constexpr (F == Format::tf32) {
    const __m128i cut = _mm_and_si128(bytes, _mm_set1_epi32(int(0xffffe000u)));
    _mm256_storeu_pd(out, _mm256_cvtps_pd(_mm_castsi128_ps(cut)));
  } else if constexpr (F == Format::e5m2) {  // the upper half of an f16
    halves_to_doubles(_mm_unpacklo_epi8(_mm_setzero_si128(), bytes), out);
    halves_to_doubles(_mm_unpackhi_epi8(_mm_setzero_si128(), bytes), out + 8);
  } else if constexpr (F == Format::f64) {
    memcpy(out, from, 16);
  } else {
    for (int i = 0; i < 16; i++)
      out[i] = F == Format::s8 ? double(int8_t(from[i])) : F == Format::u8 ? double(from[i]) : double(e4m3_table.value[from[i]]);
  }
  return 16 / size_of(F);
}

// c (rows x columns, row after row) += a (rows x depth) * b (depth x columns); rows a multiple of 4, columns of 8.
inline void multiply(const double* a, const double* b, double* c, uint32_t rows, uint32_t columns, uint32_t depth) {
  for (uint32_t row = 0; row < rows; row += 4)
    for (uint32_t column = 0; column < columns; column += 8) {
      __m256d sum[4][2];
      double* at = c + row * columns + column;
      for (uint32_t i = 0; i < 4; i++) {
        sum[i][0] = _mm256_loadu_pd(at + i * columns);
        sum[i][1] = _mm256_loadu_pd(at + i * columns + 4);
      }
      for (uint32_t k = 0; k < depth; k++) {
        const __m256d left = _mm256_loadu_pd(b + k * columns + column), right = _mm256_loadu_pd(b + k * columns + column + 4);
        for (uint32_t i = 0; i < 4; i++) {
          const __m256d factor = _mm256_broadcast_sd(a + (row + i) * depth + k);
          sum[i][0] = _mm256_fmadd_pd(factor, left, sum[i][0]);
          sum[i][1] = _mm256_fmadd_pd(factor, right, sum[i][1]);
        }
      }
      for (uint32_t i = 0; i < 4; i++) {
        _mm256_storeu_pd(at + i * columns, sum[i][0]);
        _mm256_storeu_pd(at + i * columns + 4, sum[i][1]);
      }
    }
}

// To f16 with one rounding: through a float that was rounded to odd.
inline uint16_t half_of(double x) {
  if (std::isnan(x)) return nan_f16;
  auto f = float(x);
  if (double(f) != x && std::isfinite(f)) {
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (std::fabs(double(f)) > std::fabs(x)) bits--;
    bits |= 1;
    memcpy(&f, &bits, sizeof f);
  }
  return _cvtss_sh(f, 0);
}

inline uint32_t single_of(double x) {
  const auto f = float(x);
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  return f == f ? bits : nan_f32;
}

inline uint32_t integer_of(double x, bool saturate) {
  if (saturate) return uint32_t(int32_t(x < -2147483648.0 ? -2147483648.0 : x > 2147483647.0 ? 2147483647.0 : x));
  return uint32_t(int64_t(x));
}

// Two neighbouring values of an accumulator, in registers or out of them.
template <Format F, class Register>
inline void unpack_pair(const Register* registers, uint32_t pair, double* out) {
  if constexpr (F == Format::f16) {
    out[0] = double(_cvtsh_ss(uint16_t(registers[pair])));
    out[1] = double(_cvtsh_ss(uint16_t(registers[pair] >> 16)));
  } else
    for (uint32_t i = 0; i < 2; i++) {
      const Register bits = registers[2 * pair + i];
      if constexpr (F == Format::s32) out[i] = double(int32_t(bits));
      else if constexpr (F == Format::f64) memcpy(out + i, &bits, 8);
      else {
        float f;
        memcpy(&f, &bits, 4);
        out[i] = double(f);
      }
    }
}

template <Format F, class Register>
inline void pack_pair(Register* registers, uint32_t pair, const double* in, bool saturate) {
  if constexpr (F == Format::f16) {
    registers[pair] = uint32_t(half_of(in[0])) | uint32_t(half_of(in[1])) << 16;
  } else
    for (uint32_t i = 0; i < 2; i++) {
      Register& to = registers[2 * pair + i];
      if constexpr (F == Format::s32) to = integer_of(in[i], saturate);
      else if constexpr (F == Format::f64) memcpy(&to, in + i, 8);
      else to = single_of(in[i]);
    }
}

}  // namespace rt
