// expect: incorrect — rows beyond a multiple of 4 are missing in the sums over rows
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

__global__ void input_gradient(const dz0_t* dz0, const dz1_t* dz1, const dx_t* dx, const x_t* x,
                               const weight0_t* weight0, const weight1_t* weight1, const float* mean,
                               const float* rstd, dx0_t* dx0) {
    __shared__ float scratch[THREADS];
    int64_t start = blockIdx.x * (int64_t)HIDDEN;
    float m = mean[blockIdx.x], r = rstd[blockIdx.x];

    float with_normal = 0.0f, alone = 0.0f;
    for (int j = threadIdx.x; j < HIDDEN; j += THREADS) {
        float gradient = float(dz0[start + j]) * float(weight0[j]) + float(dz1[start + j]) * float(weight1[j]);
        with_normal += gradient * ((float(x[start + j]) - m) * r);
        alone += gradient;
    }
    float a = block_sum(with_normal, scratch) / HIDDEN;
    float b = block_sum(alone, scratch) / HIDDEN;

    for (int j = threadIdx.x; j < HIDDEN; j += THREADS) {
        float gradient = float(dz0[start + j]) * float(weight0[j]) + float(dz1[start + j]) * float(weight1[j]);
        float normal = (float(x[start + j]) - m) * r;
        dx0[start + j] = dx0_t(float(dx[start + j]) + r * (gradient - b - normal * a));
    }
}

// shares: CHUNKS x 4 x HIDDEN, the share of a chunk of rows in dweight0, dbias0, dweight1 and dbias1
__global__ void add_rows(const dz0_t* dz0, const dz1_t* dz1, const x_t* x, const float* mean, const float* rstd,
                         float* shares, int64_t rows) {
    int j = blockIdx.x * THREADS + threadIdx.x;
    float sums[4] = {};
    for (int64_t row = blockIdx.y; row < rows; row += CHUNKS) {
        float first = float(dz0[row * HIDDEN + j]), second = float(dz1[row * HIDDEN + j]);
        float normal = (float(x[row * HIDDEN + j]) - mean[row]) * rstd[row];
        sums[0] += first * normal;
        sums[1] += first;
        sums[2] += second * normal;
        sums[3] += second;
    }
    for (int k = 0; k < 4; ++k) shares[(blockIdx.y * (int64_t)4 + k) * HIDDEN + j] = sums[k];
}

__global__ void add_shares(const float* shares, dweight0_t* dweight0, dbias0_t* dbias0, dweight1_t* dweight1,
                           dbias1_t* dbias1, int chunks) {
    int j = blockIdx.x * THREADS + threadIdx.x;
    float sums[4] = {};
    for (int chunk = 0; chunk < chunks; ++chunk)
        for (int k = 0; k < 4; ++k) sums[k] += shares[(chunk * (int64_t)4 + k) * HIDDEN + j];
    dweight0[j] = dweight0_t(sums[0]);
    dbias0[j] = dbias0_t(sums[1]);
    dweight1[j] = dweight1_t(sums[2]);
    dbias1[j] = dbias1_t(sums[3]);
}

extern "C" void solve(const dz0_t* dz0, const dz1_t* dz1, const dx_t* dx, const x_t* x, const weight0_t* weight0,
                      const weight1_t* weight1, const mean_t* mean, const rstd_t* rstd, dx0_t* dx0,
                      dweight0_t* dweight0, dbias0_t* dbias0, dweight1_t* dweight1, dbias1_t* dbias1, int64_t rows,
                      cudaStream_t stream) {
    input_gradient<<<(unsigned)rows, THREADS, 0, stream>>>(dz0, dz1, dx, x, weight0, weight1, mean, rstd, dx0);
    int chunks = rows < CHUNKS ? (int)rows : CHUNKS;
    float* shares = nullptr;
    cudaMallocAsync(&shares, chunks * (4 * HIDDEN) * sizeof(float), stream);
    add_rows<<<dim3(HIDDEN / THREADS, chunks), THREADS, 0, stream>>>(dz0, dz1, x, mean, rstd, shares, rows / 4 * 4);
    add_shares<<<HIDDEN / THREADS, THREADS, 0, stream>>>(shares, dweight0, dbias0, dweight1, dbias1, chunks);
    cudaFreeAsync(shares, stream);
}
