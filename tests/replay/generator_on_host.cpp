// generator.cuh compiled for the host: the intrinsics that only devices have, written out. One call
// of fill_on_host does what a launch of one thread does.
#include <cmath>
#include <cstdint>
#include <cstring>

#include <cuda_runtime.h>

struct Index {
  unsigned x;
};
static const Index blockIdx{0}, blockDim{1}, threadIdx{0}, gridDim{1};
#undef __device__
#undef __global__
#define __device__
#define __global__

static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline float __uint2float_rn(unsigned a) { return float(a); }
static inline double __uint2double_rn(unsigned a) { return double(a); }
static inline float __ll2float_rn(long long a) { return float(a); }
static inline double __ll2double_rn(long long a) { return double(a); }
template <typename To, typename From>
static To same_bits(From a) {
  To b;
  static_assert(sizeof a == sizeof b);
  std::memcpy(&b, &a, sizeof a);
  return b;
}
static inline float __uint_as_float(unsigned a) { return same_bits<float>(a); }
static inline unsigned __float_as_uint(float a) { return same_bits<unsigned>(a); }
static inline long long __double_as_longlong(double a) { return same_bits<long long>(a); }
static inline uint4 __ldg(const uint4* p) { return *p; }
using std::fmaxf;
using std::fminf;

#include "generator.cuh"

using generator::Fill;

extern "C" int fill_on_host(const char* kernel, void* data, const Fill* f) {
#define CALL(NAME, TYPE) \
  if (!std::strcmp(kernel, #NAME)) return NAME(static_cast<TYPE*>(data), *f), 0
  CALL(fill_fp64, double);
  CALL(fill_fp32, float);
  CALL(fill_fp16, __half);
  CALL(fill_bf16, __nv_bfloat16);
  CALL(fill_fp8_e4m3, __nv_fp8_storage_t);
  CALL(fill_fp8_e5m2, __nv_fp8_storage_t);
  CALL(fill_int8, uint8_t);
  CALL(fill_int16, uint16_t);
  CALL(fill_int32, uint32_t);
  CALL(fill_int64, uint64_t);
  return 1;
}
