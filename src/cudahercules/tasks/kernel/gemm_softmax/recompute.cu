// No scratch: a block owns 16 rows, computes all their products twice, and stores nothing in between.
//
// First pass: 64 columns at a time through shared memory, keeping for every row the largest logit so far and
// the sum of exp(logit - largest), which shrinks when a larger logit comes (online softmax). Second pass: the
// same products again, now divided by the final sum and written. Twice the arithmetic saves the traffic of
// the matrix of products, which pays where k is small.
#include "solve.h"

constexpr int ROWS = 16, COLUMNS = 64, SLICE = 32, THREADS = 128;
constexpr int OWN = ROWS / 2;  // rows a thread multiplies: column thread % 64, every second row

struct Tiles {
    float a[SLICE][ROWS + 1], b[SLICE][COLUMNS], logits[ROWS][COLUMNS + 1];
};

// logits[row][column] of 64 columns from `column0` on, -inf past the right edge.
__device__ void compute(Tiles& tiles, const a_t* a, const b_t* b, int64_t rows, int64_t column0, int64_t n,
                        int64_t k, float alpha) {
    int thread = threadIdx.x, column = thread % COLUMNS, first = thread / COLUMNS;
    float sum[OWN] = {};
    for (int64_t p0 = 0; p0 < k; p0 += SLICE) {
        __syncthreads();
        for (int i = thread; i < ROWS * SLICE; i += THREADS) {
            int row = i / SLICE, p = i % SLICE;
            tiles.a[p][row] = row < rows && p0 + p < k ? float(a[row * k + p0 + p]) : 0.0f;
        }
        for (int i = thread; i < SLICE * COLUMNS; i += THREADS) {
            int p = i / COLUMNS, c = i % COLUMNS;
            tiles.b[p][c] = p0 + p < k && column0 + c < n ? float(b[(p0 + p) * n + column0 + c]) : 0.0f;
        }
        __syncthreads();
        for (int p = 0; p < SLICE; ++p)
#pragma unroll
            for (int r = 0; r < OWN; ++r) sum[r] += tiles.a[p][first + 2 * r] * tiles.b[p][column];
    }
#pragma unroll
    for (int r = 0; r < OWN; ++r)
        tiles.logits[first + 2 * r][column] = column0 + column < n ? alpha * sum[r] : -INFINITY;
    __syncthreads();
}

__global__ void __launch_bounds__(THREADS)
    product_softmax(const a_t* __restrict__ a, const b_t* __restrict__ b, d_t* __restrict__ d, int64_t m,
                    int64_t n, int64_t k, float alpha) {
    __shared__ Tiles tiles;
    int64_t row0 = (int64_t)blockIdx.x * ROWS, rows = m - row0 < ROWS ? m - row0 : ROWS;
    a += row0 * k;
    d += row0 * n;
    int row = threadIdx.x / 8, lane = threadIdx.x % 8;  // eight threads share a row's statistics

    float largest = -INFINITY, total = 0.0f;
    for (int64_t column0 = 0; column0 < n; column0 += COLUMNS) {
        compute(tiles, a, b, rows, column0, n, k, alpha);
        float larger = largest;
        for (int c = lane; c < COLUMNS; c += 8) larger = fmaxf(larger, tiles.logits[row][c]);
        for (int step = 4; step > 0; step /= 2)
            larger = fmaxf(larger, __shfl_xor_sync(0xffffffffu, larger, step));
        float part = 0.0f;
        for (int c = lane; c < COLUMNS; c += 8) part += expf(tiles.logits[row][c] - larger);
        for (int step = 4; step > 0; step /= 2) part += __shfl_xor_sync(0xffffffffu, part, step);
        total = total * expf(largest - larger) + part;
        largest = larger;
    }
    for (int64_t column0 = 0; column0 < n; column0 += COLUMNS) {
        compute(tiles, a, b, rows, column0, n, k, alpha);
        if (row < rows)
            for (int c = lane; c < COLUMNS && column0 + c < n; c += 8)
                d[row * n + column0 + c] = d_t(expf(tiles.logits[row][c] - largest) / total);
    }
}

extern "C" void solve(const a_t* a, const b_t* b, d_t* d, int64_t m, int64_t n, int64_t k, float alpha,
                      cudaStream_t stream) {
    product_softmax<<<(unsigned)((m + ROWS - 1) / ROWS), THREADS, 0, stream>>>(a, b, d, m, n, k, alpha);
}
