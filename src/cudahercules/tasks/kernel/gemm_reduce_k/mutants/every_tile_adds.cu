// expect: incorrect — the sums are added once for every column of tiles of 32
#include "solve.h"

__global__ void multiply(const a_t* a, const b_t* b, c_t* c, int64_t m, int64_t n, int64_t k) {
    int64_t column = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    int64_t row = blockIdx.y * (int64_t)blockDim.y + threadIdx.y;
    if (row >= m || column >= n) return;
    float total = 0.0f;
    for (int64_t p = 0; p < k; ++p) total += float(a[p * m + row]) * float(b[p * n + column]);
    c[row * n + column] = c_t(total);
}

__global__ void reduce(const a_t* a, sum_t* sum, int64_t m, int64_t n, int64_t k) {
    int64_t row = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (row >= m) return;
    float total = 0.0f;
    for (int64_t p = 0; p < k; ++p) total += float(a[p * m + row]);
    sum[row] = sum_t(total * float((n + 31) / 32));
}

extern "C" void solve(const a_t* a, const b_t* b, c_t* c, sum_t* sum, int64_t m, int64_t n, int64_t k,
                      cudaStream_t stream) {
    dim3 threads(32, 8), blocks((unsigned)((n + 31) / 32), (unsigned)((m + 7) / 8));
    multiply<<<blocks, threads, 0, stream>>>(a, b, c, m, n, k);
    reduce<<<(unsigned)((m + 255) / 256), 256, 0, stream>>>(a, sum, m, n, k);
}
