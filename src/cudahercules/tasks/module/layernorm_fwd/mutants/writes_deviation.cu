// expect: incorrect — stores the standard deviation where its inverse is asked for
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

__global__ void normalise(const x_t* x, const weight_t* weight, const bias_t* bias, z_t* z, float* mean_out,
                          float* rstd_out, float eps) {
    __shared__ float scratch[THREADS];
    int64_t row = blockIdx.x;
    x += row * HIDDEN;
    z += row * HIDDEN;

    float sum = 0.0f;
    for (int j = threadIdx.x; j < HIDDEN; j += THREADS) sum += float(x[j]);
    float mean = block_sum(sum, scratch) / HIDDEN;

    float squares = 0.0f;
    for (int j = threadIdx.x; j < HIDDEN; j += THREADS) {
        float d = float(x[j]) - mean;
        squares += d * d;
    }
    float variance = block_sum(squares, scratch) / HIDDEN;
    float rstd = 1.0f / sqrtf(variance + eps);

    for (int j = threadIdx.x; j < HIDDEN; j += THREADS)
        z[j] = z_t((float(x[j]) - mean) * rstd * float(weight[j]) + float(bias[j]));
    if (threadIdx.x == 0) {
        mean_out[row] = mean;
        rstd_out[row] = sqrtf(variance + eps);
    }
}

extern "C" void solve(const x_t* x, const weight_t* weight, const bias_t* bias, z_t* z, mean_t* mean,
                      rstd_t* rstd, int64_t rows, float eps, cudaStream_t stream) {
    normalise<<<(unsigned)rows, THREADS, 0, stream>>>(x, weight, bias, z, mean, rstd, eps);
}
