// The normalisation disappears into the second product, since that is linear in z:
//
//     y = scale * (z (gamma W1) - mean * column sums of (gamma W1)) + beta W1      with scale = 1 / sqrt(variance + eps)
//
// prepare() makes gamma W1, its column sums and beta W1 from the weights. The first product writes z in fp16; one warp
// a row takes mean and scale; the second product multiplies z as it is and mends each element at the end.
#include "solve.h"

static w1_t* scaled;      // gamma W1, hidden x n
static float *sums, *offset;  // column sums of it, and beta W1

__global__ void fold(const gamma_t* gamma, const beta_t* beta, const w1_t* w1, w1_t* scaled, float* sums,
                     float* offset, int64_t hidden, int64_t n) {
    int64_t column = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (column >= n) return;
    float sum = 0.0f, added = 0.0f;
    for (int64_t h = 0; h < hidden; ++h) {
        float weight = float(w1[h * n + column]);
        w1_t product = w1_t(float(gamma[h]) * weight);
        scaled[h * n + column] = product;
        sum += float(product);  // of what will be multiplied: then a common part of z cancels exactly
        added += float(beta[h]) * weight;
    }
    sums[column] = sum;
    offset[column] = added;
}

__global__ void first_product(const x_t* x, const w0_t* w0, y_t* z, int64_t m, int64_t k, int64_t hidden) {
    int64_t column = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    int64_t row = blockIdx.y * (int64_t)blockDim.y + threadIdx.y;
    if (row >= m || column >= hidden) return;
    float sum = 0.0f;
    for (int64_t p = 0; p < k; ++p) sum += float(x[row * k + p]) * float(w0[p * hidden + column]);
    z[row * hidden + column] = y_t(sum);
}

__device__ float warp_sum(float value) {
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
    return value;
}

__global__ void statistics(const y_t* z, float2* mean_and_scale, int64_t hidden, float eps) {
    z += blockIdx.x * hidden;
    float sum = 0.0f, squares = 0.0f;
    for (int64_t h = threadIdx.x; h < hidden; h += 32) sum += float(z[h]);
    float mean = warp_sum(sum) / hidden;
    for (int64_t h = threadIdx.x; h < hidden; h += 32) squares += (float(z[h]) - mean) * (float(z[h]) - mean);
    squares = warp_sum(squares);
    if (threadIdx.x == 0) mean_and_scale[blockIdx.x] = make_float2(mean, rsqrtf(squares / hidden + eps));
}

__global__ void second_product(const y_t* z, const w1_t* scaled, const float* sums, const float* offset,
                               const float2* mean_and_scale, y_t* y, int64_t m, int64_t hidden, int64_t n) {
    int64_t column = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    int64_t row = blockIdx.y * (int64_t)blockDim.y + threadIdx.y;
    if (row >= m || column >= n) return;
    float sum = 0.0f;
    for (int64_t h = 0; h < hidden; ++h) sum += float(z[row * hidden + h]) * float(scaled[h * n + column]);
    float2 row_numbers = mean_and_scale[row];
    y[row * n + column] = y_t(row_numbers.y * (sum - row_numbers.x * sums[column]) + offset[column]);
}

static dim3 blocks(int64_t rows, int64_t columns) {
    return dim3((unsigned)((columns + 31) / 32), (unsigned)((rows + 7) / 8));
}

extern "C" void prepare(const w0_t* w0, const gamma_t* gamma, const beta_t* beta, const w1_t* w1, int64_t m, int64_t k,
                        int64_t hidden, int64_t n, float eps, cudaStream_t stream) {
    cudaMalloc((void**)&scaled, hidden * n * sizeof(w1_t));
    cudaMalloc((void**)&sums, n * sizeof(float));
    cudaMalloc((void**)&offset, n * sizeof(float));
    fold<<<(unsigned)((n + 31) / 32), 32, 0, stream>>>(gamma, beta, w1, scaled, sums, offset, hidden, n);
}

extern "C" void solve(const x_t* x, const w0_t* w0, const gamma_t* gamma, const beta_t* beta, const w1_t* w1, y_t* y,
                      int64_t m, int64_t k, int64_t hidden, int64_t n, float eps, cudaStream_t stream) {
    y_t* z;
    float2* mean_and_scale;
    cudaMallocAsync((void**)&z, m * hidden * sizeof(y_t), stream);
    cudaMallocAsync((void**)&mean_and_scale, m * sizeof(float2), stream);
    first_product<<<blocks(m, hidden), dim3(32, 8), 0, stream>>>(x, w0, z, m, k, hidden);
    statistics<<<(unsigned)m, 32, 0, stream>>>(z, mean_and_scale, hidden, eps);
    second_product<<<blocks(m, n), dim3(32, 8), 0, stream>>>(z, scaled, sums, offset, mean_and_scale, y, m, hidden, n);
    cudaFreeAsync(mean_and_scale, stream);
    cudaFreeAsync(z, stream);
}
