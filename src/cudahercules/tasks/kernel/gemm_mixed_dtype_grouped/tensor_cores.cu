// Tensor cores; tiles of 16 rows never cross from one expert to the next.
//
// There are at most rows / 16 + experts such tiles, which is known without the lengths: that many blocks start, and
// each walks through the lengths to find its tile or that there is none. A warp computes 16 rows by 8 columns;
// weights are scaled in registers and rounded to bf16 before they are multiplied.
#include "solve.h"

constexpr int WARPS = 4;

// Weights p and p + 1 of a group (p is even), scaled, as two bf16 with p in the low half.
__device__ uint32_t decode_pair(const w_t* group, int p, float scale) {
#if FORMAT == 4
    int byte = group[p / 2];
    float low = float(int(byte << 28) >> 28), high = float(int(byte << 24) >> 28);
#else
    float low = float(group[p]), high = float(group[p + 1]);
#endif
    __nv_bfloat162 pair = __floats2bfloat162_rn(low * scale, high * scale);
    return *(uint32_t*)&pair;
}

__global__ void __launch_bounds__(WARPS * 32)
    multiply(const a_t* a, const w_t* w, const scale_t* scale, const length_t* length, c_t* c, int64_t experts,
             int64_t n, int64_t groups) {
    int64_t tile = blockIdx.y, begin = 0, expert = 0;
    while (expert < experts && tile >= (length[expert] + 15) / 16) {
        tile -= (length[expert] + 15) / 16;
        begin += length[expert++];
    }
    if (expert == experts) return;
    int64_t end = begin + length[expert];

    int warp = threadIdx.x / 32, row_in = threadIdx.x % 32 / 4, pair_in = threadIdx.x % 4 * 2;
    int64_t row = begin + tile * 16 + row_in, column = (blockIdx.x * (int64_t)WARPS + warp) * 8 + row_in;
    bool real = column < n, upper = row < end, lower = row + 8 < end;
    const w_t* weights = w + (expert * n + (real ? column : 0)) * groups * GROUP_BYTES;
    const a_t* first = a + (upper ? row : begin) * groups * GROUP;
    const a_t* second = a + (lower ? row + 8 : begin) * groups * GROUP;

    float sum[4] = {};
    for (int64_t g = 0; g < groups; ++g, weights += GROUP_BYTES, first += GROUP, second += GROUP) {
        float factor = float(scale[(expert * groups + g) * n + (real ? column : 0)]);
        for (int p = pair_in; p < GROUP; p += 16) {
            uint32_t b0 = decode_pair(weights, p, factor), b1 = decode_pair(weights, p + 8, factor);
            uint32_t a0 = *(const uint32_t*)(first + p), a2 = *(const uint32_t*)(first + p + 8);
            uint32_t a1 = *(const uint32_t*)(second + p), a3 = *(const uint32_t*)(second + p + 8);
            asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                         : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                         : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
        }
    }
    int64_t out = (blockIdx.x * (int64_t)WARPS + warp) * 8 + pair_in;
    for (int i = 0; i < 4; ++i)
        if ((i < 2 ? upper : lower) && out + i % 2 < n) c[(row + i / 2 * 8) * n + out + i % 2] = c_t(sum[i]);
}

extern "C" void solve(const a_t* a, const w_t* w, const scale_t* scale, const length_t* length, c_t* c,
                      int64_t rows, int64_t experts, int64_t n, int64_t groups, cudaStream_t stream) {
    dim3 blocks((unsigned)((n + WARPS * 8 - 1) / (WARPS * 8)), (unsigned)(rows / 16 + experts));
    multiply<<<blocks, WARPS * 32, 0, stream>>>(a, w, scale, length, c, experts, n, groups);
}
