// expect: incorrect — sums whole groups of four terms and drops what remains before the diagonal
#include "solve.h"

__global__ void multiply(const a_t* a, const b_t* b, c_t* c, int64_t m, int64_t n, c_t alpha) {
    int64_t column = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    int64_t row = blockIdx.y * (int64_t)blockDim.y + threadIdx.y;
    if (row >= m || column >= n) return;
    c_t sum = 0;
    for (int64_t p = 0; p < (row + 1) / 4 * 4; ++p) sum += a[row * m + p] * b[p * n + column];
    c[row * n + column] = alpha * sum;
}

extern "C" void solve(const a_t* a, const b_t* b, c_t* c, int64_t m, int64_t n, c_t alpha, cudaStream_t stream) {
    dim3 threads(32, 8), blocks((unsigned)((n + 31) / 32), (unsigned)((m + 7) / 8));
    multiply<<<blocks, threads, 0, stream>>>(a, b, c, m, n, alpha);
}
