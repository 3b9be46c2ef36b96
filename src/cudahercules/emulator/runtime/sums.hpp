// Sums of products as the tensor cores of sm_90 make them; mma.hpp says how.
#pragma once
#include <vector>

#include "tile.hpp"

namespace rt {

// Of a type of floats: its smallest normal number; numbers below it align as that one does.
constexpr double least_normal(Format f) {
  return f == Format::f16 || f == Format::e5m2 ? 0x1p-14 : f == Format::e4m3 ? 0x1p-6 : 0x1p-126;
}

struct SumRule {
  Format d, a, b;
  double kept;      // 2 to the number of bits below the largest exponent that products keep
  double fraction;  // the same for the fraction of an fp32 sum
};
constexpr SumRule exact_products(Format d, Format a, Format b) { return {d, a, b, 0x1p25, 0x1p23}; }
constexpr SumRule byte_products(Format d, Format a, Format b) { return {d, a, b, 0x1p13, 0x1p13}; }

namespace sums {

constexpr uint32_t most_left = 2048, most_right = 8192;
inline thread_local double left[most_left], right[most_right];

inline __m256d powers(__m256d x, __m256d least) {
  const __m256d exponent = _mm256_and_pd(x, _mm256_castsi256_pd(_mm256_set1_epi64x(0x7ff0000000000000ll)));
  return _mm256_and_pd(_mm256_max_pd(exponent, least), _mm256_cmp_pd(x, _mm256_setzero_pd(), _CMP_NEQ_UQ));
}

// The power of two below each magnitude, zero for zero. Whether all are finite.
inline bool powers(const double* in, uint32_t count, double least, double* out) {
  const __m256d lowest = _mm256_set1_pd(least), infinity = _mm256_set1_pd(HUGE_VAL);
  __m256d wild = _mm256_setzero_pd();
  for (uint32_t i = 0; i < count; i += 4) {
    const __m256d power = powers(_mm256_loadu_pd(in + i), lowest);
    wild = _mm256_or_pd(wild, _mm256_cmp_pd(power, infinity, _CMP_EQ_OQ));
    _mm256_storeu_pd(out + i, power);
  }
  return !_mm256_movemask_pd(wild);
}

inline bool all_finite(const double* in, uint32_t count) {
  const __m256d infinity = _mm256_set1_pd(HUGE_VAL), sign = _mm256_set1_pd(-0.0);
  __m256d fine = _mm256_cmp_pd(infinity, infinity, _CMP_EQ_OQ);
  for (uint32_t i = 0; i < count; i += 4)
    fine = _mm256_and_pd(fine, _mm256_cmp_pd(_mm256_andnot_pd(sign, _mm256_loadu_pd(in + i)), infinity, _CMP_LT_OQ));
  return _mm256_movemask_pd(fine) == 15;
}

inline __m256d cut(__m256d x) { return _mm256_round_pd(x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC); }

// To fp32 with fewer bits of fraction, toward zero.
inline __m256d cut_fraction(__m256d x, double fraction) {
  const __m256d power = powers(x, _mm256_set1_pd(0x1p-126)), some = _mm256_max_pd(power, _mm256_set1_pd(0x1p-126));
  const __m256d scaled = cut(_mm256_mul_pd(x, _mm256_div_pd(_mm256_set1_pd(fraction), some)));
  return _mm256_mul_pd(scaled, _mm256_mul_pd(some, _mm256_set1_pd(1 / fraction)));
}

// Four rows and four columns of c, all operands finite; `left` and `right` are their powers.
inline void block(const SumRule& rule, const double* a, const double* b, double* c, uint32_t columns, uint32_t depth,
                  const double* a_power, const double* b_power) {
  const __m256d least = _mm256_set1_pd(0x1p-126), kept = _mm256_set1_pd(rule.kept), tiny = _mm256_set1_pd(0x1p-600);
  const __m256d least_c = rule.d == Format::f16 ? _mm256_set1_pd(0x1p-14) : least;
  __m256d old[4], largest[4], scale[4], sum[4];
  for (uint32_t i = 0; i < 4; i++) {
    old[i] = _mm256_loadu_pd(c + i * columns);
    largest[i] = _mm256_max_pd(powers(old[i], least_c), tiny);
  }
  for (uint32_t k = 0; k < depth; k++) {
    const __m256d factor = _mm256_loadu_pd(b_power + k * columns);
    for (uint32_t i = 0; i < 4; i++)
      largest[i] = _mm256_max_pd(_mm256_mul_pd(_mm256_broadcast_sd(a_power + i * depth + k), factor), largest[i]);
  }
  for (uint32_t i = 0; i < 4; i++) {
    scale[i] = _mm256_div_pd(kept, largest[i]);
    sum[i] = cut(_mm256_mul_pd(old[i], scale[i]));
  }
  for (uint32_t k = 0; k < depth; k++) {
    const __m256d factor = _mm256_loadu_pd(b + k * columns);
    for (uint32_t i = 0; i < 4; i++) {
      const __m256d product = _mm256_mul_pd(_mm256_broadcast_sd(a + i * depth + k), factor);
      sum[i] = _mm256_add_pd(sum[i], cut(_mm256_mul_pd(product, scale[i])));
    }
  }
  for (uint32_t i = 0; i < 4; i++) {
    __m256d result = _mm256_div_pd(_mm256_add_pd(sum[i], _mm256_setzero_pd()), scale[i]);  // zero has no sign
    if (rule.d != Format::f16) result = cut_fraction(result, rule.fraction);
    _mm256_storeu_pd(c + i * columns, result);
  }
}

inline void finite(const SumRule& rule, const double* a, const double* b, double* c, uint32_t rows, uint32_t columns,
                   uint32_t depth) {
  for (uint32_t row = 0; row < rows; row += 4)
    for (uint32_t column = 0; column < columns; column += 4)
      block(rule, a + row * depth, b + column, c + row * columns + column, columns, depth, left + row * depth,
            right + column);
}

// With infinities and NaNs among the operands: sums that meet one are as in any order, the others as ever. Elements
// of A that are not `there` meet nothing.
inline void wild(const SumRule& rule, const double* a, const double* b, double* c, uint32_t rows, uint32_t columns,
                 uint32_t depth, const uint8_t* there) {
  std::vector<double> met(c, c + rows * columns);
  for (uint32_t row = 0; row < rows; row++)
    for (uint32_t k = 0; k < depth; k++)
      for (uint32_t column = 0; column < columns && (!there || there[row * depth + k]); column++)
        met[row * columns + column] += a[row * depth + k] * b[k * columns + column];
  const auto tamed = [](const double* from, uint32_t count) {
    std::vector<double> out(from, from + count);
    for (double& x : out) x = std::isfinite(x) ? x : 0;
    return out;
  };
  const auto x = tamed(a, rows * depth), y = tamed(b, depth * columns), z = tamed(c, rows * columns);
  powers(x.data(), rows * depth, least_normal(rule.a), left);
  powers(y.data(), depth * columns, least_normal(rule.b), right);
  memcpy(c, z.data(), z.size() * sizeof(double));
  finite(rule, x.data(), y.data(), c, rows, columns, depth);
  for (uint32_t i = 0; i < rows * columns; i++)
    if (!std::isfinite(met[i])) c[i] = met[i];
}

}  // namespace sums

// As `multiply`, for floats of at most 32 bits: a hardware instruction's products and the old sums together.
inline void multiply_aligned(const SumRule& rule, const double* a, const double* b, double* c, uint32_t rows,
                             uint32_t columns, uint32_t depth, const uint8_t* there = nullptr) {
  bool finite = sums::powers(a, rows * depth, least_normal(rule.a), sums::left);
  finite &= sums::powers(b, depth * columns, least_normal(rule.b), sums::right);
  finite &= sums::all_finite(c, rows * columns);
  if (finite) sums::finite(rule, a, b, c, rows, columns, depth);
  else sums::wild(rule, a, b, c, rows, columns, depth, there);
}

// mma.sync of bytes: two instructions for fp16, one for each half of every `group` along k, and then a rounded
// addition of the old sums.
template <uint32_t group>
inline void multiply_bytes(const double* a, const double* b, double* c, uint32_t rows,
                           uint32_t columns, uint32_t depth, const uint8_t* there = nullptr) {
  std::vector<double> x(rows * depth / 2), y(depth / 2 * columns), sum(rows * columns);
  std::vector<uint8_t> of_half(there ? rows * depth / 2 : 0);
  for (uint32_t half = 0; half < 2; half++) {
    uint32_t to = 0;
    for (uint32_t k = 0; k < depth; k++) {
      if (k % group / (group / 2) != half) continue;
      for (uint32_t row = 0; row < rows; row++) {
        x[row * (depth / 2) + to] = a[row * depth + k];
        if (there) of_half[row * (depth / 2) + to] = there[row * depth + k];
      }
      memcpy(y.data() + to * columns, b + k * columns, columns * sizeof(double));
      to++;
    }
    multiply_aligned(exact_products(Format::f32, Format::f16, Format::f16), x.data(), y.data(), sum.data(), rows, columns,
                     depth / 2, there ? of_half.data() : nullptr);
  }
  for (uint32_t i = 0; i < rows * columns; i++) c[i] = double(float(sum[i]) + float(c[i]));
}

// wmma of tf32, 16 x 16 x 8: ptxas makes instructions of k = 4 of it.
inline void multiply_by_fours(const double* a, const double* b, double* c, uint32_t rows, uint32_t columns) {
  for (uint32_t first = 0; first < 8; first += 4) {
    double x[16 * 4];
    for (uint32_t row = 0; row < rows; row++) memcpy(x + row * 4, a + row * 8 + first, 4 * sizeof(double));
    multiply_aligned(exact_products(Format::f32, Format::tf32, Format::tf32), x, b + first * columns, c, rows, columns, 4);
  }
}

// What an mma of these types computes.
template <Format D, Format A, Format B>
inline void multiply_as(const double* a, const double* b, double* c, uint32_t rows, uint32_t columns, uint32_t depth) {
  if constexpr (size_of(A) == 1 && D == Format::f32) multiply_bytes<4>(a, b, c, rows, columns, depth);
  else if (A == Format::tf32 && columns == 16) multiply_by_fours(a, b, c, rows, columns);
  else if constexpr (D == Format::f32 || D == Format::f16) multiply_aligned(exact_products(D, A, B), a, b, c, rows, columns, depth);
  else multiply(a, b, c, rows, columns, depth);
}

}  // namespace rt
