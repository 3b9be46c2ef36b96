// One block a row: the maximum, the sum of the exponentials, the quotients; three passes.
#include "solve.h"

constexpr int THREADS = 256;

template <typename Join>
__device__ float over_block(float value, float* scratch, Join join) {
    scratch[threadIdx.x] = value;
    __syncthreads();
    for (int width = THREADS / 2; width > 0; width /= 2) {
        if (threadIdx.x < width) scratch[threadIdx.x] = join(scratch[threadIdx.x], scratch[threadIdx.x + width]);
        __syncthreads();
    }
    float result = scratch[0];
    __syncthreads();
    return result;
}

__global__ void softmax(const float* x, float* y, int columns) {
    __shared__ float scratch[THREADS];
    x += (int64_t)blockIdx.x * columns;
    y += (int64_t)blockIdx.x * columns;
    float largest = -INFINITY;
    for (int j = threadIdx.x; j < columns; j += THREADS) largest = fmaxf(largest, x[j]);
    largest = over_block(largest, scratch, [](float a, float b) { return fmaxf(a, b); });
    float sum = 0.0f;
    for (int j = threadIdx.x; j < columns; j += THREADS) sum += expf(x[j] - largest);
    sum = over_block(sum, scratch, [](float a, float b) { return a + b; });
    for (int j = threadIdx.x; j < columns; j += THREADS) y[j] = expf(x[j] - largest) / sum;
}

extern "C" void solve(const x_t* x, y_t* y, int64_t rows, int64_t columns, cudaStream_t stream) {
    softmax<<<(unsigned)rows, THREADS, 0, stream>>>(x, y, (int)columns);
}
