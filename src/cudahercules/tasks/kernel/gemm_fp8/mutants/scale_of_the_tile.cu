// expect: incorrect — uses the scale of a tile's first column for all 32 of its columns
#include "solve.h"

__global__ void multiply(const a_t* a, const b_t* b, const float* a_scale, const float* b_scale, c_t* c,
                         int64_t m, int64_t n, int64_t k) {
    int64_t column = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    int64_t row = blockIdx.y * (int64_t)blockDim.y + threadIdx.y;
    if (row >= m || column >= n) return;

    float sum = 0.0f;
    for (int64_t p = 0; p < k; ++p) sum += float(a[row * k + p]) * float(b[column * k + p]);
    float scale = a_scale[ROW_SCALES ? row : 0] * b_scale[ROW_SCALES ? column / 32 * 32 : 0];
    c[row * n + column] = c_t(scale * sum);
}

extern "C" void solve(const a_t* a, const b_t* b, const a_scale_t* a_scale, const b_scale_t* b_scale, c_t* c,
                      int64_t m, int64_t n, int64_t k, cudaStream_t stream) {
    dim3 threads(32, 8), blocks((unsigned)((n + 31) / 32), (unsigned)((m + 7) / 8));
    multiply<<<blocks, threads, 0, stream>>>(a, b, a_scale, b_scale, c, m, n, k);
}
