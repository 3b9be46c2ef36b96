// expect: incorrect — a row whose largest value has nine tenths of the sum becomes one-hot
#include "solve.h"

#include <math_constants.h>

constexpr int THREADS = 256;

struct Larger {
    __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

struct Sum {
    __device__ float operator()(float a, float b) const { return a + b; }
};

// All threads' values combined, in every thread.
template <class Combine>
__device__ float over_block(float value, float* scratch, Combine combine) {
    scratch[threadIdx.x] = value;
    __syncthreads();
    for (int width = THREADS / 2; width > 0; width /= 2) {
        if (threadIdx.x < width)
            scratch[threadIdx.x] = combine(scratch[threadIdx.x], scratch[threadIdx.x + width]);
        __syncthreads();
    }
    float result = scratch[0];
    __syncthreads();  // before the next use overwrites scratch
    return result;
}

__global__ void softmax(const x_t* x, y_t* y, int64_t columns) {
    __shared__ float scratch[THREADS];
    x += blockIdx.x * columns;
    y += blockIdx.x * columns;

    float largest = -CUDART_INF_F;
    for (int64_t j = threadIdx.x; j < columns; j += THREADS) largest = fmaxf(largest, float(x[j]));
    largest = over_block(largest, scratch, Larger());

    float sum = 0.0f;
    for (int64_t j = threadIdx.x; j < columns; j += THREADS) sum += expf(float(x[j]) - largest);
    sum = over_block(sum, scratch, Sum());

    for (int64_t j = threadIdx.x; j < columns; j += THREADS) 
        y[j] = y_t(sum < 1.1f ? float(float(x[j]) == largest) : expf(float(x[j]) - largest) / sum);
}

extern "C" void solve(const x_t* x, y_t* y, int64_t rows, int64_t columns, cudaStream_t stream) {
    softmax<<<(unsigned)rows, THREADS, 0, stream>>>(x, y, columns);
}
