// expect: incorrect — dx lacks the mean of the weighted gradient, as if the mean of x were a constant
#include "solve.h"

constexpr int THREADS = 256;
constexpr int CHUNKS = 128;

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

__global__ void input_gradient(const dy_t* dy, const x_t* x, const weight_t* weight, const float* mean,
                               const float* rstd, dx_t* dx) {
    __shared__ float scratch[THREADS];
    int64_t row = blockIdx.x;
    dy += row * HIDDEN;
    x += row * HIDDEN;
    dx += row * HIDDEN;
    float m = mean[row], r = rstd[row];

    float with_normal = 0.0f;
    for (int j = threadIdx.x; j < HIDDEN; j += THREADS) {
        float gradient = float(dy[j]) * float(weight[j]);
        with_normal += gradient * ((float(x[j]) - m) * r);
    }
    float a = block_sum(with_normal, scratch) / HIDDEN;

    for (int j = threadIdx.x; j < HIDDEN; j += THREADS) {
        float gradient = float(dy[j]) * float(weight[j]);
        float normal = (float(x[j]) - m) * r;
        dx[j] = dx_t(r * (gradient - normal * a));
    }
}

// shares: CHUNKS x 2 x HIDDEN, the share of a chunk of rows in dweight and in dbias
__global__ void add_rows(const dy_t* dy, const x_t* x, const float* mean, const float* rstd, float* shares,
                         int64_t rows) {
    int j = blockIdx.x * THREADS + threadIdx.x;
    float weight_sum = 0.0f, bias_sum = 0.0f;
    for (int64_t row = blockIdx.y; row < rows; row += CHUNKS) {
        float gradient = float(dy[row * HIDDEN + j]);
        weight_sum += gradient * ((float(x[row * HIDDEN + j]) - mean[row]) * rstd[row]);
        bias_sum += gradient;
    }
    shares += blockIdx.y * (int64_t)(2 * HIDDEN);
    shares[j] = weight_sum;
    shares[HIDDEN + j] = bias_sum;
}

__global__ void add_shares(const float* shares, dweight_t* dweight, dbias_t* dbias, int chunks) {
    int j = blockIdx.x * THREADS + threadIdx.x;
    float weight_sum = 0.0f, bias_sum = 0.0f;
    for (int chunk = 0; chunk < chunks; ++chunk) {
        weight_sum += shares[chunk * (int64_t)(2 * HIDDEN) + j];
        bias_sum += shares[chunk * (int64_t)(2 * HIDDEN) + HIDDEN + j];
    }
    dweight[j] = dweight_t(weight_sum);
    dbias[j] = dbias_t(bias_sum);
}

extern "C" void solve(const dy_t* dy, const x_t* x, const weight_t* weight, const mean_t* mean,
                      const rstd_t* rstd, dx_t* dx, dweight_t* dweight, dbias_t* dbias, int64_t rows,
                      cudaStream_t stream) {
    input_gradient<<<(unsigned)rows, THREADS, 0, stream>>>(dy, x, weight, mean, rstd, dx);
    int chunks = rows < CHUNKS ? (int)rows : CHUNKS;
    float* shares = nullptr;
    cudaMallocAsync(&shares, chunks * (2 * HIDDEN) * sizeof(float), stream);
    add_rows<<<dim3(HIDDEN / THREADS, chunks), THREADS, 0, stream>>>(dy, x, mean, rstd, shares, rows);
    add_shares<<<HIDDEN / THREADS, THREADS, 0, stream>>>(shares, dweight, dbias, chunks);
    cudaFreeAsync(shares, stream);
}
