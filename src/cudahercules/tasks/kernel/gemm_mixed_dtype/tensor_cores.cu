// Tensor cores on weights that are decoded in registers.
//
// A warp computes 16 rows by 8 columns. The fragments of mma.m16n8k16 hold pairs of neighbours along k, and both
// operands lie along k in memory, so that each lane loads its pairs directly: four bytes of activations, two
// weights. A weight is scaled before it is multiplied and rounded to bf16, as kernels do that keep one
// accumulator for all groups. The other style, a sum a group that is scaled in fp32, is in naive.cu.
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

__global__ void __launch_bounds__(WARPS * 32) multiply(const a_t* a, const w_t* w, const scale_t* scale, c_t* c,
                                                       int64_t m, int64_t n, int64_t groups) {
    int warp = threadIdx.x / 32, row_in = threadIdx.x % 32 / 4, pair_in = threadIdx.x % 4 * 2;
    int64_t row = blockIdx.y * (int64_t)16 + row_in, column = (blockIdx.x * (int64_t)WARPS + warp) * 8 + row_in;
    bool real = column < n, upper = row < m, lower = row + 8 < m;
    const w_t* weights = w + (real ? column : 0) * groups * GROUP_BYTES;
    const a_t* first = a + (upper ? row : 0) * groups * GROUP;
    const a_t* second = a + (lower ? row + 8 : 0) * groups * GROUP;

    float sum[4] = {};
    for (int64_t g = 0; g < groups; ++g, weights += GROUP_BYTES, first += GROUP, second += GROUP) {
        float factor = float(scale[g * n + (real ? column : 0)]);
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

extern "C" void solve(const a_t* a, const w_t* w, const scale_t* scale, c_t* c, int64_t m, int64_t n,
                      int64_t groups, cudaStream_t stream) {
    dim3 blocks((unsigned)((n + WARPS * 8 - 1) / (WARPS * 8)), (unsigned)((m + 15) / 16));
    multiply<<<blocks, WARPS * 32, 0, stream>>>(a, w, scale, c, m, n, groups);
}
