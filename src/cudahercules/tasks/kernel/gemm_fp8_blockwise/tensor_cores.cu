// FP8 tensor cores with promotion: mma.m16n8k32 sums a block of 128 along k, and fp32 registers sum the blocks.
//
// A warp computes 32 x 32 elements of C as 2 x 4 instructions. Both operands have k contiguous, and a thread's
// fragment is four neighbouring bytes of a row: one 32-bit load each, straight from global memory. Four
// instructions make the sum of a block; it is scaled by what belongs to the element's row and column and added
// to the total, while the tensor core starts from zero again. The last block may be short, and k a multiple
// of 16 only: what lies past the edge is zero.
#include "solve.h"

constexpr int TILE = 32;  // rows and columns of C that a warp computes
constexpr int WARPS = 4, BLOCK = 128;

__device__ void multiply_add(float (&sum)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Four elements of a row of k, or zeros past the last row and past the block's end.
__device__ uint32_t four(const __nv_fp8_e4m3* matrix, int64_t row, int64_t rows, int64_t p, int64_t end,
                         int64_t k) {
    return row < rows && p < end ? *reinterpret_cast<const uint32_t*>(matrix + row * k + p) : 0u;
}

__global__ void __launch_bounds__(32 * WARPS)
    multiply(const a_t* __restrict__ a, const b_t* __restrict__ b, const float* __restrict__ a_scale,
             const float* __restrict__ b_scale, c_t* __restrict__ c, int64_t m, int64_t n, int64_t k,
             int64_t k_blocks) {
    int lane = threadIdx.x % 32, group = lane / 4, place = lane % 4;  // a fragment's row, and its four columns
    int64_t row0 = (int64_t)blockIdx.y * TILE;
    int64_t column0 = ((int64_t)blockIdx.x * WARPS + threadIdx.x / 32) * TILE;
    if (column0 >= n) return;

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
                    of_a[i][part] = four(a, row0 + 16 * i + group + 8 * (part % 2), m, p + 16 * (part / 2), end, k);
#pragma unroll
            for (int j = 0; j < 4; ++j)
#pragma unroll
                for (int part = 0; part < 2; ++part)
                    of_b[j][part] = four(b, column0 + 8 * j + group, n, p + 16 * part, end, k);
#pragma unroll
            for (int i = 0; i < 2; ++i)
#pragma unroll
                for (int j = 0; j < 4; ++j) multiply_add(sum[i][j], of_a[i], of_b[j]);
        }
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
            for (int j = 0; j < 4; ++j)
#pragma unroll
                for (int part = 0; part < 4; ++part) {
                    int64_t row = row0 + 16 * i + group + 8 * (part / 2);
                    int64_t column = column0 + 8 * j + 2 * place + part % 2;
                    if (row >= m || column >= n) continue;
                    float of_b = B_ROWS == 1 ? b_scale[block * n + column] : b_scale[column / B_ROWS * k_blocks + block];
                    total[i][j][part] += a_scale[block * m + row] * of_b * sum[i][j][part];
                }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
            for (int part = 0; part < 4; ++part) {
                int64_t row = row0 + 16 * i + group + 8 * (part / 2), column = column0 + 8 * j + 2 * place + part % 2;
                if (row < m && column < n) c[row * n + column] = c_t(total[i][j][part]);
            }
}

extern "C" void solve(const a_t* a, const b_t* b, const a_scale_t* a_scale, const b_scale_t* b_scale, c_t* c,
                      int64_t m, int64_t n, int64_t k, int64_t k_blocks, int64_t n_blocks, cudaStream_t stream) {
    dim3 blocks((unsigned)((n + TILE * WARPS - 1) / (TILE * WARPS)), (unsigned)((m + TILE - 1) / TILE));
    multiply<<<blocks, 32 * WARPS, 0, stream>>>(a, b, a_scale, b_scale, c, m, n, k, k_blocks);
}
