// As many blocks as there are tiles on or below the diagonal, and both operands through shared memory.
//
// A block turns its number t into the tile (i, j), j <= i, whose number is i (i + 1) / 2 + j. The square root may
// err by one for large numbers, so it is corrected. A tile is 32 x 32; a thread computes four elements under each
// other.
#include "solve.h"

constexpr int TILE = 32, STEP = 16, ROWS = 4;

__device__ int2 tile_of(int64_t number) {  // {row, column}
    int64_t row = (int64_t)((sqrt(8.0 * (double)number + 1.0) - 1.0) / 2.0);
    while (row * (row + 1) / 2 > number) --row;
    while ((row + 1) * (row + 2) / 2 <= number) ++row;
    return make_int2((int)row, (int)(number - row * (row + 1) / 2));
}

// Rows first .. first + TILE and columns from .. from + STEP of A, with zeros beyond its edges.
__device__ void load(c_t (&tile)[TILE][STEP + 1], const a_t* a, int64_t first, int64_t from, int64_t n,
                     int64_t k) {
    for (int i = threadIdx.y * TILE + threadIdx.x; i < TILE * STEP; i += TILE * TILE / ROWS) {
        int64_t row = first + i / STEP, column = from + i % STEP;
        tile[i / STEP][i % STEP] = row < n && column < k ? a[row * k + column] : c_t(0);
    }
}

__global__ void update(const a_t* a, c_t* c, int64_t n, int64_t k, c_t alpha, c_t beta) {
    __shared__ c_t left[TILE][STEP + 1], right[TILE][STEP + 1];
    int2 tile = tile_of(blockIdx.x);
    int64_t first_row = tile.x * (int64_t)TILE, first_column = tile.y * (int64_t)TILE;
    c_t sums[ROWS] = {};
    for (int64_t from = 0; from < k; from += STEP) {
        load(left, a, first_row, from, n, k);
        load(right, a, first_column, from, n, k);
        __syncthreads();
        for (int p = 0; p < STEP; ++p) {
            c_t other = right[threadIdx.x][p];
            for (int i = 0; i < ROWS; ++i) sums[i] += left[threadIdx.y * ROWS + i][p] * other;
        }
        __syncthreads();
    }
    int64_t column = first_column + threadIdx.x;
    for (int i = 0; i < ROWS; ++i) {
        int64_t row = first_row + threadIdx.y * ROWS + i;
        if (row < n && column <= row) c[row * n + column] = alpha * sums[i] + beta * c[row * n + column];
    }
}

extern "C" void solve(const a_t* a, c_t* c, int64_t n, int64_t k, c_t alpha, c_t beta, cudaStream_t stream) {
    int64_t tiles = (n + TILE - 1) / TILE;
    dim3 threads(TILE, TILE / ROWS);
    update<<<(unsigned)(tiles * (tiles + 1) / 2), threads, 0, stream>>>(a, c, n, k, alpha, beta);
}
