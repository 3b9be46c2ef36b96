// Two kernels: the norm into scratch, one block a row; then the product, one thread an element.
//
// The normalised rows stay fp32. The product's threads read their row of W from end to end; neighbouring threads
// take neighbouring columns of C, so nothing is coalesced, and the caches are all that helps.
#include "solve.h"

constexpr int THREADS = 256;

__global__ void normalise(const x_t* x, const gain_t* gain, float* h, int64_t k, float eps) {
    __shared__ float scratch[THREADS];
    x += blockIdx.x * k;
    h += blockIdx.x * k;

    float squares = 0.0f;
    for (int64_t p = threadIdx.x; p < k; p += THREADS) squares += float(x[p]) * float(x[p]);
    scratch[threadIdx.x] = squares;
    __syncthreads();
    for (int width = THREADS / 2; width > 0; width /= 2) {
        if (threadIdx.x < width) scratch[threadIdx.x] += scratch[threadIdx.x + width];
        __syncthreads();
    }
    float r = 1.0f / sqrtf(scratch[0] / k + eps);
    for (int64_t p = threadIdx.x; p < k; p += THREADS) h[p] = float(x[p]) * r * float(gain[p]);
}

__global__ void multiply(const float* h, const w_t* w, c_t* c, int64_t m, int64_t n, int64_t k) {
    int64_t column = blockIdx.x * (int64_t)blockDim.x + threadIdx.x, row = blockIdx.y;
    if (column >= n) return;
    float sum = 0.0f;
    for (int64_t p = 0; p < k; ++p) sum += h[row * k + p] * float(w[column * k + p]);
    c[row * n + column] = c_t(sum);
}

extern "C" void solve(const x_t* x, const gain_t* gain, const w_t* w, c_t* c, int64_t m, int64_t n, int64_t k,
                      float eps, cudaStream_t stream) {
    float* h;
    cudaMallocAsync((void**)&h, m * k * sizeof(float), stream);
    normalise<<<(unsigned)m, THREADS, 0, stream>>>(x, gain, h, k, eps);
    multiply<<<dim3((unsigned)((n + 127) / 128), (unsigned)m), 128, 0, stream>>>(h, w, c, m, n, k);
    cudaFreeAsync(h, stream);
}
