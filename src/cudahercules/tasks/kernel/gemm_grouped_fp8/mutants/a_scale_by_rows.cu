// expect: incorrect — reads the scales of A as if those of one row were neighbours
#include "solve.h"

__global__ void multiply(const a_t* a, const b_t* b, const float* a_scale, const float* b_scale,
                         const int32_t* group_tiles, c_t* c, int64_t m, int64_t n, int64_t k, int64_t k_blocks,
                         int64_t n_blocks) {
    int64_t column = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    int64_t row = blockIdx.y * (int64_t)blockDim.y + threadIdx.y;
    if (column >= n) return;

    int64_t group = 0, end = group_tiles[0], tile = row / BLOCK;
    while (tile >= end) end += group_tiles[++group];

    const b_t* matrix = b + group * n * k;
    const float* scales = b_scale + (group * n_blocks + column / BLOCK) * k_blocks;
    float total = 0.0f;
    for (int64_t block = 0; block < k_blocks; ++block) {
        int64_t stop = block * BLOCK + BLOCK < k ? block * BLOCK + BLOCK : k;
        float sum = 0.0f;
        for (int64_t p = block * BLOCK; p < stop; ++p) sum += float(a[row * k + p]) * float(matrix[column * k + p]);
        total += a_scale[row * k_blocks + block] * scales[block] * sum;
    }
    c[row * n + column] = c_t(total);
}

extern "C" void solve(const a_t* a, const b_t* b, const a_scale_t* a_scale, const b_scale_t* b_scale,
                      const group_tiles_t* group_tiles, c_t* c, int64_t m, int64_t n, int64_t k, int64_t groups,
                      int64_t k_blocks, int64_t n_blocks, cudaStream_t stream) {
    dim3 threads(32, 8), blocks((unsigned)((n + 31) / 32), (unsigned)(m / 8));
    multiply<<<blocks, threads, 0, stream>>>(a, b, a_scale, b_scale, group_tiles, c, m, n, k, k_blocks, n_blocks);
}
