// Sixteen queries a block share every tile of 16 to 64 keys and values through shared memory.
//
// The tile is stored as floats with one element of padding a row, so that neither a walk along a row nor
// one down a column meets bank conflicts; keys and values take turns in the same memory. Threads have three
// roles: when scores are computed a thread owns one key and some queries, when weights are computed eight
// threads share a query and combine by shuffles, and when o is summed the same eight threads own every
// eighth element of their query's row.
#include "solve.h"

constexpr int QUERIES = 16, THREADS = 128;
constexpr int KEYS = HEAD_DIM <= 128 ? 64 : HEAD_DIM <= 192 ? 32 : 16;  // what 48 KiB hold
constexpr int SHARE = QUERIES * KEYS / THREADS;                         // scores a thread
constexpr int PITCH = HEAD_DIM + 1;
constexpr int OWN = HEAD_DIM / 8;  // elements of o a thread

template <typename T>
__device__ void load_tile(float (*tile)[PITCH], const T* source, int64_t rows, int count) {
    for (int n = threadIdx.x; n < count * HEAD_DIM; n += THREADS) {
        int row = n / HEAD_DIM, d = n % HEAD_DIM;
        tile[row][d] = row < rows ? float(source[(int64_t)row * HEAD_DIM + d]) : 0.0f;
    }
}

__global__ void __launch_bounds__(THREADS)
    attend(const q_t* __restrict__ q, const k_t* __restrict__ k, const v_t* __restrict__ v,
           o_t* __restrict__ o, lse_t* __restrict__ lse, int64_t q_heads, int64_t kv_heads, int64_t q_len,
           int64_t kv_len, float scale) {
    __shared__ float queries[QUERIES][PITCH], tile[KEYS][PITCH], weights[QUERIES][KEYS];
    int64_t first_query = (int64_t)blockIdx.x * QUERIES, head = blockIdx.y, sequence = blockIdx.z;
    int64_t q_row = (sequence * q_heads + head) * q_len + first_query;
    int64_t kv_row = (sequence * kv_heads + head / (q_heads / kv_heads)) * kv_len;
    int thread = threadIdx.x;
    int key = thread % KEYS, first_score = thread / KEYS * SHARE;  // role: scores
    int query = thread / 8, lane = thread % 8;                     // roles: weights and o
    int64_t queries_here = q_len - first_query < QUERIES ? q_len - first_query : QUERIES;

    // Query c of this block sees the keys before first_visible + c.
    int64_t first_visible = CAUSAL ? first_query + 1 + kv_len - q_len : kv_len;
    int64_t end = CAUSAL ? first_visible + queries_here - 1 : kv_len;
    int64_t visible = CAUSAL ? first_visible + query : kv_len;

    load_tile(queries, q + q_row * HEAD_DIM, queries_here, QUERIES);
    float maximum = -INFINITY, total = 0.0f, sum[OWN] = {};
    for (int64_t first = 0; first < end; first += KEYS) {
        __syncthreads();
        load_tile(tile, k + (kv_row + first) * HEAD_DIM, kv_len - first, KEYS);
        __syncthreads();
        float score[SHARE] = {};
        if (first_score < queries_here)
            for (int d = 0; d < HEAD_DIM; ++d)
#pragma unroll
                for (int c = 0; c < SHARE; ++c) score[c] += queries[first_score + c][d] * tile[key][d];
#pragma unroll
        for (int c = 0; c < SHARE; ++c) weights[first_score + c][key] = score[c] * scale;
        __syncthreads();

        load_tile(tile, v + (kv_row + first) * HEAD_DIM, kv_len - first, KEYS);
        float larger = maximum;
        for (int c = lane; c < KEYS; c += 8)
            if (first + c < visible) larger = fmaxf(larger, weights[query][c]);
        for (int step = 4; step > 0; step /= 2)
            larger = fmaxf(larger, __shfl_xor_sync(0xffffffffu, larger, step));
        // A query of the last, partial tile of queries may see nothing here: keep -inf - -inf out.
        float shrink = larger == -INFINITY ? 0.0f : expf(maximum - larger);
        maximum = larger;
        float part = 0.0f;
        for (int c = lane; c < KEYS; c += 8) {
            float weight = first + c < visible ? expf(weights[query][c] - maximum) : 0.0f;
            weights[query][c] = weight;
            part += weight;
        }
        for (int step = 4; step > 0; step /= 2) part += __shfl_xor_sync(0xffffffffu, part, step);
        total = total * shrink + part;
        __syncthreads();

#pragma unroll
        for (int e = 0; e < OWN; ++e) sum[e] *= shrink;
        if (query < queries_here)
            for (int c = 0; c < KEYS; ++c) {
                float weight = weights[query][c];
#pragma unroll
                for (int e = 0; e < OWN; ++e) sum[e] += weight * tile[c][lane + 8 * e];
            }
    }
    if (query >= queries_here) return;
    for (int e = 0; e < OWN; ++e) o[(q_row + query) * HEAD_DIM + lane + 8 * e] = o_t(sum[e] / total);
    if (lane == 0) lse[q_row + query] = maximum + logf(total);
}

extern "C" void solve(const q_t* q, const k_t* k, const v_t* v, o_t* o, lse_t* lse, int64_t batch,
                      int64_t q_heads, int64_t kv_heads, int64_t q_len, int64_t kv_len, float scale,
                      cudaStream_t stream) {
    dim3 blocks((unsigned)((q_len + QUERIES - 1) / QUERIES), (unsigned)q_heads, (unsigned)batch);
    attend<<<blocks, THREADS, 0, stream>>>(q, k, v, o, lse, q_heads, kv_heads, q_len, kv_len, scale);
}
