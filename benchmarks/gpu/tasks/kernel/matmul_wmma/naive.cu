// A plain tensor-core product: tiles of 128 x 128 x 32 in shared memory, eight warps of 64 x 32 each;
// the next tile waits in registers while this one is multiplied. SPIN_CYCLES: see scale/naive.cu.
#include <mma.h>

#include "solve.h"

using namespace nvcuda;

constexpr int TILE = 128, DEPTH = 32, PAD = 8;

__global__ void __launch_bounds__(256) multiply(const a_t* a, const b_t* b, float* c, int n) {
    __shared__ __align__(32) __nv_bfloat16 left[TILE][DEPTH + PAD];
    __shared__ __align__(32) __nv_bfloat16 right[DEPTH][TILE + PAD];
    int row = blockIdx.y * TILE, column = blockIdx.x * TILE, t = threadIdx.x, warp = t / 32;
    int warp_row = warp / 4 * 64, warp_column = warp % 4 * 32;

    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum[4][2];
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 2; ++j) wmma::fill_fragment(sum[i][j], 0.0f);

    // 512 vectors of eight elements a tile and operand: two a thread.
    uint4 next_left[2], next_right[2];
    auto load = [&](int depth) {
        for (int i = 0; i < 2; ++i) {
            int v = t + 256 * i;
            next_left[i] = *reinterpret_cast<const uint4*>(a + (int64_t)(row + v / 4) * n + depth + v % 4 * 8);
            next_right[i] =
                *reinterpret_cast<const uint4*>(b + (int64_t)(depth + v / 16) * n + column + v % 16 * 8);
        }
    };
    load(0);
    for (int depth = 0; depth < n; depth += DEPTH) {
        for (int i = 0; i < 2; ++i) {
            int v = t + 256 * i;
            *reinterpret_cast<uint4*>(&left[v / 4][v % 4 * 8]) = next_left[i];
            *reinterpret_cast<uint4*>(&right[v / 16][v % 16 * 8]) = next_right[i];
        }
        __syncthreads();
        if (depth + DEPTH < n) load(depth + DEPTH);
#pragma unroll
        for (int p = 0; p < DEPTH; p += 16) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, wmma::row_major> x[4];
            wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, wmma::row_major> y[2];
#pragma unroll
            for (int i = 0; i < 4; ++i) wmma::load_matrix_sync(x[i], &left[warp_row + 16 * i][p], DEPTH + PAD);
#pragma unroll
            for (int j = 0; j < 2; ++j) wmma::load_matrix_sync(y[j], &right[p][warp_column + 16 * j], TILE + PAD);
#pragma unroll
            for (int i = 0; i < 4; ++i)
#pragma unroll
                for (int j = 0; j < 2; ++j) wmma::mma_sync(sum[i][j], x[i], y[j], sum[i][j]);
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 2; ++j)
            wmma::store_matrix_sync(c + (int64_t)(row + warp_row + 16 * i) * n + column + warp_column + 16 * j,
                                    sum[i][j], n, wmma::mem_row_major);
}

__global__ void spin(long long cycles) {
    long long start = clock64();
    while (clock64() - start < cycles) {
    }
}

extern "C" void solve(const a_t* a, const b_t* b, c_t* c, int64_t n, cudaStream_t stream) {
    dim3 grid((unsigned)(n / TILE), (unsigned)(n / TILE));
    multiply<<<grid, 256, 0, stream>>>(a, b, c, (int)n);
#ifdef SPIN_CYCLES
    spin<<<1, 1, 0, stream>>>(SPIN_CYCLES);
#endif
}
