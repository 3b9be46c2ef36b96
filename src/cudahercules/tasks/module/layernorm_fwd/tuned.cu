// Tuned for the memory system: every byte is read once and written once, a row stays in registers.
//
// The idea. A row's mean and variance must be known before its first element can be written, so what
// counts is how much is in flight meanwhile. A thread asks for all its elements of the row before it uses
// one, 32 to 128 bytes in 16-byte loads; 48 to 96 KB a multiprocessor are under way then. A row of up to
// 4 KB belongs to one warp, which meets no barrier at all; longer rows belong to one block of 128 to 512 threads.
// One row a block, not two: blocks end one by one, and the last ones leave less of the GPU idle.
//
// Elements stay as they were loaded and are converted whenever they are used, because registers decide: as
// floats a bf16 row takes two registers for one. An earlier version asked for weights and biases before the
// barrier, held to 42 registers; in bf16 ptxas moved these loads behind the barrier all the same and spilled,
// right where the results are formed, and division and square root after IEEE were two calls there (86 us
// where registers.cu, without any of the three, takes 67: hidden 4096, H200). So weights and biases are loaded
// late, when they come from L1, and the root is rsqrtf.
//
// Ordinary loads and stores. x is read once, so hints look right and are not: hidden 4096 in fp32 on an H200, cold,
// takes 130 us, with evict-first loads (.cs) 137, past L1 (no_allocate) 138, with 256-byte prefetch in L2 139.
// Rows brought by bulk copies (TMA) into a ring in shared memory, for blocks that stay: 136 to 142.
//
// Rows of 256 elements are shared out to half a warp: a lane then has two to four loads under way, as with longer
// rows, and a reduction is a step shorter.
//
// One barrier a row. Mean and sum of squared deviations are reduced together: each thread takes the
// exact mean of its elements and the squares about it, and halves of equal size are merged by Chan's
// formula (delta^2 * n / 2), which loses nothing when the mean is large.
#include "solve.h"

constexpr bool SINGLE = sizeof(x_t) == 4;
constexpr int ROW_BYTES = HIDDEN * sizeof(x_t);
constexpr bool WARP_A_ROW = ROW_BYTES <= 4096;
constexpr int THREADS = WARP_A_ROW ? 128 : SINGLE ? 512 : ROW_BYTES <= 8192 ? 128 : 256;
constexpr int ROW_THREADS = HIDDEN == 256 ? 16 : WARP_A_ROW ? 32 : THREADS;
constexpr int LANES = ROW_THREADS < 32 ? ROW_THREADS : 32;  // lanes that reduce by shuffles
constexpr int ROWS = THREADS / ROW_THREADS;                // rows a block
constexpr int WARPS = ROW_THREADS / LANES;                 // warps that share a row
constexpr int WIDTH = HIDDEN / ROW_THREADS;                // elements of a row a thread
constexpr int VECTOR = 16 / sizeof(x_t);                   // elements of a 16-byte load
constexpr int VECTORS = WIDTH / VECTOR;

// What registers allow without a spill. As the compiler places them: 32 a thread for two vectors, 48 for four in
// fp32 and 64 in bf16, 80 for eight, 96 where a warp has a row to itself.
constexpr int THREADS_AN_SM =
    VECTORS == 2 ? (SINGLE ? 2048 : 1536) : VECTORS == 4 ? (SINGLE ? 1280 : 1024) : WARP_A_ROW ? 640 : 768;
static_assert(VECTORS == 2 || VECTORS == 4 || VECTORS == 8);

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
        result.raw[v] = reinterpret_cast<const uint4*>(source)[v * ROW_THREADS + thread];
    return result;
}

// Nothing happens here, but the compiler cannot know that: what it has made of the bits must be made anew.
// Without it, it keeps a bf16 row as floats, in twice the registers, and spills.
__device__ void forget(Row& row) {
#pragma unroll
    for (int v = 0; v < VECTORS; ++v)
        asm volatile("" : "+r"(row.raw[v].x), "+r"(row.raw[v].y), "+r"(row.raw[v].z), "+r"(row.raw[v].w));
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

__device__ Moments thread_moments(Row& row) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) sum += element(row.raw[i / VECTOR], i % VECTOR);
    Moments m{sum / WIDTH, 0.0f};
    forget(row);
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) {
        float d = element(row.raw[i / VECTOR], i % VECTOR) - m.mean;
        m.squares += d * d;
    }
    forget(row);
    return m;
}

// Half a warp reduces by itself: the other half may have no row.
__device__ Moments warp_moments(Moments m) {
    unsigned mask = LANES == 32 ? 0xffffffffu : 0xffffu << (threadIdx.x & 16);
    float n = WIDTH;
#pragma unroll
    for (int distance = LANES / 2; distance > 0; distance /= 2, n *= 2) {
        Moments other{__shfl_xor_sync(mask, m.mean, distance), __shfl_xor_sync(mask, m.squares, distance)};
        m = merge(m, other, n);
    }
    return m;
}

// All warps of a row, each with the same number of elements; every thread computes the same.
__device__ Moments row_moments(const float2* warps) {
    float2 one = warps[threadIdx.x % WARPS];
    Moments m{one.x, one.y};
    float n = 32 * WIDTH;
#pragma unroll
    for (int distance = WARPS / 2; distance > 0; distance /= 2, n *= 2) {
        Moments other{__shfl_xor_sync(0xffffffffu, m.mean, distance),
                      __shfl_xor_sync(0xffffffffu, m.squares, distance)};
        m = merge(m, other, n);
    }
    return m;
}

__device__ void write_row(z_t* target, int thread, const Row& values, const weight_t* weight,
                          const bias_t* bias, float mean, float rstd) {
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
        int at = v * ROW_THREADS + thread;
        uint4 scale = __ldg(reinterpret_cast<const uint4*>(weight) + at);
        uint4 shift = __ldg(reinterpret_cast<const uint4*>(bias) + at);
        uint4 packed;
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) {
            float normal = (element(values.raw[v], i) - mean) * rstd;
            float result = fmaf(normal, element(scale, i), element(shift, i));
            reinterpret_cast<z_t*>(&packed)[i] = z_t(result);
        }
        reinterpret_cast<uint4*>(target)[at] = packed;
    }
}

__global__ void __launch_bounds__(THREADS, THREADS_AN_SM / THREADS)
    normalise(const x_t* __restrict__ x, const weight_t* __restrict__ weight,
              const bias_t* __restrict__ bias, z_t* __restrict__ z, float* __restrict__ mean_out,
              float* __restrict__ rstd_out, int rows, float eps) {
    int thread = threadIdx.x % ROW_THREADS;
    int row = WARP_A_ROW ? blockIdx.x * ROWS + threadIdx.x / ROW_THREADS : blockIdx.x;
    if (WARP_A_ROW && row >= rows) return;  // no barrier waits for these lanes

    Row values = load_row(x + (int64_t)row * HIDDEN, thread);
    Moments all = warp_moments(thread_moments(values));
    if constexpr (!WARP_A_ROW) {
        __shared__ float2 partial[WARPS];
        if (thread % 32 == 0) partial[thread / 32] = {all.mean, all.squares};
        __syncthreads();
        all = row_moments(partial);
    }
    float rstd = rsqrtf(all.squares * (1.0f / HIDDEN) + eps);
    write_row(z + (int64_t)row * HIDDEN, thread, values, weight, bias, all.mean, rstd);
    if (thread == 0) {
        mean_out[row] = all.mean;
        rstd_out[row] = rstd;
    }
}

extern "C" void solve(const x_t* x, const weight_t* weight, const bias_t* bias, z_t* z, mean_t* mean,
                      rstd_t* rstd, int64_t rows, float eps, cudaStream_t stream) {
    unsigned blocks = (unsigned)((rows + ROWS - 1) / ROWS);
    normalise<<<blocks, THREADS, 0, stream>>>(x, weight, bias, z, mean, rstd, (int)rows, eps);
}
