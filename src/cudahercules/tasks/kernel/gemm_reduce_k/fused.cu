// One kernel: a tile of 32 x 32 through shared memory, and the blocks of the first column of tiles sum what they read of A.
//
// Both operands lie along their rows or columns of C, so that a slice of 16 along k is 16 runs of 32 neighbours. The sums
// need every element of A once, and a block has them in shared memory anyway: 32 of its threads add them up.
#include "solve.h"

constexpr int TILE = 32, SLICE = 16;

__global__ void __launch_bounds__(256) multiply(const a_t* __restrict__ a, const b_t* __restrict__ b, c_t* c, sum_t* sum,
                                                int64_t m, int64_t n, int64_t k) {
    __shared__ float a_slice[SLICE][TILE], b_slice[SLICE][TILE];
    int64_t row0 = blockIdx.y * (int64_t)TILE, column0 = blockIdx.x * (int64_t)TILE;
    int x = threadIdx.x % 32, y = threadIdx.x / 32;  // this thread's outputs: column x, rows y, y + 8, y + 16, y + 24
    bool sums = blockIdx.x == 0 && y == 0;           // and row x of the sums

    float total[4] = {}, of_row = 0.0f;
    for (int64_t p0 = 0; p0 < k; p0 += SLICE) {
        for (int p = y; p < SLICE; p += 8) {
            a_slice[p][x] = p0 + p < k && row0 + x < m ? float(a[(p0 + p) * m + row0 + x]) : 0.0f;
            b_slice[p][x] = p0 + p < k && column0 + x < n ? float(b[(p0 + p) * n + column0 + x]) : 0.0f;
        }
        __syncthreads();
        for (int p = 0; p < SLICE; ++p) {
            for (int i = 0; i < 4; ++i) total[i] += a_slice[p][y + 8 * i] * b_slice[p][x];
            if (sums) of_row += a_slice[p][x];
        }
        __syncthreads();
    }
    for (int i = 0; i < 4; ++i)
        if (row0 + y + 8 * i < m && column0 + x < n) c[(row0 + y + 8 * i) * n + column0 + x] = c_t(total[i]);
    if (sums && row0 + x < m) sum[row0 + x] = sum_t(of_row);
}

extern "C" void solve(const a_t* a, const b_t* b, c_t* c, sum_t* sum, int64_t m, int64_t n, int64_t k,
                      cudaStream_t stream) {
    dim3 blocks((unsigned)((n + TILE - 1) / TILE), (unsigned)((m + TILE - 1) / TILE));
    multiply<<<blocks, 256, 0, stream>>>(a, b, c, sum, m, n, k);
}
