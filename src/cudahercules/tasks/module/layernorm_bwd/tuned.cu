// Tuned for the memory system: dy and x are read once, dx is written once, sums over rows stay in registers.
//
// The idea. A fixed number of blocks walks over the rows. A thread has the same 8 or 16 columns of every row that its
// block meets, so that its shares of dweight and dbias are registers for the whole walk, and so is its piece of the
// weight. Only at the end does each block write its shares (fp32) to scratch memory; a second kernel adds those of all
// blocks, a few megabytes that are still in L2.
//
// Every row has a wait in it: dx needs two sums over the row. Both go through one reduction, shuffles and a single
// barrier between warps, and meanwhile the next rows are on their way: each thread copies its own elements of them
// asynchronously (cp.async) into a ring in shared memory. No other thread ever looks at these elements, so the ring
// needs no barrier. It is refilled vector by vector, right after the vector has been read: even where it holds a
// single row (8192 columns in fp32), the whole next row is under way while the sums are formed.
//
// Between the sums and dx a thread keeps two numbers an element, n = (x - mean) * rstd and g = dy * weight. Rows of
// 256 belong to one warp, which needs no barrier; eight of them share a block.
#include <cuda_pipeline.h>

#include "solve.h"

constexpr int ROW_THREADS = HIDDEN == 256 ? 32 : HIDDEN == 1024 ? 128 : HIDDEN == 4096 ? 256 : 512;
constexpr int THREADS = HIDDEN == 256 ? 256 : ROW_THREADS;
constexpr int TEAMS = THREADS / ROW_THREADS;  // rows at a time
constexpr int WARPS = ROW_THREADS / 32;       // warps that share a row
constexpr int WIDTH = HIDDEN / ROW_THREADS;   // columns of a thread
constexpr int VECTOR = 16 / sizeof(x_t);      // elements of a 16-byte copy
constexpr int VECTORS = WIDTH / VECTOR;
static_assert(WIDTH * ROW_THREADS == HIDDEN && VECTORS * VECTOR == WIDTH);

constexpr int BLOCKS_AN_SM = HIDDEN <= 1024 ? 4 : HIDDEN == 4096 ? 2 : 1;
constexpr int RING_AN_SM = 96 << 10;  // bytes; as much as any GPU since Ampere has
constexpr int STAGE = THREADS * WIDTH * 2 * sizeof(x_t);
constexpr int STAGES = RING_AN_SM / BLOCKS_AN_SM / STAGE;  // rows in the ring
static_assert(STAGES >= 1);

__device__ float element(const uint4& raw, int i) { return float(reinterpret_cast<const x_t*>(&raw)[i]); }

// Vector v of thread t lies at column (v * ROW_THREADS + t) * VECTOR: neighbours read neighbours.
__device__ int64_t place(int64_t row, int v, int thread) {
    return row * (HIDDEN / VECTOR) + v * ROW_THREADS + thread;
}

// The sums of a and b over the row's threads, in each of them. `exchange`: one pair a warp, not in use.
__device__ float2 row_sums(float a, float b, float2* exchange) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        a += __shfl_xor_sync(0xffffffffu, a, distance);
        b += __shfl_xor_sync(0xffffffffu, b, distance);
    }
    if constexpr (WARPS > 1) {
        if (threadIdx.x % 32 == 0) exchange[threadIdx.x / 32] = {a, b};
        __syncthreads();
        a = exchange[threadIdx.x % WARPS].x;
        b = exchange[threadIdx.x % WARPS].y;
#pragma unroll
        for (int distance = WARPS / 2; distance > 0; distance /= 2) {
            a += __shfl_xor_sync(0xffffffffu, a, distance);
            b += __shfl_xor_sync(0xffffffffu, b, distance);
        }
    }
    return {a, b};
}

__global__ void __launch_bounds__(THREADS, BLOCKS_AN_SM)
    walk(const uint4* __restrict__ dy, const uint4* __restrict__ x, const uint4* __restrict__ weight,
         const float* __restrict__ mean, const float* __restrict__ rstd, uint4* __restrict__ dx,
         float* __restrict__ shares, int rows) {
    extern __shared__ uint4 ring[];  // stage, vector, dy or x, thread
    __shared__ float2 exchange[2][WARPS];
    int thread = threadIdx.x % ROW_THREADS;
    int first = blockIdx.x * TEAMS + threadIdx.x / ROW_THREADS, stride = gridDim.x * TEAMS;

    uint4 scale[VECTORS];
    float weight_share[WIDTH] = {}, bias_share[WIDTH] = {};
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) scale[v] = weight[v * ROW_THREADS + thread];

    auto slot = [&](int stage, int v) { return ring + (stage * VECTORS + v) * 2 * THREADS + threadIdx.x; };
    auto order = [&](int64_t row, int stage, int v) {
        if (row < rows) {
            __pipeline_memcpy_async(slot(stage, v), dy + place(row, v, thread), 16);
            __pipeline_memcpy_async(slot(stage, v) + THREADS, x + place(row, v, thread), 16);
        }
        __pipeline_commit();  // an empty group too, so that groups can be counted
    };
    for (int stage = 0; stage < STAGES; ++stage)
        for (int v = 0; v < VECTORS; ++v) order(first + stage * (int64_t)stride, stage, v);

    float next_m = first < rows ? mean[first] : 0.0f, next_r = first < rows ? rstd[first] : 0.0f;
    int stage = 0, turn = 0;
    for (int64_t row = first; row < rows; row += stride) {
        float m = next_m, r = next_r;
        if (row + stride < rows) {
            next_m = mean[row + stride];
            next_r = rstd[row + stride];
        }
        float n[WIDTH], g[WIDTH], a = 0.0f, b = 0.0f;
#pragma unroll
        for (int v = 0; v < VECTORS; ++v) {
            __pipeline_wait_prior(STAGES * VECTORS - 1);
            uint4 gradient = *slot(stage, v), value = *(slot(stage, v) + THREADS);
#pragma unroll
            for (int i = 0; i < VECTOR; ++i) {
                int at = v * VECTOR + i;
                float d = element(gradient, i);
                n[at] = (element(value, i) - m) * r;
                g[at] = d * element(scale[v], i);
                weight_share[at] += d * n[at];
                bias_share[at] += d;
                a += g[at] * n[at];
                b += g[at];
            }
            order(row + STAGES * (int64_t)stride, stage, v);
        }
        stage = stage + 1 == STAGES ? 0 : stage + 1;

        // Two sets of pairs in turns: whoever writes one again has passed the other's barrier since.
        float2 sums = row_sums(a, b, exchange[turn]);
        turn ^= 1;
        a = sums.x * (1.0f / HIDDEN);
        b = sums.y * (1.0f / HIDDEN);
#pragma unroll
        for (int v = 0; v < VECTORS; ++v) {
            uint4 packed;
#pragma unroll
            for (int i = 0; i < VECTOR; ++i) {
                int at = v * VECTOR + i;
                reinterpret_cast<dx_t*>(&packed)[i] = dx_t(r * (g[at] - b - n[at] * a));
            }
            dx[place(row, v, thread)] = packed;
        }
    }

    shares += blockIdx.x * (int64_t)(2 * HIDDEN);
    if constexpr (TEAMS == 1) {
#pragma unroll
        for (int at = 0; at < WIDTH; ++at) {
            int column = (at / VECTOR * ROW_THREADS + thread) * VECTOR + at % VECTOR;
            shares[column] = weight_share[at];
            shares[HIDDEN + column] = bias_share[at];
        }
    } else {
        __pipeline_wait_prior(0);
        __syncthreads();  // the ring is free: the teams add there
        float* own = reinterpret_cast<float*>(ring) + threadIdx.x / ROW_THREADS * 2 * HIDDEN;
#pragma unroll
        for (int at = 0; at < WIDTH; ++at) {
            int column = (at / VECTOR * ROW_THREADS + thread) * VECTOR + at % VECTOR;
            own[column] = weight_share[at];
            own[HIDDEN + column] = bias_share[at];
        }
        __syncthreads();
        for (int column = threadIdx.x; column < 2 * HIDDEN; column += THREADS) {
            float sum = 0.0f;
            for (int team = 0; team < TEAMS; ++team) sum += reinterpret_cast<float*>(ring)[team * 2 * HIDDEN + column];
            shares[column] = sum;
        }
    }
}

// 32 columns a block, 32 threads a column.
__global__ void add_shares(const float* shares, dweight_t* dweight, dbias_t* dbias, int blocks) {
    __shared__ float sums[32][33];
    int column = blockIdx.x * 32 + threadIdx.x;
    float sum = 0.0f;
    for (int block = threadIdx.y; block < blocks; block += 32) sum += shares[block * (int64_t)(2 * HIDDEN) + column];
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    sum = sums[threadIdx.x][threadIdx.y];  // a warp adds a column now
    for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    column = blockIdx.x * 32 + threadIdx.y;
    if (threadIdx.x != 0) return;
    if (column < HIDDEN)
        dweight[column] = dweight_t(sum);
    else
        dbias[column - HIDDEN] = dbias_t(sum);
}

extern "C" void solve(const dy_t* dy, const x_t* x, const weight_t* weight, const mean_t* mean,
                      const rstd_t* rstd, dx_t* dx, dweight_t* dweight, dbias_t* dbias, int64_t rows,
                      cudaStream_t stream) {
    int device = 0, sms = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
    // At least four rows for each team: fewer blocks leave fewer shares to add.
    int64_t wanted = (rows + 4 * TEAMS - 1) / (4 * TEAMS);
    int blocks = (int)(wanted < sms * BLOCKS_AN_SM ? wanted : sms * BLOCKS_AN_SM);

    float* shares = nullptr;
    cudaMallocAsync(&shares, blocks * (2 * HIDDEN) * sizeof(float), stream);
    cudaFuncSetAttribute(walk, cudaFuncAttributeMaxDynamicSharedMemorySize, STAGES * STAGE);
    walk<<<blocks, THREADS, STAGES * STAGE, stream>>>(
        reinterpret_cast<const uint4*>(dy), reinterpret_cast<const uint4*>(x),
        reinterpret_cast<const uint4*>(weight), mean, rstd, reinterpret_cast<uint4*>(dx), shares, (int)rows);
    add_shares<<<2 * HIDDEN / 32, dim3(32, 32), 0, stream>>>(shares, dweight, dbias, blocks);
    cudaFreeAsync(shares, stream);
}
