// Tuned for the memory system: every byte is read once and written once, and the bus is never idle.
//
// The idea. A row needs its mean and variance before its first element can be written, so a kernel that
// loads, reduces and stores one row after the other leaves the bus idle while it reduces. Here a block
// stays on its multiprocessor and walks over rows; before it reduces a row it has already issued the
// loads of its next one. The loads of the next row, the reduction of this one and the stores of the one
// before overlap, and four blocks a multiprocessor smooth out the rest.
//
// One barrier a row. Mean and sum of squared deviations are reduced together: each thread takes the
// exact mean of its 16 elements and the squares about it, and halves of equal size are merged by Chan's
// formula (delta^2 * n / 2), which loses nothing when the mean is large. The warps' results go through
// shared memory that alternates between two copies, so that no second barrier is needed.
//
// Weight and bias are re-read for every row: they stay in L1, because rows pass by it (streaming loads).
#include "solve.h"

constexpr int WIDTH = 16;                                  // elements of a row a thread
constexpr int ROW_THREADS = HIDDEN / WIDTH;                // 64, 256 or 512
constexpr int THREADS = ROW_THREADS < 256 ? 256 : ROW_THREADS;
constexpr int ROWS = THREADS / ROW_THREADS;                // rows that a block works on at a time
constexpr int WARPS = ROW_THREADS / 32;                    // warps that share a row
constexpr int BLOCKS_AN_SM = 1024 / THREADS;               // 64 registers a thread
constexpr int VECTOR = 16 / sizeof(x_t);                   // elements of a 16-byte load
constexpr int VECTORS = WIDTH / VECTOR;

struct Row {
    uint4 raw[VECTORS];
};

__device__ float element(const uint4& raw, int i) {
    return float(reinterpret_cast<const x_t*>(&raw)[i]);
}

// Vector v of thread t lies at column (v * ROW_THREADS + t) * VECTOR: neighbours read neighbours.
__device__ Row load_row(const x_t* x, int64_t row, int thread) {
    const uint4* source = reinterpret_cast<const uint4*>(x + row * HIDDEN);
    Row result;
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) result.raw[v] = __ldcs(source + v * ROW_THREADS + thread);
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

__device__ void write_row(z_t* z, int64_t row, int thread, const Row& values, const weight_t* weight,
                          const bias_t* bias, float mean, float rstd) {
    uint4* target = reinterpret_cast<uint4*>(z + row * HIDDEN);
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
        int at = v * ROW_THREADS + thread;
        uint4 scale = __ldg(reinterpret_cast<const uint4*>(weight) + at);
        uint4 shift = __ldg(reinterpret_cast<const uint4*>(bias) + at);
        uint4 packed;
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) {
            float normal = (element(values.raw[v], i) - mean) * rstd;
            reinterpret_cast<z_t*>(&packed)[i] = z_t(fmaf(normal, element(scale, i), element(shift, i)));
        }
        target[at] = packed;
    }
}

__global__ void __launch_bounds__(THREADS, BLOCKS_AN_SM)
    normalise(const x_t* __restrict__ x, const weight_t* __restrict__ weight,
              const bias_t* __restrict__ bias, z_t* __restrict__ z, float* __restrict__ mean_out,
              float* __restrict__ rstd_out, int64_t rows, float eps) {
    __shared__ float2 partial[2][ROWS][WARPS];
    int group = threadIdx.x / ROW_THREADS, thread = threadIdx.x % ROW_THREADS;
    int64_t row = (int64_t)blockIdx.x * ROWS + group, step = (int64_t)gridDim.x * ROWS;

    // All threads make the same number of turns, because they meet at the barrier; a group without a
    // row left works on the last one again and does not store.
    int64_t turns = (rows + step - 1) / step;
    Row next = load_row(x, min(row, rows - 1), thread);
    for (int64_t turn = 0; turn < turns; ++turn, row += step) {
        Row current = next;
        if (turn + 1 < turns) next = load_row(x, min(row + step, rows - 1), thread);

        Moments mine = warp_moments(thread_moments(current));
        int copy = turn & 1;
        if (thread % 32 == 0) partial[copy][group][thread / 32] = {mine.mean, mine.squares};
        __syncthreads();
        Moments all = row_moments(partial[copy][group]);
        float rstd = 1.0f / sqrtf(all.squares / HIDDEN + eps);
        if (row < rows) {
            write_row(z, row, thread, current, weight, bias, all.mean, rstd);
            if (thread == 0) {
                mean_out[row] = all.mean;
                rstd_out[row] = rstd;
            }
        }
    }
}

extern "C" void solve(const x_t* x, const weight_t* weight, const bias_t* bias, z_t* z, mean_t* mean,
                      rstd_t* rstd, int64_t rows, float eps, cudaStream_t stream) {
    int device = 0, multiprocessors = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    // As many turns as a full card needs, then as few blocks as make that many turns: all blocks end
    // together instead of leaving a last turn to a few of them.
    int64_t pieces = (rows + ROWS - 1) / ROWS;
    int64_t full = (int64_t)multiprocessors * BLOCKS_AN_SM;
    int64_t turns = (pieces + full - 1) / full;
    unsigned blocks = (unsigned)((pieces + turns - 1) / turns);
    normalise<<<blocks, THREADS, 0, stream>>>(x, weight, bias, z, mean, rstd, rows, eps);
}
