// Tiles through shared memory, longest sums first, and a mask where the diagonal is crossed.
//
// A block computes 32 x 32 elements of C and walks along its rows of A in steps of 16, up to the last column that
// any of them has. Zeros take the place of what lies above the diagonal. Blocks start at the bottom of C, where sums
// are longest.
#include "solve.h"

constexpr int TILE = 32, STEP = 16, ROWS = 4, THREADS = TILE * TILE / ROWS;

__global__ void multiply(const a_t* a, const b_t* b, c_t* c, int64_t m, int64_t n, c_t alpha) {
    __shared__ c_t left[TILE][STEP + 1], right[STEP][TILE];
    int64_t first_row = (gridDim.y - 1 - blockIdx.y) * (int64_t)TILE, first_column = blockIdx.x * (int64_t)TILE;
    int thread = threadIdx.y * TILE + threadIdx.x;
    int64_t end = first_row + TILE < m ? first_row + TILE : m;  // of the longest row's sum
    c_t sums[ROWS] = {};
    for (int64_t from = 0; from < end; from += STEP) {
        for (int i = thread; i < TILE * STEP; i += THREADS) {
            int64_t row = first_row + i / STEP, p = from + i % STEP;
            left[i / STEP][i % STEP] = row < m && p <= row ? a[row * m + p] : c_t(0);
        }
        for (int i = thread; i < STEP * TILE; i += THREADS) {
            int64_t p = from + i / TILE, column = first_column + i % TILE;
            right[i / TILE][i % TILE] = p < m && column < n ? b[p * n + column] : c_t(0);
        }
        __syncthreads();
        for (int p = 0; p < STEP; ++p) {
            c_t other = right[p][threadIdx.x];
            for (int i = 0; i < ROWS; ++i) sums[i] += left[threadIdx.y * ROWS + i][p] * other;
        }
        __syncthreads();
    }
    int64_t column = first_column + threadIdx.x;
    for (int i = 0; i < ROWS; ++i) {
        int64_t row = first_row + threadIdx.y * ROWS + i;
        if (row < m && column < n) c[row * n + column] = alpha * sums[i];
    }
}

extern "C" void solve(const a_t* a, const b_t* b, c_t* c, int64_t m, int64_t n, c_t alpha, cudaStream_t stream) {
    dim3 threads(TILE, TILE / ROWS), blocks((unsigned)((n + TILE - 1) / TILE), (unsigned)((m + TILE - 1) / TILE));
    multiply<<<blocks, threads, 0, stream>>>(a, b, c, m, n, alpha);
}
