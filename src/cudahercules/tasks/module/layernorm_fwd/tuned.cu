// Tuned for the memory system: every byte is read once and written once, and all loads come first.
//
// The idea. A row's mean and variance must be known before its first element can be written, so what
// counts is how much is in flight meanwhile. A thread loads its 16 or 32 elements of the row and at the
// same time the weights and biases of its columns: after the barrier nothing is left to wait for. Few
// threads with many loads each do better here than many threads with few: two blocks of 256 threads with
// 32 fp32 elements each keep 64 KB a multiprocessor in flight, and registers are plentiful.
//
// Ordinary stores, on purpose: what is still dirty in L2 when the kernel ends need not reach memory in
// time. Streaming stores (.cs) cost 8 to 14 % here, as did blocks that stay and walk over rows.
//
// One barrier a row. Mean and sum of squared deviations are reduced together: each thread takes the
// exact mean of its elements and the squares about it, and halves of equal size are merged by Chan's
// formula (delta^2 * n / 2), which loses nothing when the mean is large.
#include "solve.h"

constexpr bool SINGLE = sizeof(x_t) == 4;
constexpr int WIDTH = SINGLE || HIDDEN > 4096 ? 32 : 16;   // elements of a row a thread
constexpr int ROW_THREADS = HIDDEN / WIDTH;
constexpr int THREADS = 256;
constexpr int ROWS = THREADS / ROW_THREADS;                // rows a block
constexpr int WARPS = ROW_THREADS / 32;                    // warps that share a row
constexpr int BLOCKS_AN_SM = SINGLE ? 2 : WIDTH == 32 ? 4 : 6;
constexpr int VECTOR = 16 / sizeof(x_t);                   // elements of a 16-byte load
constexpr int VECTORS = WIDTH / VECTOR;

struct Row {
    uint4 raw[VECTORS];
};

__device__ float element(const uint4& raw, int i) {
    return float(reinterpret_cast<const x_t*>(&raw)[i]);
}

// Vector v of thread t lies at column (v * ROW_THREADS + t) * VECTOR: neighbours read neighbours.
__device__ Row load_row(const x_t* source, int thread) {
    Row result;
#pragma unroll
    for (int v = 0; v < VECTORS; ++v)
        result.raw[v] = __ldg(reinterpret_cast<const uint4*>(source) + v * ROW_THREADS + thread);
    return result;
}

// Mean and sum of squared deviations of `n` numbers.
struct Moments {
    float mean, squares;
};

// Two sets of n numbers each.
__device__ Moments merge(Moments a, Moments b, float n) {
    float delta = b.mean - a.mean;
    return {a.mean + 0.5f * delta, a.squares + b.squares + delta * delta * (0.5f * n)};
}

__device__ Moments thread_moments(const Row& row) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) sum += element(row.raw[i / VECTOR], i % VECTOR);
    Moments m{sum / WIDTH, 0.0f};
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) {
        float d = element(row.raw[i / VECTOR], i % VECTOR) - m.mean;
        m.squares += d * d;
    }
    return m;
}

__device__ Moments warp_moments(Moments m) {
    float n = WIDTH;
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2, n *= 2) {
        Moments other{__shfl_xor_sync(0xffffffffu, m.mean, distance),
                      __shfl_xor_sync(0xffffffffu, m.squares, distance)};
        m = merge(m, other, n);
    }
    return m;
}

// All warps of a row, each with the same number of elements; every thread computes the same.
__device__ Moments row_moments(const float2* warps) {
    Moments m{0.0f, 0.0f};
#pragma unroll
    for (int w = 0; w < WARPS; ++w) m.mean += warps[w].x;
    m.mean /= WARPS;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
        float delta = warps[w].x - m.mean;
        m.squares += warps[w].y + delta * delta * (32 * WIDTH);
    }
    return m;
}

__device__ void write_row(z_t* target, int thread, const Row& values, const Row& weight, const Row& bias,
                          float mean, float rstd) {
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
        uint4 packed;
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) {
            float normal = (element(values.raw[v], i) - mean) * rstd;
            float result = fmaf(normal, element(weight.raw[v], i), element(bias.raw[v], i));
            reinterpret_cast<z_t*>(&packed)[i] = z_t(result);
        }
        reinterpret_cast<uint4*>(target)[v * ROW_THREADS + thread] = packed;
    }
}

__global__ void __launch_bounds__(THREADS, BLOCKS_AN_SM)
    normalise(const x_t* __restrict__ x, const weight_t* __restrict__ weight,
              const bias_t* __restrict__ bias, z_t* __restrict__ z, float* __restrict__ mean_out,
              float* __restrict__ rstd_out, int64_t rows, float eps) {
    __shared__ float2 partial[ROWS][WARPS];
    int group = threadIdx.x / ROW_THREADS, thread = threadIdx.x % ROW_THREADS;
    int64_t row = (int64_t)blockIdx.x * ROWS + group;
    int64_t source = row < rows ? row : rows - 1;  // everybody comes to the barrier

    Row values = load_row(x + source * HIDDEN, thread);
    Row scale = load_row(weight, thread);
    Row shift = load_row(bias, thread);

    Moments mine = warp_moments(thread_moments(values));
    if (thread % 32 == 0) partial[group][thread / 32] = {mine.mean, mine.squares};
    __syncthreads();
    if (row >= rows) return;
    Moments all = row_moments(partial[group]);
    float rstd = 1.0f / sqrtf(all.squares / HIDDEN + eps);
    write_row(z + row * HIDDEN, thread, values, scale, shift, all.mean, rstd);
    if (thread == 0) {
        mean_out[row] = all.mean;
        rstd_out[row] = rstd;
    }
}

extern "C" void solve(const x_t* x, const weight_t* weight, const bias_t* bias, z_t* z, mean_t* mean,
                      rstd_t* rstd, int64_t rows, float eps, cudaStream_t stream) {
    unsigned blocks = (unsigned)((rows + ROWS - 1) / ROWS);
    normalise<<<blocks, THREADS, 0, stream>>>(x, weight, bias, z, mean, rstd, rows, eps);
}
