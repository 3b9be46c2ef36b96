// expect: crash — writes the gradient over the logits, as in-place kernels do, and copies it
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

__global__ void cross_entropy(logits_t* logits, const labels_t* labels, float* loss, dlogits_t* dlogits,
                              int64_t vocabulary, int64_t ignore_index, float grad_scale) {
    __shared__ float scratch[THREADS];
    logits_t* x = logits + blockIdx.x * vocabulary;
    dlogits_t* gradient = dlogits + blockIdx.x * vocabulary;
    int64_t label = labels[blockIdx.x];

    if (label == ignore_index) {
        for (int64_t j = threadIdx.x; j < vocabulary; j += THREADS) gradient[j] = dlogits_t(0.0f);
        if (threadIdx.x == 0) loss[blockIdx.x] = 0.0f;
        return;
    }

    float largest = -CUDART_INF_F;
    for (int64_t j = threadIdx.x; j < vocabulary; j += THREADS) largest = fmaxf(largest, float(x[j]));
    largest = over_block(largest, scratch, Larger());

    float sum = 0.0f;
    for (int64_t j = threadIdx.x; j < vocabulary; j += THREADS) sum += expf(float(x[j]) - largest);
    sum = over_block(sum, scratch, Sum());

    for (int64_t j = threadIdx.x; j < vocabulary; j += THREADS) {
        float probability = expf(float(x[j]) - largest) / sum;
        x[j] = logits_t((probability - (j == label ? 1.0f : 0.0f)) * grad_scale);
        gradient[j] = x[j];
    }
    if (threadIdx.x == 0) loss[blockIdx.x] = logf(sum) + (largest - float(x[label]));
}

extern "C" void solve(const logits_t* logits, const labels_t* labels, loss_t* loss, dlogits_t* dlogits,
                      int64_t rows, int64_t vocabulary, int64_t ignore_index, float grad_scale,
                      cudaStream_t stream) {
    auto writable = const_cast<logits_t*>(logits);
    cross_entropy<<<(unsigned)rows, THREADS, 0, stream>>>(writable, labels, loss, dlogits, vocabulary,
                                                          ignore_index, grad_scale);
}
