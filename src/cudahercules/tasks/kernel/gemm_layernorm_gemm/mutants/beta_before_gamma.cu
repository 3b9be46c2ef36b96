// expect: incorrect — beta is added before gamma scales, so that it is scaled too
#include "solve.h"

constexpr int THREADS = 256;

__global__ void first_product(const x_t* x, const w0_t* w0, float* z, int64_t m, int64_t k, int64_t hidden) {
    int64_t column = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    int64_t row = blockIdx.y * (int64_t)blockDim.y + threadIdx.y;
    if (row >= m || column >= hidden) return;
    float sum = 0.0f;
    for (int64_t p = 0; p < k; ++p) sum += float(x[row * k + p]) * float(w0[p * hidden + column]);
    z[row * hidden + column] = sum;
}

// The sum of all values over the threads of the block, in every thread.
__device__ float block_sum(float value, float* scratch) {
    scratch[threadIdx.x] = value;
    __syncthreads();
    for (int width = THREADS / 2; width > 0; width /= 2) {
        if (threadIdx.x < width) scratch[threadIdx.x] += scratch[threadIdx.x + width];
        __syncthreads();
    }
    float result = scratch[0];
    __syncthreads();  // before scratch is written again
    return result;
}

__global__ void normalise(float* z, const gamma_t* gamma, const beta_t* beta, int64_t hidden, float eps) {
    __shared__ float scratch[THREADS];
    z += blockIdx.x * hidden;

    float sum = 0.0f;
    for (int64_t h = threadIdx.x; h < hidden; h += THREADS) sum += z[h];
    float mean = block_sum(sum, scratch) / hidden;

    float squares = 0.0f;
    for (int64_t h = threadIdx.x; h < hidden; h += THREADS) squares += (z[h] - mean) * (z[h] - mean);
    float scale = 1.0f / sqrtf(block_sum(squares, scratch) / hidden + eps);

    for (int64_t h = threadIdx.x; h < hidden; h += THREADS)
        z[h] = ((z[h] - mean) * scale + float(beta[h])) * float(gamma[h]);
}

__global__ void second_product(const float* g, const w1_t* w1, y_t* y, int64_t m, int64_t hidden, int64_t n) {
    int64_t column = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    int64_t row = blockIdx.y * (int64_t)blockDim.y + threadIdx.y;
    if (row >= m || column >= n) return;
    float sum = 0.0f;
    for (int64_t h = 0; h < hidden; ++h) sum += g[row * hidden + h] * float(w1[h * n + column]);
    y[row * n + column] = y_t(sum);
}

static dim3 blocks(int64_t rows, int64_t columns) {
    return dim3((unsigned)((columns + 31) / 32), (unsigned)((rows + 7) / 8));
}

extern "C" void solve(const x_t* x, const w0_t* w0, const gamma_t* gamma, const beta_t* beta, const w1_t* w1, y_t* y,
                      int64_t m, int64_t k, int64_t hidden, int64_t n, float eps, cudaStream_t stream) {
    float* z;
    cudaMallocAsync((void**)&z, m * hidden * sizeof(float), stream);
    first_product<<<blocks(m, hidden), dim3(32, 8), 0, stream>>>(x, w0, z, m, k, hidden);
    normalise<<<(unsigned)m, THREADS, 0, stream>>>(z, gamma, beta, hidden, eps);
    second_product<<<blocks(m, n), dim3(32, 8), 0, stream>>>(z, w1, y, m, hidden, n);
    cudaFreeAsync(z, stream);
}
