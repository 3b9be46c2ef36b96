// Each block computes a 32 x 32 tile of C through shared memory; each thread a 2 x 2 piece of it.
//
// A and B are read in slices of 16 along k: the block loads a 32 x 16 piece of A and a 16 x 32 piece of
// B, and every value then serves 32 outputs. Edges are padded with zeros while loading, so that the
// inner loop needs no test. The slice of A is stored transposed, with one column of padding that keeps
// the stores out of each other's banks.
#include <type_traits>

#include "solve.h"

// Sums are double where the operands are.
using sum_t = std::conditional_t<std::is_same<c_t, double>::value, double, float>;

constexpr int TILE = 32;
constexpr int SLICE = 16;

__global__ void __launch_bounds__(256) multiply(const a_t* __restrict__ a, const b_t* __restrict__ b,
                                                c_t* __restrict__ c, int m, int n, int k) {
    __shared__ sum_t a_slice[SLICE][TILE + 1];
    __shared__ sum_t b_slice[SLICE][TILE];
    int thread = threadIdx.x;
    int row0 = blockIdx.y * TILE, column0 = blockIdx.x * TILE;
    int y = thread / 16, x = thread % 16;  // this thread's outputs: rows y, y + 16; columns x, x + 16

    sum_t sum[2][2] = {};
    for (int p0 = 0; p0 < k; p0 += SLICE) {
        for (int i = thread; i < TILE * SLICE; i += 256) {
            int row = i / SLICE, p = i % SLICE;
            bool inside = row0 + row < m && p0 + p < k;
            a_slice[p][row] = inside ? sum_t(a[(int64_t)(row0 + row) * k + p0 + p]) : sum_t(0);
        }
        for (int i = thread; i < SLICE * TILE; i += 256) {
            int p = i / TILE, column = i % TILE;
            bool inside = p0 + p < k && column0 + column < n;
            b_slice[p][column] = inside ? sum_t(b[(int64_t)(p0 + p) * n + column0 + column]) : sum_t(0);
        }
        __syncthreads();
#pragma unroll
        for (int p = 0; p < SLICE; ++p) {
            sum_t a0 = a_slice[p][y], a1 = a_slice[p][y + 16];
            sum_t b0 = b_slice[p][x], b1 = b_slice[p][x + 16];
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

extern "C" void solve(const a_t* a, const b_t* b, c_t* c, int64_t m, int64_t n, int64_t k,
                      cudaStream_t stream) {
    // y is the smaller grid axis (65535), so tall matrices are cut into bands of rows.
    for (int64_t row = 0; row < m; row += (int64_t)65535 * TILE) {
        int64_t rows = m - row < (int64_t)65535 * TILE ? m - row : (int64_t)65535 * TILE;
        dim3 blocks((unsigned)((n + TILE - 1) / TILE), (unsigned)((rows + TILE - 1) / TILE));
        multiply<<<blocks, 256, 0, stream>>>(a + row * k, b, c + row * n, (int)rows, (int)n, (int)k);
    }
}
