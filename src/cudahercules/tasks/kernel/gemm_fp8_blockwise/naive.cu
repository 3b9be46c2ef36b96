// One thread computes one element of C, a block of 128 along k after the other.
//
// The products of a block are summed without scales, which are the same for all of them; the block's sum is
// scaled by both and added. Everything is fp32 until the one rounding at the end. Reads of B are not coalesced,
// and the caches are all that helps.
#include "solve.h"

constexpr int BLOCK = 128;

__global__ void multiply(const a_t* a, const b_t* b, const float* a_scale, const float* b_scale, c_t* c,
                         int64_t m, int64_t n, int64_t k, int64_t k_blocks) {
    int64_t column = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    int64_t row = blockIdx.y * (int64_t)blockDim.y + threadIdx.y;
    if (row >= m || column >= n) return;

    float total = 0.0f;
    for (int64_t block = 0; block < k_blocks; ++block) {
        int64_t end = block * BLOCK + BLOCK < k ? block * BLOCK + BLOCK : k;
        float sum = 0.0f;
        for (int64_t p = block * BLOCK; p < end; ++p) sum += float(a[row * k + p]) * float(b[column * k + p]);
        float of_a = a_scale[block * m + row];
        float of_b = B_ROWS == 1 ? b_scale[block * n + column] : b_scale[column / B_ROWS * k_blocks + block];
        total += of_a * of_b * sum;
    }
    c[row * n + column] = c_t(total);
}

extern "C" void solve(const a_t* a, const b_t* b, const a_scale_t* a_scale, const b_scale_t* b_scale, c_t* c,
                      int64_t m, int64_t n, int64_t k, int64_t k_blocks, int64_t n_blocks, cudaStream_t stream) {
    dim3 threads(32, 8), blocks((unsigned)((n + 31) / 32), (unsigned)((m + 7) / 8));
    multiply<<<blocks, threads, 0, stream>>>(a, b, a_scale, b_scale, c, m, n, k, k_blocks);
}
