// expect: incorrect — rounds by roundf, which takes the middle between two integers away from zero
#include "solve.h"

__global__ void multiply(const a_t* a, const b_t* b, c_t* c, int64_t m, int64_t n, int64_t k, float scale) {
    int64_t column = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    int64_t row = blockIdx.y * (int64_t)blockDim.y + threadIdx.y;
    if (row >= m || column >= n) return;

    int sum = 0;
    for (int64_t p = 0; p < k; ++p) sum += int(a[row * k + p]) * int(b[column * k + p]);
    int rounded = int(roundf((float)sum * scale));
    c[row * n + column] = c_t(max(-128, min(127, rounded)));
}

extern "C" void solve(const a_t* a, const b_t* b, c_t* c, int64_t m, int64_t n, int64_t k, float scale,
                      cudaStream_t stream) {
    dim3 threads(32, 8), blocks((unsigned)((n + 31) / 32), (unsigned)((m + 7) / 8));
    multiply<<<blocks, threads, 0, stream>>>(a, b, c, m, n, k, scale);
}
