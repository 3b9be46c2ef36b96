// A block computes a 32 x 32 tile of one product through shared memory; each thread a 2 x 2 piece of it.
//
// The grid has one axis over all tiles of all products, and a block looks its product's operands up. Slices of 16 along k of 32 rows of A and 32 columns of B
// are padded with zeros while they are loaded, so that the inner loop needs no test. The slice of A is stored
// transposed, with a column of padding that keeps the stores out of each other's banks.
#include "solve.h"

constexpr int TILE = 32, SLICE = 16;

__global__ void __launch_bounds__(256)
    multiply(const a_t* __restrict__ a, const b_t* __restrict__ b, const int32_t* __restrict__ a_of,
             const int32_t* __restrict__ b_of, c_t* __restrict__ c, int m, int n, int k, int down, int across) {
    __shared__ float a_slice[SLICE][TILE + 1], b_slice[SLICE][TILE];
    int64_t product = blockIdx.x / (down * across);
    int row0 = blockIdx.x / across % down * TILE, column0 = blockIdx.x % across * TILE;
    a += (int64_t)a_of[product] * m * k;
    b += (int64_t)b_of[product] * k * n;
    c += product * m * n;

    int thread = threadIdx.x, y = thread / 16, x = thread % 16;  // rows y, y + 16; columns x, x + 16
    float sum[2][2] = {};
    for (int p0 = 0; p0 < k; p0 += SLICE) {
        for (int i = thread; i < TILE * SLICE; i += 256) {
            int row = i / SLICE, p = i % SLICE;
            bool inside = row0 + row < m && p0 + p < k;
            a_slice[p][row] = inside ? float(a[(int64_t)(row0 + row) * k + p0 + p]) : 0.0f;
        }
        for (int i = thread; i < SLICE * TILE; i += 256) {
            int p = i / TILE, column = i % TILE;
            bool inside = p0 + p < k && column0 + column < n;
            b_slice[p][column] = inside ? float(b[(int64_t)(p0 + p) * n + column0 + column]) : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (int p = 0; p < SLICE; ++p) {
            float a0 = a_slice[p][y], a1 = a_slice[p][y + 16];
            float b0 = b_slice[p][x], b1 = b_slice[p][x + 16];
            sum[0][0] += a0 * b0;
            sum[0][1] += a0 * b1;
            sum[1][0] += a1 * b0;
            sum[1][1] += a1 * b1;
        }
        __syncthreads();
    }
    for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 2; ++j) {
            int row = row0 + y + 16 * i, column = column0 + x + 16 * j;
            if (row < m && column < n) c[(int64_t)row * n + column] = c_t(sum[i][j]);
        }
}

extern "C" void solve(const a_t* a, const b_t* b, const a_of_t* a_of, const b_of_t* b_of, c_t* c, int64_t batch,
                      int64_t m, int64_t n, int64_t k, int64_t a_matrices, int64_t b_matrices, cudaStream_t stream) {
    int down = (int)((m + TILE - 1) / TILE), across = (int)((n + TILE - 1) / TILE);
    multiply<<<(unsigned)(batch * down * across), 256, 0, stream>>>(a, b, a_of, b_of, c, (int)m, (int)n, (int)k, down,
                                                                    across);
}
