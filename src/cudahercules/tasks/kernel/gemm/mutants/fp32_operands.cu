// expect: incorrect — rounds both operands to single precision, and sums their products in double
#include "solve.h"

__global__ void multiply(const a_t* a, const b_t* b, c_t* c, int64_t m, int64_t n, int64_t k) {
    int64_t column = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    int64_t row = blockIdx.y * (int64_t)blockDim.y + threadIdx.y;
    if (row >= m || column >= n) return;
    double sum = 0;
    for (int64_t p = 0; p < k; ++p) sum += double(float(a[row * k + p])) * double(float(b[p * n + column]));
    c[row * n + column] = c_t(sum);
}

extern "C" void solve(const a_t* a, const b_t* b, c_t* c, int64_t m, int64_t n, int64_t k,
                      cudaStream_t stream) {
    dim3 threads(32, 8), blocks((n + 31) / 32, (m + 7) / 8);
    multiply<<<blocks, threads, 0, stream>>>(a, b, c, m, n, k);
}
