// Tuned for the memory system: 128 bytes in flight a thread, no barrier, no idle threads.
//
// The idea. The work is a copy with a rotation on the way, so the bus decides. A thread keeps its column
// of the head for good: the eight cosines and eight sines it needs are loaded once into registers and
// serve HEADS heads of its token. All 2 * HEADS vectors of 16 bytes are loaded before the first is used;
// that many independent loads keep the bus full with few threads. Nothing is shared, so nothing waits.
//
// Heads are dealt out in strides: thread group g takes heads g, g + groups, g + 2 * groups, ..., so that
// neighbouring groups touch neighbouring heads at every step. The host picks the number of groups so that
// the heads come out even (32 + 8, 64 + 8 and 96 + 8 heads leave no thread without work), and puts as
// many tokens into a block as make about 256 threads.
#include "solve.h"

constexpr int HALF = HEAD_DIM / 2;
constexpr int PAIRS = 8;               // pairs of one head a thread
constexpr int PARTS = HALF / PAIRS;    // threads that share a head
constexpr int HEADS = 4;               // heads a thread

struct Column {
    float cosine[PAIRS], sine[PAIRS];
};

__device__ Column load_column(const cos_sin_t* row, int part) {
    Column column;
#pragma unroll
    for (int i = 0; i < PAIRS; i += 4) {
        *reinterpret_cast<float4*>(column.cosine + i) =
            __ldg(reinterpret_cast<const float4*>(row + part * PAIRS + i));
        *reinterpret_cast<float4*>(column.sine + i) =
            __ldg(reinterpret_cast<const float4*>(row + HALF + part * PAIRS + i));
    }
    return column;
}

__device__ float value(const uint4& raw, int i) {
    return __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(&raw)[i]);
}

// Rotate the eight pairs in (low, high). Halved pairs: element i of low with element i of high.
// Interleaved pairs: neighbours, the first four pairs in low and the others in high.
__device__ void rotate(uint4& low, uint4& high, const Column& column) {
    float first[PAIRS], second[PAIRS];
#pragma unroll
    for (int i = 0; i < PAIRS; ++i) {
        const uint4& home = i < PAIRS / 2 ? low : high;
        first[i] = INTERLEAVED ? value(home, 2 * i % PAIRS) : value(low, i);
        second[i] = INTERLEAVED ? value(home, 2 * i % PAIRS + 1) : value(high, i);
    }
    __nv_bfloat162* to_low = reinterpret_cast<__nv_bfloat162*>(&low);
    __nv_bfloat162* to_high = reinterpret_cast<__nv_bfloat162*>(&high);
    float a[PAIRS], b[PAIRS];
#pragma unroll
    for (int i = 0; i < PAIRS; ++i) {
        a[i] = first[i] * column.cosine[i] - second[i] * column.sine[i];
        b[i] = second[i] * column.cosine[i] + first[i] * column.sine[i];
    }
#pragma unroll
    for (int i = 0; i < PAIRS / 2; ++i) {
        to_low[i] = INTERLEAVED ? __floats2bfloat162_rn(a[i], b[i])
                                : __floats2bfloat162_rn(a[2 * i], a[2 * i + 1]);
        to_high[i] = INTERLEAVED ? __floats2bfloat162_rn(a[i + 4], b[i + 4])
                                 : __floats2bfloat162_rn(b[2 * i], b[2 * i + 1]);
    }
}

// blockDim = (groups * PARTS, tokens of the block).
__global__ void __launch_bounds__(512)
    rotate_heads(const q_t* __restrict__ q, const k_t* __restrict__ k,
                 const position_t* __restrict__ position, const cos_sin_t* __restrict__ cos_sin,
                 q_out_t* __restrict__ q_out, k_out_t* __restrict__ k_out, int64_t tokens, int q_heads,
                 int k_heads) {
    int64_t token = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (token >= tokens) return;
    int part = threadIdx.x % PARTS, group = threadIdx.x / PARTS, groups = blockDim.x / PARTS;
    int heads = q_heads + k_heads;
    int low_at = INTERLEAVED ? part * 2 : part;             // in vectors of eight elements
    int high_at = INTERLEAVED ? low_at + 1 : part + HALF / 8;

    // Heads beyond HEADS * groups only come up where a block could not hold enough groups.
    for (int first = group; first < heads; first += groups * HEADS) {
        const uint4* source[HEADS];
        uint4* target[HEADS];
        uint4 low[HEADS], high[HEADS];
#pragma unroll
        for (int h = 0; h < HEADS; ++h) {
            int head = first + h * groups;
            bool query = head < q_heads;
            int64_t at = (query ? token * q_heads + head : token * k_heads + head - q_heads) * HEAD_DIM;
            source[h] = reinterpret_cast<const uint4*>((query ? q : k) + at);
            target[h] = reinterpret_cast<uint4*>((query ? q_out : k_out) + at);
            if (head < heads) {
                low[h] = __ldg(source[h] + low_at);
                high[h] = __ldg(source[h] + high_at);
            }
        }
        Column column = load_column(cos_sin + (int64_t)position[token] * HEAD_DIM, part);
#pragma unroll
        for (int h = 0; h < HEADS; ++h) {
            if (first + h * groups >= heads) break;
            rotate(low[h], high[h], column);
            target[h][low_at] = low[h];
            target[h][high_at] = high[h];
        }
    }
}

extern "C" void solve(const q_t* q, const k_t* k, const position_t* position, const cos_sin_t* cos_sin,
                      q_out_t* q_out, k_out_t* k_out, int64_t tokens, int64_t q_heads, int64_t k_heads,
                      int64_t positions, cudaStream_t stream) {
    int64_t heads = q_heads + k_heads;
    int64_t groups = (heads + HEADS - 1) / HEADS;
    if (groups * PARTS > 512) groups = 512 / PARTS;
    unsigned width = (unsigned)(groups * PARTS);
    unsigned tokens_a_block = width >= 192 ? 1 : 256 / width;
    dim3 block(width, tokens_a_block);
    unsigned blocks = (unsigned)((tokens + tokens_a_block - 1) / tokens_a_block);
    rotate_heads<<<blocks, block, 0, stream>>>(q, k, position, cos_sin, q_out, k_out, tokens, (int)q_heads,
                                               (int)k_heads);
}
