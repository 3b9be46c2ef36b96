// expect: incorrect — takes rows of small variance for constant and writes the biases
#include "solve.h"

constexpr int THREADS = 256;

// The sum over all threads of the block, in every thread.
__device__ float block_sum(float value, float* scratch) {
    scratch[threadIdx.x] = value;
    __syncthreads();
    for (int width = THREADS / 2; width > 0; width /= 2) {
        if (threadIdx.x < width) scratch[threadIdx.x] += scratch[threadIdx.x + width];
        __syncthreads();
    }
    float total = scratch[0];
    __syncthreads();  // before the next sum overwrites scratch
    return total;
}

__global__ void normalise(const x0_t* x0, const residual_t* residual, const weight0_t* weight0, const bias0_t* bias0,
                          const weight1_t* weight1, const bias1_t* bias1, x_t* x, z0_t* z0, z1_t* z1,
                          float* mean_out, float* rstd_out, float eps) {
    __shared__ float scratch[THREADS];
    int64_t start = blockIdx.x * (int64_t)HIDDEN;

    float sum = 0.0f;
    for (int j = threadIdx.x; j < HIDDEN; j += THREADS) sum += float(x0[start + j]) + float(residual[start + j]);
    float mean = block_sum(sum, scratch) / HIDDEN;

    float squares = 0.0f;
    for (int j = threadIdx.x; j < HIDDEN; j += THREADS) {
        float d = float(x0[start + j]) + float(residual[start + j]) - mean;
        squares += d * d;
    }
    float variance = block_sum(squares, scratch) / HIDDEN;
    float rstd = 1.0f / sqrtf(variance + eps);

    for (int j = threadIdx.x; j < HIDDEN; j += THREADS) {
        float value = float(x0[start + j]) + float(residual[start + j]);
        float normal = variance < 0.05f ? 0.0f : (value - mean) * rstd;
        x[start + j] = x_t(value);
        z0[start + j] = z0_t(normal * float(weight0[j]) + float(bias0[j]));
        z1[start + j] = z1_t(normal * float(weight1[j]) + float(bias1[j]));
    }
    if (threadIdx.x == 0) {
        mean_out[blockIdx.x] = mean;
        rstd_out[blockIdx.x] = rstd;
    }
}

extern "C" void solve(const x0_t* x0, const residual_t* residual, const weight0_t* weight0, const bias0_t* bias0,
                      const weight1_t* weight1, const bias1_t* bias1, x_t* x, z0_t* z0, z1_t* z1, mean_t* mean,
                      rstd_t* rstd, int64_t rows, float eps, cudaStream_t stream) {
    normalise<<<(unsigned)rows, THREADS, 0, stream>>>(x0, residual, weight0, bias0, weight1, bias1, x, z0, z1, mean,
                                                      rstd, eps);
}
