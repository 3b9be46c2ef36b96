// Small products packed side by side: a warp computes one whole product, eight warps a block.
//
// Lanes take the elements of their product's C in turns, in the order in which they lie in memory, so that stores
// are coalesced however odd the extents are. The row of A and the columns of B that they share come through the
// L1 cache. Warps walk over the batch with the whole grid's stride, so the grid's size does not depend on it.
#include "solve.h"

constexpr int WARPS = 8;

__global__ void __launch_bounds__(32 * WARPS)
    multiply(const a_t* __restrict__ a, const b_t* __restrict__ b, c_t* __restrict__ c, int64_t batch, int m, int n,
             int k) {
    int lane = threadIdx.x % 32;
    for (int64_t product = blockIdx.x * (int64_t)WARPS + threadIdx.x / 32; product < batch;
         product += (int64_t)gridDim.x * WARPS) {
        const a_t* of_a = a + product * m * k;
        const b_t* of_b = b + product * k * n;
        for (int64_t i = lane; i < (int64_t)m * n; i += 32) {
            int row = (int)(i / n), column = (int)(i % n);
            float sum = 0.0f;
            for (int p = 0; p < k; ++p) sum += float(of_a[(int64_t)row * k + p]) * float(of_b[(int64_t)p * n + column]);
            c[product * m * n + i] = c_t(sum);
        }
    }
}

extern "C" void solve(const a_t* a, const b_t* b, c_t* c, int64_t batch, int64_t m, int64_t n, int64_t k,
                      cudaStream_t stream) {
    int64_t blocks = (batch + WARPS - 1) / WARPS;
    multiply<<<(unsigned)(blocks < 4096 ? blocks : 4096), 32 * WARPS, 0, stream>>>(a, b, c, batch, (int)m, (int)n,
                                                                                  (int)k);
}
