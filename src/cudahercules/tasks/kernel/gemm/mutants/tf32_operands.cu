// expect: incorrect — rounds both operands to TF32 (10 bits of mantissa) before multiplying
#include "solve.h"

// What cvt.rna.tf32.f32 does: round to nearest, ties away from zero, at bit 13.
__device__ float to_tf32(float x) { return __uint_as_float((__float_as_uint(x) + 0x1000u) & 0xffffe000u); }

__global__ void multiply(const a_t* a, const b_t* b, c_t* c, int64_t m, int64_t n, int64_t k) {
    int64_t column = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    int64_t row = blockIdx.y * (int64_t)blockDim.y + threadIdx.y;
    if (row >= m || column >= n) return;
    float sum = 0.0f;
    for (int64_t p = 0; p < k; ++p) sum += to_tf32(a[row * k + p]) * to_tf32(b[p * n + column]);
    c[row * n + column] = c_t(sum);
}

extern "C" void solve(const a_t* a, const b_t* b, c_t* c, int64_t m, int64_t n, int64_t k,
                      cudaStream_t stream) {
    dim3 threads(32, 8), blocks((n + 31) / 32, (m + 7) / 8);
    multiply<<<blocks, threads, 0, stream>>>(a, b, c, m, n, k);
}
