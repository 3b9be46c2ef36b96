// Tiles that never cross a group: each block finds its own, then multiplies through shared memory.
//
// A group of r rows makes ceil(r / 32) tiles, so there are fewer than m / 32 + groups of them in all, and that many
// blocks are launched: the host knows no more. A block adds up tiles until it has found the group that its
// number falls into; blocks beyond the last tile leave. Then it is an ordinary product: slices of 16 along k of
// 32 rows of A and 32 of the group's matrix in shared memory, 2 x 2 elements a thread, and rows past the
// group's end are neither read nor written.
#include "solve.h"

constexpr int TILE = 32, SLICE = 16;

__global__ void __launch_bounds__(256)
    multiply(const a_t* __restrict__ a, const b_t* __restrict__ b, const int32_t* __restrict__ group_rows,
             c_t* __restrict__ c, int64_t n, int64_t k, int groups) {
    __shared__ float a_slice[SLICE][TILE + 1], b_slice[SLICE][TILE + 1];
    int64_t tile = blockIdx.y, first = 0;
    int group = 0, rows = 0;
    for (; group < groups; ++group) {
        rows = group_rows[group];
        int tiles = (rows + TILE - 1) / TILE;
        if (tile < tiles) break;
        tile -= tiles;
        first += rows;
    }
    if (group == groups) return;
    first += tile * TILE;
    rows -= (int)tile * TILE;  // of this group, from the tile's first row on
    int64_t column0 = (int64_t)blockIdx.x * TILE;
    b += group * n * k;

    int thread = threadIdx.x, y = thread / 16, x = thread % 16;
    float sum[2][2] = {};
    for (int64_t p0 = 0; p0 < k; p0 += SLICE) {
        for (int i = thread; i < TILE * SLICE; i += 256) {
            int line = i / SLICE, p = i % SLICE;
            bool inside = p0 + p < k;
            a_slice[p][line] = inside && line < rows ? float(a[(first + line) * k + p0 + p]) : 0.0f;
            b_slice[p][line] = inside && column0 + line < n ? float(b[(column0 + line) * k + p0 + p]) : 0.0f;
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
            int64_t line = y + 16 * i, column = column0 + x + 16 * j;
            if (line < rows && column < n) c[(first + line) * n + column] = c_t(sum[i][j]);
        }
}

extern "C" void solve(const a_t* a, const b_t* b, const group_rows_t* group_rows, c_t* c, int64_t m, int64_t n,
                      int64_t k, int64_t groups, cudaStream_t stream) {
    dim3 blocks((unsigned)((n + TILE - 1) / TILE), (unsigned)(m / TILE + groups));
    multiply<<<blocks, 256, 0, stream>>>(a, b, group_rows, c, n, k, (int)groups);
}
