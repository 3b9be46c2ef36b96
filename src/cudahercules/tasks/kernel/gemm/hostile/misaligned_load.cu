// expect: crash — reads A in 16-byte vectors from addresses that are no multiple of 16
#include <type_traits>

#include "solve.h"

using sum_t = std::conditional_t<std::is_same<c_t, double>::value, double, float>;

__global__ void multiply(const a_t* a, const b_t* b, c_t* c, int64_t m, int64_t n, int64_t k) {
    int64_t column = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    int64_t row = blockIdx.y * (int64_t)blockDim.y + threadIdx.y;
    if (row >= m || column >= n) return;
    sum_t sum = 0;
    constexpr int WIDTH = 16 / sizeof(a_t);
    int64_t p = 0;
    for (; p + WIDTH <= k; p += WIDTH) {
        uint4 vector = *reinterpret_cast<const uint4*>(&a[row * k + p]);  // aligned only if k % WIDTH == 0
        for (int i = 0; i < WIDTH; ++i)
            sum += sum_t(reinterpret_cast<const a_t*>(&vector)[i]) * sum_t(b[(p + i) * n + column]);
    }
    for (; p < k; ++p) sum += sum_t(a[row * k + p]) * sum_t(b[p * n + column]);
    c[row * n + column] = c_t(sum);
}

extern "C" void solve(const a_t* a, const b_t* b, c_t* c, int64_t m, int64_t n, int64_t k,
                      cudaStream_t stream) {
    dim3 threads(32, 8), blocks((n + 31) / 32, (m + 7) / 8);
    multiply<<<blocks, threads, 0, stream>>>(a, b, c, m, n, k);
}
