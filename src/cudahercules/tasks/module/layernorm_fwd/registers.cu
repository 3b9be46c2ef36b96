// One block a row; the row is read once, in 16-byte vectors, and stays in registers.
//
// 32, 128 or 256 threads hold HIDDEN / THREADS values each. Sums go through warp shuffles, then through one
// value a warp in shared memory, so that each reduction costs a single barrier.
#include "solve.h"

constexpr int THREADS = HIDDEN >= 4096 ? 256 : HIDDEN >= 1024 ? 128 : 32;
constexpr int WARPS = THREADS / 32;
constexpr int WIDTH = 16 / sizeof(x_t);  // elements of a vector
constexpr int VECTORS = HIDDEN / THREADS / WIDTH;
static_assert(VECTORS * THREADS * WIDTH == HIDDEN);

template <class T>
struct alignas(16) Vector {
    T element[WIDTH];
};

// The sum over the block, in every thread. `scratch` (one float a warp) must be used for one sum only.
__device__ float block_sum(float value, float* scratch) {
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffff, value, offset);
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
    __syncthreads();
    value = threadIdx.x % 32 < WARPS ? scratch[threadIdx.x % 32] : 0.0f;
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffff, value, offset);
    return value;
}

__global__ void __launch_bounds__(THREADS) normalise(const x_t* x, const weight_t* weight, const bias_t* bias,
                                                     z_t* z, float* mean_out, float* rstd_out, float eps) {
    __shared__ float sums[WARPS], squares[WARPS];
    int64_t row = blockIdx.x;
    auto from = reinterpret_cast<const Vector<x_t>*>(x + row * HIDDEN);
    auto to = reinterpret_cast<Vector<z_t>*>(z + row * HIDDEN);

    float value[VECTORS][WIDTH];
    float sum = 0.0f;
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
        Vector<x_t> loaded = from[v * THREADS + threadIdx.x];
#pragma unroll
        for (int i = 0; i < WIDTH; ++i) sum += value[v][i] = float(loaded.element[i]);
    }
    float mean = block_sum(sum, sums) * (1.0f / HIDDEN);

    float square = 0.0f;
#pragma unroll
    for (int v = 0; v < VECTORS; ++v)
#pragma unroll
        for (int i = 0; i < WIDTH; ++i) {
            value[v][i] -= mean;
            square += value[v][i] * value[v][i];
        }
    float rstd = rsqrtf(block_sum(square, squares) * (1.0f / HIDDEN) + eps);

#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
        int at = v * THREADS + threadIdx.x;
        auto w = reinterpret_cast<const Vector<weight_t>*>(weight)[at];
        auto b = reinterpret_cast<const Vector<bias_t>*>(bias)[at];
        Vector<z_t> result;
#pragma unroll
        for (int i = 0; i < WIDTH; ++i)
            result.element[i] = z_t(value[v][i] * rstd * float(w.element[i]) + float(b.element[i]));
        to[at] = result;
    }
    if (threadIdx.x == 0) {
        mean_out[row] = mean;
        rstd_out[row] = rstd;
    }
}

extern "C" void solve(const x_t* x, const weight_t* weight, const bias_t* bias, z_t* z, mean_t* mean,
                      rstd_t* rstd, int64_t rows, float eps, cudaStream_t stream) {
    normalise<<<(unsigned)rows, THREADS, 0, stream>>>(x, weight, bias, z, mean, rstd, eps);
}
