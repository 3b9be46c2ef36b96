// A tile of 32 x 32 through shared memory, computed and then written in the order of the result.
//
// Both operands are read in slices of 16 along k, padded with zeros. The finished tile goes back to shared memory, and the
// threads walk through it along whichever side lies together in the result: columns of the product for most orders, rows
// where tokens are the last axis.
#include "solve.h"

constexpr int TILE = 32, SLICE = 16;

struct Sizes {
    int64_t batch, tokens, parts, heads, head_dim, k;
};

__device__ int64_t place(Sizes s, int64_t row, int64_t column) {
    int64_t b = row / s.tokens, t = row % s.tokens, e = column % s.head_dim, head = column / s.head_dim;
    int64_t part = head / s.heads, h = head % s.heads;
    if (ORDER == 0) return (((part * s.batch + b) * s.heads + h) * s.tokens + t) * s.head_dim + e;
    if (ORDER == 1) return (((part * s.batch + b) * s.heads + h) * s.head_dim + e) * s.tokens + t;
    return (t * s.batch + b) * s.parts * s.heads * s.head_dim + column;
}

__global__ void __launch_bounds__(256) multiply(const a_t* __restrict__ a, const b_t* __restrict__ b, d_t* d, Sizes s) {
    __shared__ float a_slice[SLICE][TILE + 1], b_slice[SLICE][TILE], finished[TILE][TILE + 1];
    int64_t n = s.parts * s.heads * s.head_dim, m = s.batch * s.tokens;
    int64_t row0 = blockIdx.y * (int64_t)TILE, column0 = blockIdx.x * (int64_t)TILE;
    int x = threadIdx.x % 32, y = threadIdx.x / 32;  // this thread's outputs: column x, rows y, y + 8, y + 16, y + 24

    float sum[4] = {};
    for (int64_t p0 = 0; p0 < s.k; p0 += SLICE) {
        for (int i = threadIdx.x; i < TILE * SLICE; i += 256) {
            int row = i / SLICE, p = i % SLICE;
            bool inside = row0 + row < m && p0 + p < s.k;
            a_slice[p][row] = inside ? float(a[(row0 + row) * s.k + p0 + p]) : 0.0f;
        }
        for (int i = threadIdx.x; i < SLICE * TILE; i += 256) {
            int p = i / TILE, column = i % TILE;
            bool inside = p0 + p < s.k && column0 + column < n;
            b_slice[p][column] = inside ? float(b[(p0 + p) * n + column0 + column]) : 0.0f;
        }
        __syncthreads();
        for (int p = 0; p < SLICE; ++p)
            for (int i = 0; i < 4; ++i) sum[i] += a_slice[p][y + 8 * i] * b_slice[p][x];
        __syncthreads();
    }
    for (int i = 0; i < 4; ++i) finished[y + 8 * i][x] = sum[i];
    __syncthreads();
    for (int i = threadIdx.x; i < TILE * TILE; i += 256) {
        int row = ORDER == 1 ? i % TILE : i / TILE, column = ORDER == 1 ? i / TILE : i % TILE;
        if (row0 + row < m && column0 + column < n)
            d[place(s, row0 + row, column0 + column)] = d_t(finished[row][column]);
    }
}

extern "C" void solve(const a_t* a, const b_t* b, d_t* d, int64_t batch, int64_t tokens, int64_t parts, int64_t heads,
                      int64_t head_dim, int64_t k, cudaStream_t stream) {
    Sizes s = {batch, tokens, parts, heads, head_dim, k};
    int64_t n = parts * heads * head_dim, m = batch * tokens;
    dim3 blocks((unsigned)((n + TILE - 1) / TILE), (unsigned)((m + TILE - 1) / TILE));
    multiply<<<blocks, 256, 0, stream>>>(a, b, d, s);
}
