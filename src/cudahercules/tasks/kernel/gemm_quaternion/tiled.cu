// Tiles of quaternions in shared memory, a patch of 2 x 2 quaternions a thread.
//
// Four quaternions read from shared memory pay for 64 multiply-adds, so the loads are never in the way. A block of
// 16 x 16 threads computes 32 x 32 quaternions in steps of eight; zeros fill the tiles beyond the edges.
#include "solve.h"

constexpr int TILE = 32, STEP = 8, SIDE = 16;

__device__ void multiply_add(float4& sum, float4 u, float4 v) {
    sum.x += u.x * v.x - u.y * v.y - u.z * v.z - u.w * v.w;
    sum.y += u.x * v.y + u.y * v.x + u.z * v.w - u.w * v.z;
    sum.z += u.x * v.z - u.y * v.w + u.z * v.x + u.w * v.y;
    sum.w += u.x * v.w + u.y * v.z - u.z * v.y + u.w * v.x;
}

__global__ void __launch_bounds__(SIDE * SIDE)
    multiply(const float4* a, const float4* b, float4* c, int64_t m, int64_t n, int64_t k) {
    __shared__ float4 left[STEP][TILE + 1], right[STEP][TILE];
    int64_t first_row = blockIdx.y * (int64_t)TILE, first_column = blockIdx.x * (int64_t)TILE;
    int x = threadIdx.x, y = threadIdx.y, thread = y * SIDE + x;
    float4 zero = make_float4(0.0f, 0.0f, 0.0f, 0.0f), sums[2][2] = {{zero, zero}, {zero, zero}};
    for (int64_t from = 0; from < k; from += STEP) {
        int64_t row = first_row + thread / STEP, p = from + thread % STEP;
        left[thread % STEP][thread / STEP] = row < m && p < k ? a[row * k + p] : zero;
        p = from + thread / TILE;
        int64_t column = first_column + thread % TILE;
        right[thread / TILE][thread % TILE] = p < k && column < n ? b[p * n + column] : zero;
        __syncthreads();
        for (int q = 0; q < STEP; ++q)
            for (int i = 0; i < 2; ++i)
                for (int j = 0; j < 2; ++j)
                    multiply_add(sums[i][j], left[q][y + SIDE * i], right[q][x + SIDE * j]);
        __syncthreads();
    }
    for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 2; ++j) {
            int64_t row = first_row + y + SIDE * i, column = first_column + x + SIDE * j;
            if (row < m && column < n) c[row * n + column] = sums[i][j];
        }
}

extern "C" void solve(const a_t* a, const b_t* b, c_t* c, int64_t m, int64_t n, int64_t k, cudaStream_t stream) {
    dim3 threads(SIDE, SIDE), blocks((unsigned)((n + TILE - 1) / TILE), (unsigned)((m + TILE - 1) / TILE));
    multiply<<<blocks, threads, 0, stream>>>((const float4*)a, (const float4*)b, (float4*)c, m, n, k);
}
