// expect: incorrect — keeps the running sum in half precision
#include <cuda_fp16.h>

#include "solve.h"

__global__ void multiply(const a_t* a, const b_t* b, c_t* c, int64_t m, int64_t n, int64_t k) {
    int64_t column = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    int64_t row = blockIdx.y * (int64_t)blockDim.y + threadIdx.y;
    if (row >= m || column >= n) return;
    __half sum = __float2half(0.0f);
    for (int64_t p = 0; p < k; ++p)
        sum = __float2half(__half2float(sum) + float(a[row * k + p]) * float(b[p * n + column]));
    c[row * n + column] = c_t(__half2float(sum));
}

extern "C" void solve(const a_t* a, const b_t* b, c_t* c, int64_t m, int64_t n, int64_t k,
                      cudaStream_t stream) {
    dim3 threads(32, 8), blocks((n + 31) / 32, (m + 7) / 8);
    multiply<<<blocks, threads, 0, stream>>>(a, b, c, m, n, k);
}
