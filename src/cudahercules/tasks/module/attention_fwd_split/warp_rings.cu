// The heads that share a key head read its keys once, on tensor cores; warps share nothing until the end.
//
// The queries of a sequence in all heads of a group are the rows of a matrix; a block takes 16 of them, one
// key head and a range of the keys, so many that the blocks fill the GPU once. Its warps take turns at
// groups of 16 keys. Each has a ring of its own in shared memory, filled by asynchronous copies, and a
// softmax of its own: no barrier of the block stands between a copy and its use, and what is in flight hides
// the way to memory. Scores (16 x 16) become weights in registers, since a result of mma lies as its next
// operand must. At the end the warps' parts are joined in shared memory, and a second kernel joins those of
// the blocks.
//
// The softmax works in base 2: exp(scale x) is exp2(scale log2(e) x).
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>

#include "solve.h"

constexpr int ROWS = 16, KEYS = 16;  // of one product
constexpr int WARPS = HEAD_DIM > 128 ? 2 : 4, THREADS = 32 * WARPS, STRIDE = WARPS * KEYS;
constexpr int STAGES = HEAD_DIM < 128 ? 3 : 2;
constexpr int PITCH = HEAD_DIM + 8;  // an odd number of 16 bytes: eight rows lie in different banks
constexpr int TILE = KEYS * PITCH;
constexpr int SHARED_BYTES = 2 * (ROWS * PITCH + WARPS * STAGES * 2 * TILE);
constexpr float LOG2_E = 1.4426950408889634f, LN_2 = 0.6931471805599453f;
static_assert(WARPS * ROWS * (HEAD_DIM + 2) * 4 <= 2 * WARPS * STAGES * 2 * TILE, "parts lie over the rings");

__device__ uint32_t shared_address(const void* pointer) {
    return (uint32_t)__cvta_generic_to_shared(pointer);
}

// 16 bytes to shared memory, later; zeros where `valid` is false.
__device__ void copy_async(void* target, const void* source, bool valid) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(target)), "l"(source),
                 "r"(valid ? 16 : 0)
                 : "memory");
}

__device__ void load_matrices(uint32_t (&m)[4], const void* address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(shared_address(address))
                 : "memory");
}

__device__ void load_transposed(uint32_t (&m)[4], const void* address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                 : "r"(shared_address(address))
                 : "memory");
}

#define MULTIPLY(TYPE) \
    asm("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE ".f32 " \
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))

__device__ void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    if constexpr (std::is_same<q_t, __half>::value)
        MULTIPLY("f16");
    else
        MULTIPLY("bf16");
}

__device__ uint32_t pack(float low, float high) {
    uint32_t result;
    if constexpr (std::is_same<q_t, __half>::value)
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
    else
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
    return result;
}

// A warp copies 16 keys and their values, `pitch` elements apart, into one stage of its ring.
__device__ void fetch(q_t* stage, const k_t* k, const v_t* v, int64_t pitch, int64_t valid) {
    constexpr int UNITS = HEAD_DIM / 8;  // of 16 bytes a row
    for (int n = threadIdx.x % 32; n < KEYS * UNITS; n += 32) {
        int key = n / UNITS, d = n % UNITS * 8;
        int64_t from = key < valid ? key * pitch + d : 0;
        copy_async(stage + key * PITCH + d, k + from, key < valid);
        copy_async(stage + TILE + key * PITCH + d, v + from, key < valid);
    }
}

// Rows of the parts: (sequence, key head, query, head in its group); see `join`.
__global__ void __launch_bounds__(THREADS)
    attend(const q_t* __restrict__ q, const k_t* __restrict__ k, const v_t* __restrict__ v,
           float* __restrict__ maximum, float* __restrict__ total, float* __restrict__ sum, int64_t q_heads,
           int64_t kv_heads, int64_t q_len, int64_t kv_len, int64_t keys_a_part, float scale2) {
    extern __shared__ __align__(16) unsigned char memory[];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    q_t* queries = (q_t*)memory;
    q_t* ring = queries + ROWS * PITCH + warp * STAGES * 2 * TILE;
    int64_t group = q_heads / kv_heads, rows = q_len * group, first_row = (int64_t)blockIdx.y * ROWS;
    int64_t sequence = blockIdx.z / kv_heads, kv_head = blockIdx.z % kv_heads;

    for (int n = threadIdx.x; n < ROWS * HEAD_DIM / 8; n += THREADS) {
        int64_t r = first_row + n / (HEAD_DIM / 8);
        int64_t from = (sequence * q_len + r / group) * q_heads + kv_head * group + r % group;
        int d = n % (HEAD_DIM / 8) * 8;
        uint4 part = r < rows ? *(const uint4*)(q + from * HEAD_DIM + d) : uint4{};
        *(uint4*)(queries + n / (HEAD_DIM / 8) * PITCH + d) = part;
    }
    __syncthreads();

    // This block's keys, of which this warp takes 16 in every STRIDE.
    int64_t last_row = min(first_row + ROWS, rows) - 1, begin = blockIdx.x * keys_a_part;
    int64_t end = min(begin + keys_a_part, CAUSAL ? last_row / group + 1 + kv_len - q_len : kv_len);
    int64_t mine = begin + warp * KEYS, pitch = kv_heads * HEAD_DIM;
    int steps = end > mine ? (int)((end - mine + STRIDE - 1) / STRIDE) : 0;
    int64_t visible[2];  // of rows lane / 4 and 8 more: the lane's rows in results of mma
    for (int half = 0; half < 2; ++half) {
        int64_t r = first_row + lane / 4 + 8 * half;
        visible[half] = CAUSAL ? min(r / group + 1 + kv_len - q_len, kv_len) : kv_len;
    }
    k += (sequence * kv_len * kv_heads + kv_head) * HEAD_DIM;
    v += (sequence * kv_len * kv_heads + kv_head) * HEAD_DIM;
    auto start = [&](int step) {
        int64_t key = mine + (int64_t)step * STRIDE;
        q_t* stage = ring + step % STAGES * 2 * TILE;
        if (step < steps) fetch(stage, k + key * pitch, v + key * pitch, pitch, kv_len - key);
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    for (int step = 0; step < STAGES - 1; ++step) start(step);

    float largest[2] = {-INFINITY, -INFINITY}, weights[2] = {}, out[HEAD_DIM / 8][4] = {};
    for (int step = 0; step < steps; ++step) {
        __syncwarp();  // every lane has read the stage that is filled now
        start(step + STAGES - 1);
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 1) : "memory");
        __syncwarp();
        const q_t* keys = ring + step % STAGES * 2 * TILE;
        const q_t* values = keys + TILE;

        float score[2][4] = {};  // of keys 0 .. 7 and 8 .. 15
#pragma unroll
        for (int d = 0; d < HEAD_DIM; d += 16) {
            uint32_t a[4], b[4];
            load_matrices(a, queries + lane % 16 * PITCH + d + lane / 16 * 8);
            load_matrices(b, keys + (lane / 16 * 8 + lane % 8) * PITCH + d + lane / 8 % 2 * 8);
            multiply(score[0], a, b[0], b[1]);
            multiply(score[1], a, b[2], b[3]);
        }

        float larger[2] = {largest[0], largest[1]}, shrink[2];
        int64_t key = mine + (int64_t)step * STRIDE + lane % 4 * 2;
#pragma unroll
        for (int n = 0; n < 8; ++n) {  // keys 8 apart, rows 8 apart, neighbours
            float& x = score[n / 4][n % 4];
            x = key + n / 4 * 8 + n % 2 < visible[n % 4 / 2] ? x * scale2 : -INFINITY;
            larger[n % 4 / 2] = fmaxf(larger[n % 4 / 2], x);
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            larger[half] = fmaxf(larger[half], __shfl_xor_sync(0xffffffffu, larger[half], 1));
            larger[half] = fmaxf(larger[half], __shfl_xor_sync(0xffffffffu, larger[half], 2));
            float base = larger[half] == -INFINITY ? 0.0f : larger[half];  // keeps -inf - -inf out
            shrink[half] = exp2f(largest[half] - base);
            largest[half] = larger[half];
            larger[half] = base;
            weights[half] *= shrink[half];
        }
#pragma unroll
        for (int n = 0; n < 8; ++n) {
            float& x = score[n / 4][n % 4];
            x = exp2f(x - larger[n % 4 / 2]);
            weights[n % 4 / 2] += x;
        }
        uint32_t a[4] = {pack(score[0][0], score[0][1]), pack(score[0][2], score[0][3]),
                         pack(score[1][0], score[1][1]), pack(score[1][2], score[1][3])};
#pragma unroll
        for (int d = 0; d < HEAD_DIM; d += 16) {
            uint32_t b[4];
            load_transposed(b, values + (lane / 8 % 2 * 8 + lane % 8) * PITCH + d + lane / 16 * 8);
            for (int n = 0; n < 8; ++n) out[d / 8 + n / 4][n % 4] *= shrink[n % 4 / 2];
            multiply(out[d / 8], a, b[0], b[1]);
            multiply(out[d / 8 + 1], a, b[2], b[3]);
        }
    }

    // Join the warps: parts lie over the rings, [warp][row] of maxima, totals and sums.
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    float* maxima = (float*)(memory + 2 * ROWS * PITCH);
    float *totals = maxima + WARPS * ROWS, *sums = totals + WARPS * ROWS;
    for (int half = 0; half < 2; ++half) {
        int at = warp * ROWS + lane / 4 + 8 * half;
        weights[half] += __shfl_xor_sync(0xffffffffu, weights[half], 1);
        weights[half] += __shfl_xor_sync(0xffffffffu, weights[half], 2);
        maxima[at] = largest[half];
        totals[at] = weights[half];
#pragma unroll
        for (int n = 0; n < HEAD_DIM / 8; ++n) {
            float2 pair = {out[n][2 * half], out[n][2 * half + 1]};
            *(float2*)(sums + at * HEAD_DIM + 8 * n + lane % 4 * 2) = pair;
        }
    }
    __syncthreads();
    for (int n = threadIdx.x; n < ROWS * HEAD_DIM; n += THREADS) {
        int row = n / HEAD_DIM, d = n % HEAD_DIM;
        if (first_row + row >= rows) break;
        float top = -INFINITY, all = 0.0f, value = 0.0f;
        for (int w = 0; w < WARPS; ++w) top = fmaxf(top, maxima[w * ROWS + row]);
        for (int w = 0; w < WARPS && top > -INFINITY; ++w) {
            float shrink = exp2f(maxima[w * ROWS + row] - top);
            all += shrink * totals[w * ROWS + row];
            value += shrink * sums[(w * ROWS + row) * HEAD_DIM + d];
        }
        int64_t at = (blockIdx.z * rows + first_row + row) * gridDim.x + blockIdx.x;
        sum[at * HEAD_DIM + d] = value;
        if (d == 0) maximum[at] = top;
        if (d == 0) total[at] = all;
    }
}

__global__ void __launch_bounds__(HEAD_DIM)
    join(const float* __restrict__ maximum, const float* __restrict__ total, const float* __restrict__ sum,
         o_t* __restrict__ o, lse_t* __restrict__ lse, int64_t q_heads, int64_t kv_heads, int64_t q_len,
         int64_t parts) {
    int64_t row = blockIdx.x, group = q_heads / kv_heads, d = threadIdx.x;
    int64_t sequence = row / (q_heads * q_len), kv_head = row / (group * q_len) % kv_heads;
    int64_t i = row / group % q_len, head = kv_head * group + row % group;
    float top = -INFINITY, all = 0.0f, value = 0.0f;
    for (int64_t p = row * parts; p < (row + 1) * parts; ++p) top = fmaxf(top, maximum[p]);
    for (int64_t p = row * parts; p < (row + 1) * parts; ++p) {
        float shrink = exp2f(maximum[p] - top);
        all += shrink * total[p];
        value += shrink * sum[p * HEAD_DIM + d];
    }
    o[((sequence * q_len + i) * q_heads + head) * HEAD_DIM + d] = o_t(value / all);
    if (d == 0) lse[(sequence * q_heads + head) * q_len + i] = LN_2 * (top + log2f(all));
}

extern "C" void solve(const q_t* q, const k_t* k, const v_t* v, o_t* o, lse_t* lse, int64_t batch,
                      int64_t q_heads, int64_t kv_heads, int64_t q_len, int64_t kv_len, float scale,
                      cudaStream_t stream) {
    int device = 0, processors = 0, resident = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    cudaFuncSetAttribute(attend, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, attend, THREADS, SHARED_BYTES);

    int64_t rows = q_len * (q_heads / kv_heads), row_tiles = (rows + ROWS - 1) / ROWS;
    int64_t places = (int64_t)processors * resident / (row_tiles * batch * kv_heads);
    int64_t strides = (kv_len + STRIDE - 1) / STRIDE;
    int64_t wanted = places < 1 ? 1 : places < strides ? places : strides;
    int64_t keys_a_part = (strides + wanted - 1) / wanted * STRIDE;
    int64_t parts = (kv_len + keys_a_part - 1) / keys_a_part;

    int64_t all = batch * q_heads * q_len * parts;
    float* scratch;
    cudaMallocAsync((void**)&scratch, all * (HEAD_DIM + 2) * sizeof(float), stream);
    float *maximum = scratch, *total = maximum + all, *sum = total + all;
    dim3 blocks((unsigned)parts, (unsigned)row_tiles, (unsigned)(batch * kv_heads));
    attend<<<blocks, THREADS, SHARED_BYTES, stream>>>(q, k, v, maximum, total, sum, q_heads, kv_heads, q_len,
                                                      kv_len, keys_a_part, scale * LOG2_E);
    join<<<(unsigned)(batch * q_heads * q_len), HEAD_DIM, 0, stream>>>(maximum, total, sum, o, lse, q_heads,
                                                                       kv_heads, q_len, parts);
    cudaFreeAsync(scratch, stream);
}
