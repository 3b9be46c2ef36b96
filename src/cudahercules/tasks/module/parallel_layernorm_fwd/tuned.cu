// Tuned for the memory system: both inputs are read once, the three outputs written once, a row stays in registers.
//
// The idea. A thread has 8 elements of a row, 16 of the longest, and asks for those of both inputs before it uses one:
// 64 to 128 KB a multiprocessor are under way in fp32. It then adds them up, and writes x right away, while the row's
// statistics are still to come; from here on it needs the sums only, in fp32. Rows of 256 belong to one warp, which
// meets no barrier; longer rows belong to one block with a single barrier.
//
// Mean and sum of squared deviations are reduced together: each thread takes the exact mean of its elements and the
// squares about it, and halves of equal size are merged by Chan's formula (delta^2 * n / 2), which loses nothing when
// the mean is large. Weights and biases, four pieces now, are loaded late: they come from L1, and registers decide.
#include "solve.h"

constexpr int WIDTH = HIDDEN == 8192 ? 16 : 8;     // elements of a thread
constexpr int ROW_THREADS = HIDDEN / WIDTH;        // 32, 128, 512, 512
constexpr int THREADS = ROW_THREADS < 128 ? 128 : ROW_THREADS;
constexpr int ROWS = THREADS / ROW_THREADS;        // rows a block
constexpr int WARPS = ROW_THREADS / 32;            // warps that share a row
constexpr int VECTOR = 16 / sizeof(x_t);           // elements of a 16-byte load
constexpr int VECTORS = WIDTH / VECTOR;
// As many as registers allow: 40 a thread in bf16, 48 to 64 in fp32, whose loads are twice as wide.
constexpr int THREADS_AN_SM = HIDDEN == 8192 ? 1024 : VECTORS == 1 ? 1536 : HIDDEN == 4096 ? 1024 : 1280;

__device__ float element(const uint4& raw, int i) { return float(reinterpret_cast<const x_t*>(&raw)[i]); }

// Mean and sum of squared deviations of `n` numbers.
struct Moments {
    float mean, squares;
};

// Two sets of n numbers each.
__device__ Moments merge(Moments a, Moments b, float n) {
    float delta = b.mean - a.mean;
    return {a.mean + 0.5f * delta, a.squares + b.squares + delta * delta * (0.5f * n)};
}

__device__ Moments thread_moments(const float (&value)[WIDTH]) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) sum += value[i];
    Moments m{sum / WIDTH, 0.0f};
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) m.squares += (value[i] - m.mean) * (value[i] - m.mean);
    return m;
}

// `lanes` neighbours, each with moments of n numbers.
template <int lanes>
__device__ Moments merged(Moments m, float n) {
#pragma unroll
    for (int distance = lanes / 2; distance > 0; distance /= 2, n *= 2) {
        Moments other{__shfl_xor_sync(0xffffffffu, m.mean, distance),
                      __shfl_xor_sync(0xffffffffu, m.squares, distance)};
        m = merge(m, other, n);
    }
    return m;
}

__device__ void write(uint4* to, const float (&value)[WIDTH], int v) {
    uint4 packed;
#pragma unroll
    for (int i = 0; i < VECTOR; ++i) reinterpret_cast<x_t*>(&packed)[i] = x_t(value[v * VECTOR + i]);
    *to = packed;
}

// normal * weight + bias for vector v of this thread, which lies at `at` in the row.
__device__ void write_scaled(uint4* to, const float (&normal)[WIDTH], int v, int at, const uint4* weight,
                             const uint4* bias) {
    uint4 scale = __ldg(weight + at), shift = __ldg(bias + at), packed;
#pragma unroll
    for (int i = 0; i < VECTOR; ++i)
        reinterpret_cast<x_t*>(&packed)[i] = x_t(fmaf(normal[v * VECTOR + i], element(scale, i), element(shift, i)));
    to[at] = packed;
}

__global__ void __launch_bounds__(THREADS, THREADS_AN_SM / THREADS)
    normalise(const uint4* __restrict__ x0, const uint4* __restrict__ residual, const uint4* __restrict__ weight0,
              const uint4* __restrict__ bias0, const uint4* __restrict__ weight1, const uint4* __restrict__ bias1,
              uint4* __restrict__ x, uint4* __restrict__ z0, uint4* __restrict__ z1, float* __restrict__ mean,
              float* __restrict__ rstd, int rows, float eps) {
    int thread = threadIdx.x % ROW_THREADS;
    int row = blockIdx.x * ROWS + threadIdx.x / ROW_THREADS;
    if (ROWS > 1 && row >= rows) return;  // whole warps leave, and there is no barrier
    int64_t start = row * (int64_t)(HIDDEN / VECTOR);

    uint4 a[VECTORS], b[VECTORS];
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
        a[v] = x0[start + v * ROW_THREADS + thread];
        b[v] = residual[start + v * ROW_THREADS + thread];
    }
    float value[WIDTH];
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) value[v * VECTOR + i] = element(a[v], i) + element(b[v], i);
        write(x + start + v * ROW_THREADS + thread, value, v);
    }

    Moments all = merged<32>(thread_moments(value), WIDTH);
    if constexpr (WARPS > 1) {
        __shared__ float2 partial[WARPS];
        if (thread % 32 == 0) partial[thread / 32] = {all.mean, all.squares};
        __syncthreads();
        float2 one = partial[threadIdx.x % WARPS];
        all = merged<WARPS>({one.x, one.y}, 32 * WIDTH);
    }
    float r = rsqrtf(all.squares * (1.0f / HIDDEN) + eps);
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) value[i] = (value[i] - all.mean) * r;
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
        write_scaled(z0 + start, value, v, v * ROW_THREADS + thread, weight0, bias0);
        write_scaled(z1 + start, value, v, v * ROW_THREADS + thread, weight1, bias1);
    }
    if (thread == 0) {
        mean[row] = all.mean;
        rstd[row] = r;
    }
}

template <class T>
const uint4* vectors(const T* pointer) {
    return reinterpret_cast<const uint4*>(pointer);
}

extern "C" void solve(const x0_t* x0, const residual_t* residual, const weight0_t* weight0, const bias0_t* bias0,
                      const weight1_t* weight1, const bias1_t* bias1, x_t* x, z0_t* z0, z1_t* z1, mean_t* mean,
                      rstd_t* rstd, int64_t rows, float eps, cudaStream_t stream) {
    unsigned blocks = (unsigned)((rows + ROWS - 1) / ROWS);
    normalise<<<blocks, THREADS, 0, stream>>>(
        vectors(x0), vectors(residual), vectors(weight0), vectors(bias0), vectors(weight1), vectors(bias1),
        reinterpret_cast<uint4*>(x), reinterpret_cast<uint4*>(z0), reinterpret_cast<uint4*>(z1), mean, rstd, (int)rows,
        eps);
}
