// Input values on the device, bit-equal to cudahercules/task/inputs.py, which is the specification.
//
// Every operation is an explicit round-to-nearest intrinsic: no compiler flag can fuse or reorder
// them. A thread makes four consecutive components from one Philox block.

#pragma once

#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

namespace generator {

enum Kind : uint32_t { kNormal, kUniform, kInteger, kConstant, kOutliers, kWide, kRowScaled, kLowRank, kPartition };
enum Stream : uint32_t { kValue, kSecond, kRow, kLowBits };

// Filled by cudahercules/replay/generator.py; the same layout there.
struct Fill {
  uint64_t seed;
  uint64_t components;
  uint64_t extent;     // last extent for row layout, first extent for column layout
  uint64_t span;       // high - low + 1 of an integer range (values or exponents)
  uint64_t threshold;  // words below it are outliers, or empty parts
  uint64_t rank;       // low rank: distinct rows
  int64_t low;         // integer: lowest value; wide, row_scaled: lowest exponent; partition: the total
  double constant;     // constant, fp64 storage
  uint32_t kind;
  uint32_t tensor;
  uint32_t parts;  // 2 for complex
  uint32_t column;
  float offset;  // normal: mean; uniform: low; constant: the value
  float scale;   // normal, outliers, low rank: std; uniform: width
  float boost;   // outliers: factor
  uint32_t unused;
};

__device__ const uint32_t __align__(16) normal_table[232 * 4] = {
#include "normal_table.h"
};

struct Words {
  uint32_t w[4];
};

__device__ __forceinline__ Words philox(uint64_t block, uint32_t tensor, uint32_t stream, uint64_t seed) {
  uint32_t c0 = uint32_t(block), c1 = uint32_t(block >> 32), c2 = tensor, c3 = stream;
  uint32_t k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t(0xD2511F53u) * c0, p1 = uint64_t(0xCD9E8D57u) * c2;
    const uint32_t n0 = uint32_t(p1 >> 32) ^ c1 ^ k0, n2 = uint32_t(p0 >> 32) ^ c3 ^ k1;
    c0 = n0;
    c1 = uint32_t(p1);
    c2 = n2;
    c3 = uint32_t(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

__device__ __forceinline__ uint32_t word_at(const Fill& f, uint32_t stream, uint64_t index) {
  const Words words = philox(index / 4, f.tensor, stream, f.seed);
  const uint32_t lane = uint32_t(index % 4);  // selected without an array in local memory
  return lane == 0 ? words.w[0] : lane == 1 ? words.w[1] : lane == 2 ? words.w[2] : words.w[3];
}

__device__ __forceinline__ uint64_t below(uint32_t word, uint64_t span) {
  return span == (1ull << 32) ? word : (uint64_t(word) * span) >> 32;
}

__device__ __forceinline__ float unit(uint32_t word) {
  return __fmul_rn(__uint2float_rn(word >> 8), 0x1p-24f);
}

__device__ __forceinline__ float power(int64_t exponent) {
  return __uint_as_float(uint32_t(exponent + 127) << 23);
}

__device__ __forceinline__ float normal(uint32_t word) {
  const uint32_t magnitude = word & 0x7FFFFFFFu;
  uint32_t segment = magnitude;
  float t = 0.0f;
  if (magnitude >= 8) {
    const uint64_t pattern = uint64_t(__double_as_longlong(__uint2double_rn(magnitude)));
    segment = uint32_t(pattern >> 49) - 8200u;
    t = __fmul_rn(__uint2float_rn(uint32_t(pattern >> 25) & 0xFFFFFFu), 0x1p-24f);
  }
  const uint4 c = __ldg(reinterpret_cast<const uint4*>(normal_table) + segment);
  float x = __fadd_rn(__fmul_rn(__uint_as_float(c.w), t), __uint_as_float(c.z));
  x = __fadd_rn(__fmul_rn(x, t), __uint_as_float(c.y));
  x = __fadd_rn(__fmul_rn(x, t), __uint_as_float(c.x));
  return __uint_as_float(__float_as_uint(x) ^ (word & 0x80000000u));
}

__device__ __forceinline__ uint64_t row_of(const Fill& f, uint64_t component) {
  const uint64_t element = component / f.parts;
  return f.column ? element % f.extent : element / f.extent;
}

// The distributions that give a float (all but integer and constant). `word` is word(0, i).
__device__ __forceinline__ float draw(const Fill& f, uint64_t i, uint32_t word, uint32_t second) {
  switch (f.kind) {
    case kNormal:
      return __fadd_rn(f.offset, __fmul_rn(f.scale, normal(word)));
    case kUniform:
      return __fadd_rn(f.offset, __fmul_rn(f.scale, unit(word)));
    case kOutliers: {
      const float v = __fmul_rn(f.scale, normal(word));
      return second < f.threshold ? __fmul_rn(v, f.boost) : v;
    }
    case kWide: {
      const uint32_t exponent = uint32_t(f.low + int64_t(below(second, f.span)) + 127);
      return __uint_as_float((word & 0x807FFFFFu) | (exponent << 23));
    }
    case kRowScaled: {
      const uint32_t row_word = word_at(f, kRow, row_of(f, i));
      return __fmul_rn(power(f.low + int64_t(below(row_word, f.span))), normal(word));
    }
    default: {  // kLowRank
      const uint64_t row = row_of(f, i);
      const uint64_t step = f.column ? f.parts : f.extent * f.parts;
      return __fmul_rn(f.scale, normal(word_at(f, kValue, i - (row - row % f.rank) * step)));
    }
  }
}

__device__ __forceinline__ float clamped(float v, float largest) {
  return fminf(fmaxf(v, -largest), largest);
}

// Storage types: the largest finite value, and rounding to nearest even.
struct F32 {
  using type = float;
  static __device__ type store(float v) { return clamped(v, 0x1.fffffep127f); }
};
struct F16 {
  using type = __half;
  static __device__ type store(float v) { return __float2half_rn(clamped(v, 65504.0f)); }
};
struct BF16 {
  using type = __nv_bfloat16;
  static __device__ type store(float v) { return __float2bfloat16_rn(clamped(v, 0x1.fep127f)); }
};
struct E4M3 {
  using type = __nv_fp8_storage_t;
  static __device__ type store(float v) {
    return __nv_cvt_float_to_fp8(clamped(v, 448.0f), __NV_SATFINITE, __NV_E4M3);
  }
};
struct E5M2 {
  using type = __nv_fp8_storage_t;
  static __device__ type store(float v) {
    return __nv_cvt_float_to_fp8(clamped(v, 57344.0f), __NV_SATFINITE, __NV_E5M2);
  }
};

template <typename T>
struct alignas(sizeof(T) * 4 > 16 ? 16 : sizeof(T) * 4) Four {
  T v[4];
};

// Writes four components, or what is left of them at the end. `make(lane, component)` gives one.
template <typename T, typename Make>
__device__ __forceinline__ void write_four(T* data, const Fill& f, uint64_t block, Make make) {
  Four<T> four;
#pragma unroll
  for (int lane = 0; lane < 4; ++lane) four.v[lane] = make(lane, block * 4 + lane);
  if (block * 4 + 4 <= f.components) {
    reinterpret_cast<Four<T>*>(data)[block] = four;
  } else {
#pragma unroll
    for (int lane = 0; lane < 4; ++lane)
      if (block * 4 + lane < f.components) data[block * 4 + lane] = four.v[lane];
  }
}

template <typename Each>
__device__ __forceinline__ void for_each_block(const Fill& f, Each each) {
  const uint64_t blocks = (f.components + 3) / 4;
  const uint64_t step = uint64_t(gridDim.x) * blockDim.x;
  for (uint64_t b = uint64_t(blockIdx.x) * blockDim.x + threadIdx.x; b < blocks; b += step) each(b);
}

__device__ __forceinline__ Words second_words(const Fill& f, uint64_t block) {
  const bool used = f.kind == kOutliers || f.kind == kWide;
  return used ? philox(block, f.tensor, kSecond, f.seed) : Words{};
}

template <typename Storage>
__device__ void fill_float(typename Storage::type* data, const Fill& f) {
  for_each_block(f, [&](uint64_t block) {
    const Words value = philox(block, f.tensor, kValue, f.seed), second = second_words(f, block);
    write_four(data, f, block, [&](int lane, uint64_t i) {
      if (f.kind == kConstant) return Storage::store(f.offset);
      if (f.kind == kInteger)
        return Storage::store(__ll2float_rn(f.low + int64_t(below(value.w[lane], f.span))));
      return Storage::store(i < f.components ? draw(f, i, value.w[lane], second.w[lane]) : 0.0f);
    });
  });
}

__device__ inline void fill_double(double* data, const Fill& f) {
  for_each_block(f, [&](uint64_t block) {
    const Words value = philox(block, f.tensor, kValue, f.seed), second = second_words(f, block);
    const Words low = philox(block, f.tensor, kLowBits, f.seed);
    write_four(data, f, block, [&](int lane, uint64_t i) {
      if (f.kind == kConstant) return f.constant;
      if (f.kind == kInteger) return __ll2double_rn(f.low + int64_t(below(value.w[lane], f.span)));
      const float v = i < f.components ? draw(f, i, value.w[lane], second.w[lane]) : 0.0f;
      const double wide = double(F32::store(v));
      const double d = __dmul_rn(__dadd_rn(__uint2double_rn(low.w[lane]), -2147483648.0), 0x1p-57);
      return __dadd_rn(wide, __dmul_rn(wide, d));
    });
  });
}

// What part `element` of a whole takes: cuts at shares of the sum of all weights.
__device__ __forceinline__ int64_t part_of(const Fill& f, uint64_t element) {
  uint64_t before = 0, own = 0, all = 0;
  for (uint64_t e = 0; e < f.components; ++e) {
    uint64_t weight = 0;
    if (word_at(f, kSecond, e) >= f.threshold)
      weight = (256ull + (word_at(f, kValue, e) >> 24)) << below(word_at(f, kRow, e), f.span);
    if (e < element) before += weight;
    if (e == element) own = weight;
    all += weight;
  }
  const uint64_t total = uint64_t(f.low);
  if (all == 0) return element + 1 == f.components ? f.low : 0;
  return int64_t(total * (before + own) / all - total * before / all);
}

template <typename T>
__device__ void fill_integer(T* data, const Fill& f) {
  for_each_block(f, [&](uint64_t block) {
    const Words value = philox(block, f.tensor, kValue, f.seed);
    write_four(data, f, block, [&](int lane, uint64_t i) {
      if (f.kind == kPartition) return i < f.components ? T(part_of(f, i)) : T(0);
      return f.kind == kConstant ? T(f.low) : T(f.low + int64_t(below(value.w[lane], f.span)));
    });
  });
}

}  // namespace generator

#define FILL_FLOAT(NAME, STORAGE)                                                           \
  extern "C" __global__ void fill_##NAME(generator::STORAGE::type* data, generator::Fill f) { \
    generator::fill_float<generator::STORAGE>(data, f);                                     \
  }
FILL_FLOAT(fp32, F32)
FILL_FLOAT(fp16, F16)
FILL_FLOAT(bf16, BF16)
FILL_FLOAT(fp8_e4m3, E4M3)
FILL_FLOAT(fp8_e5m2, E5M2)
#undef FILL_FLOAT

extern "C" __global__ void fill_fp64(double* data, generator::Fill f) { generator::fill_double(data, f); }

// Integers of one width share their bits, signed or not.
#define FILL_INTEGER(BITS)                                                        \
  extern "C" __global__ void fill_int##BITS(uint##BITS##_t* data, generator::Fill f) { \
    generator::fill_integer<uint##BITS##_t>(data, f);                             \
  }
FILL_INTEGER(8)
FILL_INTEGER(16)
FILL_INTEGER(32)
FILL_INTEGER(64)
#undef FILL_INTEGER
