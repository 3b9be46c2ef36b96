// FP8 tensor cores with promotion, a block for 128 rows of one group: mma.m16n8k32 on fragments from global memory.
//
// A block's first act is to find which group its tile of 128 rows belongs to. Its four warps take 32 of the rows each
// and 32 columns, as 2 x 4 instructions. Both operands have k contiguous, and a thread's fragment is four neighbouring
// bytes of a row: one 32-bit load. Four instructions make the sum of a block along k, which is scaled and added to
// fp32 registers while the tensor core starts from zero again. The last block may be short: past it is zero.
#include "solve.h"

constexpr int TILE = 32;  // rows and columns of C that a warp computes

__device__ void multiply_add(float (&sum)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Four elements of a row of k, or zeros past the block's end.
__device__ uint32_t four(const __nv_fp8_e4m3* row, int64_t p, int64_t end) {
    return p < end ? *reinterpret_cast<const uint32_t*>(row + p) : 0u;
}

__global__ void __launch_bounds__(BLOCK)
    multiply(const a_t* __restrict__ a, const b_t* __restrict__ b, const float* __restrict__ a_scale,
             const float* __restrict__ b_scale, const int32_t* __restrict__ group_tiles, c_t* __restrict__ c,
             int64_t m, int64_t n, int64_t k, int64_t k_blocks, int64_t n_blocks) {
    int64_t group = 0, last = group_tiles[0];
    while (blockIdx.y >= last) last += group_tiles[++group];

    int lane = threadIdx.x % 32, line = lane / 4, place = lane % 4;  // a fragment's row, and its four columns
    int64_t row0 = (int64_t)blockIdx.y * BLOCK + threadIdx.x / 32 * TILE, column0 = (int64_t)blockIdx.x * TILE;
    b += group * n * k;
    b_scale += (group * n_blocks + column0 / BLOCK) * k_blocks;  // a tile of 32 columns lies in one block

    float total[2][4][4] = {};
    for (int64_t block = 0; block < k_blocks; ++block) {
        float sum[2][4][4] = {};
        int64_t end = block * BLOCK + BLOCK < k ? block * BLOCK + BLOCK : k;
        for (int64_t p = block * BLOCK + 4 * place; p < end; p += 32) {
            uint32_t of_a[2][4], of_b[4][2];
#pragma unroll
            for (int i = 0; i < 2; ++i)
#pragma unroll
                for (int part = 0; part < 4; ++part)
                    of_a[i][part] = four(a + (row0 + 16 * i + line + 8 * (part % 2)) * k, p + 16 * (part / 2), end);
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                int64_t column = column0 + 8 * j + line;
#pragma unroll
                for (int part = 0; part < 2; ++part)
                    of_b[j][part] = column < n ? four(b + column * k, p + 16 * part, end) : 0u;
            }
#pragma unroll
            for (int i = 0; i < 2; ++i)
#pragma unroll
                for (int j = 0; j < 4; ++j) multiply_add(sum[i][j], of_a[i], of_b[j]);
        }
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float scale = a_scale[block * m + row0 + 16 * i + line + 8 * half] * b_scale[block];
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    total[i][j][2 * half] += scale * sum[i][j][2 * half];
                    total[i][j][2 * half + 1] += scale * sum[i][j][2 * half + 1];
                }
            }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
            for (int part = 0; part < 4; ++part) {
                int64_t row = row0 + 16 * i + line + 8 * (part / 2), column = column0 + 8 * j + 2 * place + part % 2;
                if (column < n) c[row * n + column] = c_t(total[i][j][part]);
            }
}

extern "C" void solve(const a_t* a, const b_t* b, const a_scale_t* a_scale, const b_scale_t* b_scale,
                      const group_tiles_t* group_tiles, c_t* c, int64_t m, int64_t n, int64_t k, int64_t groups,
                      int64_t k_blocks, int64_t n_blocks, cudaStream_t stream) {
    dim3 blocks((unsigned)((n + TILE - 1) / TILE), (unsigned)(m / BLOCK));
    multiply<<<blocks, BLOCK, 0, stream>>>(a, b, a_scale, b_scale, group_tiles, c, m, n, k, k_blocks, n_blocks);
}
