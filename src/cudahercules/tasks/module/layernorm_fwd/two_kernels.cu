// First kernel: one warp a row finds mean and rstd in a single pass, with Welford's update. Second kernel:
// a grid-stride loop over all elements applies them.
//
// Welford's update keeps the sum of squared deviations from the running mean, so it needs no second pass
// and does not cancel. The lanes' triples are merged pairwise with Chan's formula. The statistics travel
// from one kernel to the next through the outputs, which is allowed: stream order makes them visible.
#include "solve.h"

struct Moments {
    float count, mean, deviation;  // deviation: sum of squared differences from the mean
};

__device__ Moments merge(Moments a, Moments b) {
    float count = a.count + b.count;
    float delta = b.mean - a.mean;
    float share = b.count / count;
    return {count, a.mean + delta * share, a.deviation + b.deviation + delta * delta * a.count * share};
}

__global__ void statistics(const x_t* x, float* mean, float* rstd, int64_t rows, float eps) {
    int64_t row = (blockIdx.x * (int64_t)blockDim.x + threadIdx.x) / 32;
    int lane = threadIdx.x % 32;
    if (row >= rows) return;  // whole warps leave together

    Moments m = {0.0f, 0.0f, 0.0f};
    for (int j = lane; j < HIDDEN; j += 32) {
        float value = float(x[row * HIDDEN + j]);
        m.count += 1.0f;
        float delta = value - m.mean;
        m.mean += delta / m.count;
        m.deviation += delta * (value - m.mean);
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        Moments other = {__shfl_xor_sync(0xffffffff, m.count, offset),
                         __shfl_xor_sync(0xffffffff, m.mean, offset),
                         __shfl_xor_sync(0xffffffff, m.deviation, offset)};
        m = merge(m, other);
    }
    if (lane == 0) {
        mean[row] = m.mean;
        rstd[row] = rsqrtf(m.deviation / HIDDEN + eps);
    }
}

__global__ void apply(const x_t* x, const weight_t* weight, const bias_t* bias, const float* mean,
                      const float* rstd, z_t* z, int64_t count) {
    int64_t stride = gridDim.x * (int64_t)blockDim.x;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count; i += stride) {
        int64_t row = i / HIDDEN;
        int j = i % HIDDEN;
        z[i] = z_t((float(x[i]) - mean[row]) * rstd[row] * float(weight[j]) + float(bias[j]));
    }
}

extern "C" void solve(const x_t* x, const weight_t* weight, const bias_t* bias, z_t* z, mean_t* mean,
                      rstd_t* rstd, int64_t rows, float eps, cudaStream_t stream) {
    statistics<<<(unsigned)((rows + 7) / 8), 256, 0, stream>>>(x, mean, rstd, rows, eps);
    int64_t count = rows * HIDDEN;
    int64_t blocks = (count + 255) / 256;
    apply<<<(unsigned)(blocks < 4096 ? blocks : 4096), 256, 0, stream>>>(x, weight, bias, mean, rstd, z, count);
}
