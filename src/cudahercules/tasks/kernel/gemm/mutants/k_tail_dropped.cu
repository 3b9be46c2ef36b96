// expect: incorrect — sums k in whole vectors of four and drops the rest, so the tail of k is missing
#include "solve.h"

__global__ void multiply(const a_t* a, const b_t* b, c_t* c, int64_t m, int64_t n, int64_t k) {
    int64_t column = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    int64_t row = blockIdx.y * (int64_t)blockDim.y + threadIdx.y;
    if (row >= m || column >= n) return;
    float sum = 0.0f;
    for (int64_t p = 0; p + 4 <= k; p += 4)  // the last k % 4 products are forgotten
        for (int64_t q = p; q < p + 4; ++q) sum += float(a[row * k + q]) * float(b[q * n + column]);
    c[row * n + column] = c_t(sum);
}

extern "C" void solve(const a_t* a, const b_t* b, c_t* c, int64_t m, int64_t n, int64_t k,
                      cudaStream_t stream) {
    dim3 threads(32, 8), blocks((n + 31) / 32, (m + 7) / 8);
    multiply<<<blocks, threads, 0, stream>>>(a, b, c, m, n, k);
}
