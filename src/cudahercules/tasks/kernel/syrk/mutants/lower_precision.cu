// expect: incorrect — multiplies in the next lower precision: fp32 for fp64, TF32 for fp32
#include "solve.h"

__device__ double lower(double x) { return (double)(float)x; }
__device__ float lower(float x) {
    uint32_t bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return __uint_as_float(bits);
}

__global__ void update(const a_t* a, c_t* c, int64_t n, int64_t k, c_t alpha, c_t beta) {
    int64_t column = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    int64_t row = blockIdx.y * (int64_t)blockDim.y + threadIdx.y;
    if (row >= n || column > row) return;
    c_t sum = 0;
    for (int64_t p = 0; p < k; ++p) sum += lower(a[row * k + p]) * lower(a[column * k + p]);
    c[row * n + column] = alpha * sum + beta * c[row * n + column];
}

extern "C" void solve(const a_t* a, c_t* c, int64_t n, int64_t k, c_t alpha, c_t beta, cudaStream_t stream) {
    dim3 threads(16, 16), blocks((unsigned)((n + 15) / 16), (unsigned)((n + 15) / 16));
    update<<<blocks, threads, 0, stream>>>(a, c, n, k, alpha, beta);
}
