// One kernel, a block for a row: a warp takes columns one after the other, its lanes going along k.
//
// The products stay in shared memory. A column is chosen if fewer than TOP others come before it, that is, are larger
// or equal and further left; so every thread decides about its columns without looking for the largest.
#include "solve.h"

constexpr int THREADS = 128, CHUNK = 512;

__global__ void __launch_bounds__(THREADS) product_and_choice(const a_t* a, const b_t* b, float* scratch, d_t* d,
                                                              int64_t n, int64_t k, float alpha) {
    __shared__ float near[CHUNK], shared_sum[THREADS / 32];
    float* products = n <= CHUNK ? near : scratch + blockIdx.x * n;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    a += blockIdx.x * k;
    d += blockIdx.x * n;
    for (int64_t j = warp; j < n; j += THREADS / 32) {
        float sum = 0.0f;
        for (int64_t p = lane; p < k; p += 32) sum += float(a[p]) * float(b[j * k + p]);
        for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
        if (lane == 0) products[j] = sum;
    }
    __syncthreads();

    float largest = -INFINITY;
    for (int64_t c = 0; c < n; ++c) largest = fmaxf(largest, products[c]);
    float sum = 0.0f;
    for (int64_t j = threadIdx.x; j < n; j += THREADS) {
        int before = 0;
        for (int64_t c = 0; c < n; ++c)
            before += products[c] > products[j] || (products[c] == products[j] && c < j);
        float weight = before < TOP ? expf(alpha * (products[j] - largest)) : 0.0f;
        sum += weight;
        if (before >= TOP) d[j] = d_t(0.0f);
    }
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (lane == 0) shared_sum[warp] = sum;
    __syncthreads();
    float total = 0.0f;
    for (int i = 0; i < THREADS / 32; ++i) total += shared_sum[i];
    for (int64_t j = threadIdx.x; j < n; j += THREADS) {
        int before = 0;
        for (int64_t c = 0; c < n; ++c)
            before += products[c] > products[j] || (products[c] == products[j] && c < j);
        if (before < TOP) d[j] = d_t(expf(alpha * (products[j] - largest)) / total);
    }
}

extern "C" void solve(const a_t* a, const b_t* b, d_t* d, int64_t m, int64_t n, int64_t k, float alpha,
                      cudaStream_t stream) {
    float* scratch = nullptr;
    if (n > CHUNK) cudaMallocAsync((void**)&scratch, m * n * sizeof(float), stream);
    product_and_choice<<<(unsigned)m, THREADS, 0, stream>>>(a, b, scratch, d, n, k, alpha);
    if (scratch) cudaFreeAsync(scratch, stream);
}
