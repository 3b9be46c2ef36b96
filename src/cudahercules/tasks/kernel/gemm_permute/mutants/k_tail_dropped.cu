// expect: incorrect — sums k in whole groups of eight and drops the rest
#include "solve.h"

struct Sizes {
    int64_t batch, tokens, parts, heads, head_dim, k;
};

__device__ int64_t place(Sizes s, int64_t b, int64_t t, int64_t part, int64_t h, int64_t e) {
#if ORDER == 0
    return (((part * s.batch + b) * s.heads + h) * s.tokens + t) * s.head_dim + e;
#elif ORDER == 1
    return (((part * s.batch + b) * s.heads + h) * s.head_dim + e) * s.tokens + t;
#else
    return (((t * s.batch + b) * s.parts + part) * s.heads + h) * s.head_dim + e;
#endif
}

__global__ void multiply(const a_t* a, const b_t* b, d_t* d, Sizes s) {
    int64_t n = s.parts * s.heads * s.head_dim, m = s.batch * s.tokens;
    int64_t column = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    int64_t row = blockIdx.y * (int64_t)blockDim.y + threadIdx.y;
    if (row >= m || column >= n) return;
    float sum = 0.0f;
    for (int64_t p = 0; p < (s.k > 8 ? s.k / 8 * 8 : s.k); ++p) sum += float(a[row * s.k + p]) * float(b[p * n + column]);
    int64_t head = column / s.head_dim;
    d[place(s, row / s.tokens, row % s.tokens, head / s.heads, head % s.heads, column % s.head_dim)] = d_t(sum);
}

extern "C" void solve(const a_t* a, const b_t* b, d_t* d, int64_t batch, int64_t tokens, int64_t parts, int64_t heads,
                      int64_t head_dim, int64_t k, cudaStream_t stream) {
    Sizes s = {batch, tokens, parts, heads, head_dim, k};
    int64_t n = parts * heads * head_dim, m = batch * tokens;
    dim3 threads(32, 8), blocks((unsigned)((n + 31) / 32), (unsigned)((m + 7) / 8));
    multiply<<<blocks, threads, 0, stream>>>(a, b, d, s);
}
