// Tuned for the memory system: four rows are read once, one is written once, sums over rows stay in registers.
//
// The idea. A fixed number of blocks walks over the rows. A thread has the same 8 or 16 columns of every row that its
// block meets, so that its shares of the four gradients of weights and biases are registers for the whole walk. Only
// at the end does each block write its shares (fp32) to scratch memory; a second kernel adds those of all blocks, a few
// megabytes that are still in L2.
//
// Every row has a wait in it: dx0 needs two sums over the row. Both go through one reduction, shuffles and a single
// barrier between warps, and meanwhile the next row is on its way: each thread copies its own elements of it
// asynchronously (cp.async) into a ring in shared memory. No other thread ever looks at these elements, so the ring
// needs no barrier. It is refilled vector by vector, right after the vector has been read: even where it holds a
// single row (four times 32 KB at 8192 columns in fp32), the whole next row is under way while the sums are formed.
//
// Registers are what there is least of: with 16 columns, 64 hold shares. Between the sums and dx0 a thread keeps two
// numbers an element, n = (x - mean) * rstd and t = dx + rstd * (dz0 * weight0 + dz1 * weight1), from which
// dx0 = t - rstd * (b + n * a). The weights are not kept; they come from L1 in every row.
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

constexpr int BLOCKS_AN_SM = HIDDEN == 256 ? 3 : HIDDEN == 1024 ? 4 : HIDDEN == 4096 ? 2 : 1;
constexpr int STREAMS = 4;  // dz0, dz1, dx, x
constexpr int RING_AN_SM = 128 << 10;  // bytes: one row of 8192 in fp32; A100 and later have that
constexpr int STAGE = THREADS * WIDTH * STREAMS * sizeof(x_t);
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

struct Operands {
    const uint4 *stream[STREAMS], *weight0, *weight1;
    const float *mean, *rstd;
    uint4* dx0;
    float* shares;
};

// Where the thread's share of column `at` (of WIDTH) belongs.
__device__ int column_of(int at, int thread) { return (at / VECTOR * ROW_THREADS + thread) * VECTOR + at % VECTOR; }

__global__ void __launch_bounds__(THREADS, BLOCKS_AN_SM) walk(const __grid_constant__ Operands to, int rows) {
    extern __shared__ uint4 ring[];  // stage, vector, stream, thread
    __shared__ float2 exchange[2][WARPS];
    int thread = threadIdx.x % ROW_THREADS;
    int first = blockIdx.x * TEAMS + threadIdx.x / ROW_THREADS, stride = gridDim.x * TEAMS;
    float share[4][WIDTH] = {};  // dweight0, dbias0, dweight1, dbias1

    auto slot = [&](int stage, int v) { return ring + (stage * VECTORS + v) * STREAMS * THREADS + threadIdx.x; };
    auto order = [&](int64_t row, int stage, int v) {
        if (row < rows) {
#pragma unroll
            for (int s = 0; s < STREAMS; ++s)
                __pipeline_memcpy_async(slot(stage, v) + s * THREADS, to.stream[s] + place(row, v, thread), 16);
        }
        __pipeline_commit();  // an empty group too, so that groups can be counted
    };
    for (int stage = 0; stage < STAGES; ++stage)
        for (int v = 0; v < VECTORS; ++v) order(first + stage * (int64_t)stride, stage, v);

    float next_m = first < rows ? to.mean[first] : 0.0f, next_r = first < rows ? to.rstd[first] : 0.0f;
    int stage = 0, turn = 0;
    for (int64_t row = first; row < rows; row += stride) {
        float m = next_m, r = next_r;
        if (row + stride < rows) {
            next_m = to.mean[row + stride];
            next_r = to.rstd[row + stride];
        }
        float n[WIDTH], t[WIDTH], a = 0.0f, b = 0.0f;
#pragma unroll
        for (int v = 0; v < VECTORS; ++v) {
            __pipeline_wait_prior(STAGES * VECTORS - 1);
            uint4 dz0 = slot(stage, v)[0], dz1 = slot(stage, v)[THREADS];
            uint4 later = slot(stage, v)[2 * THREADS], value = slot(stage, v)[3 * THREADS];
            uint4 scale0 = to.weight0[v * ROW_THREADS + thread], scale1 = to.weight1[v * ROW_THREADS + thread];
#pragma unroll
            for (int i = 0; i < VECTOR; ++i) {
                int at = v * VECTOR + i;
                float d0 = element(dz0, i), d1 = element(dz1, i);
                n[at] = (element(value, i) - m) * r;
                float g = d0 * element(scale0, i) + d1 * element(scale1, i);
                share[0][at] += d0 * n[at];
                share[1][at] += d0;
                share[2][at] += d1 * n[at];
                share[3][at] += d1;
                a += g * n[at];
                b += g;
                t[at] = element(later, i) + r * g;
            }
            order(row + STAGES * (int64_t)stride, stage, v);
        }
        stage = stage + 1 == STAGES ? 0 : stage + 1;

        // Two sets of pairs in turns: whoever writes one again has passed the other's barrier since.
        float2 sums = row_sums(a, b, exchange[turn]);
        turn ^= 1;
        a = sums.x * (1.0f / HIDDEN) * r;
        b = sums.y * (1.0f / HIDDEN) * r;
#pragma unroll
        for (int v = 0; v < VECTORS; ++v) {
            uint4 packed;
#pragma unroll
            for (int i = 0; i < VECTOR; ++i) {
                int at = v * VECTOR + i;
                reinterpret_cast<dx0_t*>(&packed)[i] = dx0_t(t[at] - (b + n[at] * a));
            }
            to.dx0[place(row, v, thread)] = packed;
        }
    }

    float* shares = to.shares + blockIdx.x * (int64_t)(4 * HIDDEN);
    if constexpr (TEAMS == 1) {
#pragma unroll
        for (int k = 0; k < 4; ++k)
#pragma unroll
            for (int at = 0; at < WIDTH; ++at) shares[k * HIDDEN + column_of(at, thread)] = share[k][at];
    } else {
        __pipeline_wait_prior(0);
        __syncthreads();  // the ring is free: the teams add there
        float* all = reinterpret_cast<float*>(ring);
        static_assert(TEAMS * 4 * HIDDEN * sizeof(float) <= STAGES * STAGE || TEAMS == 1);
#pragma unroll
        for (int k = 0; k < 4; ++k)
#pragma unroll
            for (int at = 0; at < WIDTH; ++at)
                all[(threadIdx.x / ROW_THREADS * 4 + k) * HIDDEN + column_of(at, thread)] = share[k][at];
        __syncthreads();
        for (int column = threadIdx.x; column < 4 * HIDDEN; column += THREADS) {
            float sum = 0.0f;
            for (int team = 0; team < TEAMS; ++team) sum += all[team * 4 * HIDDEN + column];
            shares[column] = sum;
        }
    }
}

// 32 columns a block, 32 threads a column.
__global__ void add_shares(const float* shares, dweight0_t* dweight0, dbias0_t* dbias0, dweight1_t* dweight1,
                           dbias1_t* dbias1, int blocks) {
    __shared__ float sums[32][33];
    int column = blockIdx.x * 32 + threadIdx.x;
    float sum = 0.0f;
    for (int block = threadIdx.y; block < blocks; block += 32) sum += shares[block * (int64_t)(4 * HIDDEN) + column];
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    sum = sums[threadIdx.x][threadIdx.y];  // a warp adds a column now
    for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    if (threadIdx.x != 0) return;
    column = blockIdx.x * 32 + threadIdx.y;
    dweight0_t* outputs[4] = {dweight0, dbias0, dweight1, dbias1};
    outputs[column / HIDDEN][column % HIDDEN] = dweight0_t(sum);
}

template <class T>
const uint4* vectors(const T* pointer) {
    return reinterpret_cast<const uint4*>(pointer);
}

extern "C" void solve(const dz0_t* dz0, const dz1_t* dz1, const dx_t* dx, const x_t* x, const weight0_t* weight0,
                      const weight1_t* weight1, const mean_t* mean, const rstd_t* rstd, dx0_t* dx0,
                      dweight0_t* dweight0, dbias0_t* dbias0, dweight1_t* dweight1, dbias1_t* dbias1, int64_t rows,
                      cudaStream_t stream) {
    int device = 0, sms = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
    // At least four rows for each team: fewer blocks leave fewer shares to add.
    int64_t wanted = (rows + 4 * TEAMS - 1) / (4 * TEAMS);
    int blocks = (int)(wanted < sms * BLOCKS_AN_SM ? wanted : sms * BLOCKS_AN_SM);

    float* shares = nullptr;
    cudaMallocAsync(&shares, blocks * (4 * HIDDEN) * sizeof(float), stream);
    Operands operands{{vectors(dz0), vectors(dz1), vectors(dx), vectors(x)},
                      vectors(weight0),
                      vectors(weight1),
                      mean,
                      rstd,
                      reinterpret_cast<uint4*>(dx0),
                      shares};
    cudaFuncSetAttribute(walk, cudaFuncAttributeMaxDynamicSharedMemorySize, STAGES * STAGE);
    walk<<<blocks, THREADS, STAGES * STAGE, stream>>>(operands, (int)rows);
    add_shares<<<4 * HIDDEN / 32, dim3(32, 32), 0, stream>>>(shares, dweight0, dbias0, dweight1, dbias1, blocks);
    cudaFreeAsync(shares, stream);
}
