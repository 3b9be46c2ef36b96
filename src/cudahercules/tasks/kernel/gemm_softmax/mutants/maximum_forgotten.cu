// expect: incorrect — takes exp of the logits as they are, which overflows where they are large
#include "solve.h"

constexpr int THREADS = 256;

__global__ void multiply(const a_t* a, const b_t* b, float* products, int64_t m, int64_t n, int64_t k) {
    int64_t column = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    int64_t row = blockIdx.y * (int64_t)blockDim.y + threadIdx.y;
    if (row >= m || column >= n) return;
    float sum = 0.0f;
    for (int64_t p = 0; p < k; ++p) sum += float(a[row * k + p]) * float(b[p * n + column]);
    products[row * n + column] = sum;
}

// The largest value, or the sum of all values, over the threads of the block, in every thread.
template <bool SUM>
__device__ float block_reduce(float value, float* scratch) {
    scratch[threadIdx.x] = value;
    __syncthreads();
    for (int width = THREADS / 2; width > 0; width /= 2) {
        if (threadIdx.x < width) {
            float other = scratch[threadIdx.x + width];
            scratch[threadIdx.x] = SUM ? scratch[threadIdx.x] + other : fmaxf(scratch[threadIdx.x], other);
        }
        __syncthreads();
    }
    float result = scratch[0];
    __syncthreads();  // before scratch is written again
    return result;
}

__global__ void softmax(const float* products, d_t* d, int64_t n, float alpha) {
    __shared__ float scratch[THREADS];
    products += blockIdx.x * n;
    d += blockIdx.x * n;

    float largest = -INFINITY;
    for (int64_t j = threadIdx.x; j < n; j += THREADS) largest = fmaxf(largest, alpha * products[j]);
    largest = block_reduce<false>(largest, scratch);

    float sum = 0.0f;
    for (int64_t j = threadIdx.x; j < n; j += THREADS) sum += expf(alpha * products[j]);
    sum = block_reduce<true>(sum, scratch);

    for (int64_t j = threadIdx.x; j < n; j += THREADS)
        d[j] = d_t(expf(alpha * products[j]) / sum);
}

extern "C" void solve(const a_t* a, const b_t* b, d_t* d, int64_t m, int64_t n, int64_t k, float alpha,
                      cudaStream_t stream) {
    float* products;
    cudaMallocAsync((void**)&products, m * n * sizeof(float), stream);
    dim3 threads(32, 8), blocks((unsigned)((n + 31) / 32), (unsigned)((m + 7) / 8));
    multiply<<<blocks, threads, 0, stream>>>(a, b, products, m, n, k);
    softmax<<<(unsigned)m, THREADS, 0, stream>>>(products, d, n, alpha);
    cudaFreeAsync(products, stream);
}
