// One warp a row, 64 rows a block; sums over rows meet in shared memory and then in global memory, by atomics.
//
// A warp reads its row twice, the second time from L1. What a row adds to dweight and dbias goes into sums in shared
// memory, which all eight warps of the block share; when the block has done its rows, it adds its sums to those of
// the others. The order of additions differs from run to run, in fp32 within the bounds. Blocks of columns keep shared
// memory small at every hidden size: the sums of at most 4096 columns are held, longer rows are done in halves.
#include "solve.h"

constexpr int WARPS = 8, THREADS = WARPS * 32;
constexpr int ROWS = 64;  // rows of a block
constexpr int COLUMNS = HIDDEN < 4096 ? HIDDEN : 4096;

__device__ float warp_sum(float value) {
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffff, value, offset);
    return value;
}

// sums: dweight and dbias in fp32, zero at the beginning
__global__ void __launch_bounds__(THREADS)
    gradients(const dy_t* dy, const x_t* x, const weight_t* weight, const float* mean, const float* rstd,
              dx_t* dx, float* sums, int64_t rows) {
    __shared__ float shares[2][COLUMNS];
    int lane = threadIdx.x % 32, first = blockIdx.y * COLUMNS;
    for (int j = threadIdx.x; j < COLUMNS; j += THREADS) shares[0][j] = shares[1][j] = 0.0f;
    __syncthreads();

    int64_t end = min((blockIdx.x + 1) * (int64_t)ROWS, rows);
    for (int64_t row = blockIdx.x * (int64_t)ROWS + threadIdx.x / 32; row < end; row += WARPS) {
        const dy_t* gradient = dy + row * HIDDEN;
        const x_t* value = x + row * HIDDEN;
        float m = mean[row], r = rstd[row], a = 0.0f, b = 0.0f;
        for (int j = lane; j < HIDDEN; j += 32) {
            float g = float(gradient[j]) * float(weight[j]);
            a += g * ((float(value[j]) - m) * r);
            b += g;
        }
        a = warp_sum(a) / HIDDEN;
        b = warp_sum(b) / HIDDEN;
        for (int j = lane; j < COLUMNS; j += 32) {
            float g = float(gradient[first + j]), normal = (float(value[first + j]) - m) * r;
            dx[row * HIDDEN + first + j] = dx_t(r * (g * float(weight[first + j]) - b - normal * a));
            atomicAdd(&shares[0][j], g * normal);
            atomicAdd(&shares[1][j], g);
        }
    }
    __syncthreads();
    for (int j = threadIdx.x; j < COLUMNS; j += THREADS) {
        atomicAdd(&sums[first + j], shares[0][j]);
        atomicAdd(&sums[HIDDEN + first + j], shares[1][j]);
    }
}

__global__ void rounded(const float* sums, dweight_t* dweight, dbias_t* dbias) {
    int j = blockIdx.x * THREADS + threadIdx.x;
    dweight[j] = dweight_t(sums[j]);
    dbias[j] = dbias_t(sums[HIDDEN + j]);
}

extern "C" void solve(const dy_t* dy, const x_t* x, const weight_t* weight, const mean_t* mean,
                      const rstd_t* rstd, dx_t* dx, dweight_t* dweight, dbias_t* dbias, int64_t rows,
                      cudaStream_t stream) {
    float* sums = nullptr;
    cudaMallocAsync(&sums, 2 * HIDDEN * sizeof(float), stream);
    cudaMemsetAsync(sums, 0, 2 * HIDDEN * sizeof(float), stream);
    dim3 grid((unsigned)((rows + ROWS - 1) / ROWS), HIDDEN / COLUMNS);
    gradients<<<grid, THREADS, 0, stream>>>(dy, x, weight, mean, rstd, dx, sums, rows);
    rounded<<<HIDDEN / THREADS, THREADS, 0, stream>>>(sums, dweight, dbias);
    cudaFreeAsync(sums, stream);
}
