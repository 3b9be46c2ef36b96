// INT8 tensor cores, one warp at a time: mma.m16n8k32 on fragments that come straight from global memory.
//
// Both operands have k contiguous, and a thread's fragment is four neighbouring bytes of a row: one 32-bit load
// each, without any shuffling or shared memory. A warp computes 32 x 32 elements of C as 2 x 4 instructions. A thread
// ends with pairs of neighbours in a row; it rounds, clamps and stores both at once. k is a multiple of 16 and an
// instruction takes 32: the upper half of the last one may be zero.
#include "solve.h"

constexpr int TILE = 32;  // rows and columns of C that a warp computes
constexpr int WARPS = 4;

__device__ void multiply_add(int (&sum)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Four elements of a row of k, or zeros past the matrix's edge.
__device__ uint32_t four(const int8_t* matrix, int64_t row, int64_t rows, int64_t p, int64_t k) {
    return row < rows && p < k ? *reinterpret_cast<const uint32_t*>(matrix + row * k + p) : 0u;
}

__device__ char rounded(int sum, float scale) {
    return (char)max(-128, min(127, __float2int_rn((float)sum * scale)));
}

__global__ void __launch_bounds__(32 * WARPS)
    multiply(const a_t* __restrict__ a, const b_t* __restrict__ b, c_t* __restrict__ c, int64_t m, int64_t n,
             int64_t k, float scale) {
    int lane = threadIdx.x % 32, group = lane / 4, place = lane % 4;  // a fragment's row, and its four columns
    int64_t row0 = (int64_t)blockIdx.y * TILE;
    int64_t column0 = ((int64_t)blockIdx.x * WARPS + threadIdx.x / 32) * TILE;
    if (column0 >= n) return;

    int sum[2][4][4] = {};
    for (int64_t p = 4 * place; p < k; p += 32) {
        uint32_t of_a[2][4], of_b[4][2];
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
            for (int part = 0; part < 4; ++part)
                of_a[i][part] = four(a, row0 + 16 * i + group + 8 * (part % 2), m, p + 16 * (part / 2), k);
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
            for (int part = 0; part < 2; ++part) of_b[j][part] = four(b, column0 + 8 * j + group, n, p + 16 * part, k);
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
            for (int half = 0; half < 2; ++half) {
                int64_t row = row0 + 16 * i + group + 8 * half, column = column0 + 8 * j + 2 * place;
                if (row >= m || column >= n) continue;
                char2 pair = make_char2(rounded(sum[i][j][2 * half], scale), rounded(sum[i][j][2 * half + 1], scale));
                *reinterpret_cast<char2*>(c + row * n + column) = pair;
            }
}

extern "C" void solve(const a_t* a, const b_t* b, c_t* c, int64_t m, int64_t n, int64_t k, float scale,
                      cudaStream_t stream) {
    dim3 blocks((unsigned)((n + TILE * WARPS - 1) / (TILE * WARPS)), (unsigned)((m + TILE - 1) / TILE));
    multiply<<<blocks, 32 * WARPS, 0, stream>>>(a, b, c, m, n, k, scale);
}
