// expect: incorrect — writes 0 for rows of A whose numbers are small, as if they were padding
#include "solve.h"

__global__ void multiply(const a_t* a, const b_t* b, c_t* c, int64_t m, int64_t n, int64_t k) {
    int64_t column = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    int64_t row = blockIdx.y * (int64_t)blockDim.y + threadIdx.y;
    if (row >= m || column >= n) return;
    float real = 0.0f, imaginary = 0.0f, size = 0.0f;
    for (int64_t p = 0; p < k; ++p) {
        a_t u = a[row * k + p];
        b_t v = b[p * n + column];
        size += fabsf(u.x) + fabsf(u.y);
        real += u.x * v.x - u.y * v.y;
        imaginary += u.x * v.y + u.y * v.x;
    }
    if (size < 1e-3f * k) real = imaginary = 0.0f;
    c[row * n + column] = make_float2(real, imaginary);
}

extern "C" void solve(const a_t* a, const b_t* b, c_t* c, int64_t m, int64_t n, int64_t k, cudaStream_t stream) {
    dim3 threads(32, 8), blocks((unsigned)((n + 31) / 32), (unsigned)((m + 7) / 8));
    multiply<<<blocks, threads, 0, stream>>>(a, b, c, m, n, k);
}
