// One warp a row and one pass for the statistics: Welford's update in each lane, Chan's formula between lanes.
//
// The sum of squared deviations from the running mean needs no second pass and does not cancel where the mean is
// large. The row is read again for the results, which mostly finds it in L1 or L2.
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

__global__ void normalise(const x0_t* x0, const residual_t* residual, const weight0_t* weight0, const bias0_t* bias0,
                          const weight1_t* weight1, const bias1_t* bias1, x_t* x, z0_t* z0, z1_t* z1, float* mean,
                          float* rstd, int64_t rows, float eps) {
    int64_t row = blockIdx.x * (int64_t)(blockDim.x / 32) + threadIdx.x / 32;
    int lane = threadIdx.x % 32;
    if (row >= rows) return;  // whole warps leave together
    int64_t start = row * HIDDEN;

    Moments m = {0.0f, 0.0f, 0.0f};
    for (int j = lane; j < HIDDEN; j += 32) {
        float value = float(x0[start + j]) + float(residual[start + j]);
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
    float r = rsqrtf(m.deviation / HIDDEN + eps);
    for (int j = lane; j < HIDDEN; j += 32) {
        float value = float(x0[start + j]) + float(residual[start + j]);
        float normal = (value - m.mean) * r;
        x[start + j] = x_t(value);
        z0[start + j] = z0_t(normal * float(weight0[j]) + float(bias0[j]));
        z1[start + j] = z1_t(normal * float(weight1[j]) + float(bias1[j]));
    }
    if (lane == 0) {
        mean[row] = m.mean;
        rstd[row] = r;
    }
}

extern "C" void solve(const x0_t* x0, const residual_t* residual, const weight0_t* weight0, const bias0_t* bias0,
                      const weight1_t* weight1, const bias1_t* bias1, x_t* x, z0_t* z0, z1_t* z1, mean_t* mean,
                      rstd_t* rstd, int64_t rows, float eps, cudaStream_t stream) {
    normalise<<<(unsigned)((rows + 7) / 8), 256, 0, stream>>>(x0, residual, weight0, bias0, weight1, bias1, x, z0, z1,
                                                              mean, rstd, rows, eps);
}
