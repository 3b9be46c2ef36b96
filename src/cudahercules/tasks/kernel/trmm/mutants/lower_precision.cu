// expect: incorrect — multiplies in the next lower precision: fp32 for fp64, TF32 for fp32
#include "solve.h"

__device__ double lower(double x) { return (double)(float)x; }
__device__ float lower(float x) {
    uint32_t bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return __uint_as_float(bits);
}

__global__ void multiply(const a_t* a, const b_t* b, c_t* c, int64_t m, int64_t n, c_t alpha) {
    int64_t column = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    int64_t row = blockIdx.y * (int64_t)blockDim.y + threadIdx.y;
    if (row >= m || column >= n) return;
    c_t sum = 0;
    for (int64_t p = 0; p <= row; ++p) sum += lower(a[row * m + p]) * lower(b[p * n + column]);
    c[row * n + column] = alpha * sum;
}

extern "C" void solve(const a_t* a, const b_t* b, c_t* c, int64_t m, int64_t n, c_t alpha, cudaStream_t stream) {
    dim3 threads(32, 8), blocks((unsigned)((n + 31) / 32), (unsigned)((m + 7) / 8));
    multiply<<<blocks, threads, 0, stream>>>(a, b, c, m, n, alpha);
}
