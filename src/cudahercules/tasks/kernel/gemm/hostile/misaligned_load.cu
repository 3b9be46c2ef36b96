// expect: crash — reads A in 16-byte vectors from addresses that are no multiple of 16
#include "solve.h"

__global__ void multiply(const a_t* a, const b_t* b, c_t* c, int64_t m, int64_t n, int64_t k) {
    int64_t column = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    int64_t row = blockIdx.y * (int64_t)blockDim.y + threadIdx.y;
    if (row >= m || column >= n) return;
    float sum = 0.0f;
    constexpr int WIDTH = 16 / sizeof(a_t);
    int64_t p = 0;
    for (; p + WIDTH <= k; p += WIDTH) {
        uint4 vector = *reinterpret_cast<const uint4*>(&a[row * k + p]);  // aligned only if k % WIDTH == 0
        for (int i = 0; i < WIDTH; ++i)
            sum += float(reinterpret_cast<const a_t*>(&vector)[i]) * float(b[(p + i) * n + column]);
    }
    for (; p < k; ++p) sum += float(a[row * k + p]) * float(b[p * n + column]);
    c[row * n + column] = c_t(sum);
}

extern "C" void solve(const a_t* a, const b_t* b, c_t* c, int64_t m, int64_t n, int64_t k,
                      cudaStream_t stream) {
    dim3 threads(32, 8), blocks((n + 31) / 32, (m + 7) / 8);
    multiply<<<blocks, threads, 0, stream>>>(a, b, c, m, n, k);
}
