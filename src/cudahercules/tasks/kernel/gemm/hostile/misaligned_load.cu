// expect: crash — reads A in 16-byte vectors from addresses that are no multiple of 16
#include "solve.h"

__global__ void multiply(const a_t* a, const b_t* b, c_t* c, int64_t m, int64_t n, int64_t k) {
    int64_t column = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    int64_t row = blockIdx.y * (int64_t)blockDim.y + threadIdx.y;
    if (row >= m || column >= n) return;
    float sum = 0.0f;
    for (int64_t p = 0; p + 4 <= k; p += 4) {
        float4 v = *reinterpret_cast<const float4*>(&a[row * k + p]);  // aligned only if k % 4 == 0
        sum += v.x * b[p * n + column] + v.y * b[(p + 1) * n + column] + v.z * b[(p + 2) * n + column] +
               v.w * b[(p + 3) * n + column];
    }
    for (int64_t p = k / 4 * 4; p < k; ++p) sum += a[row * k + p] * b[p * n + column];
    c[row * n + column] = sum;
}

extern "C" void solve(const a_t* a, const b_t* b, c_t* c, int64_t m, int64_t n, int64_t k,
                      cudaStream_t stream) {
    dim3 threads(32, 8), blocks((n + 31) / 32, (m + 7) / 8);
    multiply<<<blocks, threads, 0, stream>>>(a, b, c, m, n, k);
}
