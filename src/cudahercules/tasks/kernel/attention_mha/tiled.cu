// Sixteen queries a block share every tile of 64 keys and values through shared memory.
//
// The tile is stored as floats with one element of padding a row, so that neither a walk along a row nor
// one down a column meets bank conflicts; keys and values take turns in the same memory. Threads have three
// roles: when scores are computed a thread owns one key and eight queries, when weights are computed eight
// threads share a query and combine by shuffles, and when o is summed the same eight threads own every
// eighth element of their query's row.
#include "solve.h"

constexpr int QUERIES = 16, KEYS = 64, THREADS = 128;
constexpr int PITCH = HEAD_DIM + 1;
constexpr int OWN = HEAD_DIM / 8;  // elements of o a thread

template <typename T>
__device__ void load_tile(float (*tile)[PITCH], const T* source, int64_t pitch, int64_t rows, int count) {
    for (int n = threadIdx.x; n < count * HEAD_DIM; n += THREADS) {
        int row = n / HEAD_DIM, d = n % HEAD_DIM;
        tile[row][d] = row < rows ? float(source[row * pitch + d]) : 0.0f;
    }
}

__global__ void __launch_bounds__(THREADS)
    attend(const q_t* __restrict__ q, const k_t* __restrict__ k, const v_t* __restrict__ v,
           o_t* __restrict__ o, int64_t heads, int64_t q_len, int64_t kv_len, float scale) {
    __shared__ float queries[QUERIES][PITCH], tile[KEYS][PITCH], weights[QUERIES][KEYS];
    int64_t first_query = (int64_t)blockIdx.x * QUERIES, head = blockIdx.y, sequence = blockIdx.z;
    int64_t pitch = heads * HEAD_DIM;  // from one position to the next
    q += ((sequence * q_len + first_query) * heads + head) * HEAD_DIM;
    o += ((sequence * q_len + first_query) * heads + head) * HEAD_DIM;
    k += (sequence * kv_len * heads + head) * HEAD_DIM;
    v += (sequence * kv_len * heads + head) * HEAD_DIM;
    int thread = threadIdx.x;
    int key = thread % KEYS, query_half = thread / KEYS * (QUERIES / 2);  // role: scores
    int query = thread / 8, lane = thread % 8;                           // roles: weights and o
    int64_t queries_here = q_len - first_query < QUERIES ? q_len - first_query : QUERIES;

    // The last query of this block sees the keys before `end`, this thread's query those before `visible`.
    int64_t end = CAUSAL && first_query + queries_here < kv_len ? first_query + queries_here : kv_len;
    int64_t visible = CAUSAL && first_query + query + 1 < kv_len ? first_query + query + 1 : kv_len;

    load_tile(queries, q, pitch, queries_here, QUERIES);
    float maximum = -INFINITY, total = 0.0f, sum[OWN] = {};
    for (int64_t first = 0; first < end; first += KEYS) {
        __syncthreads();
        load_tile(tile, k + first * pitch, pitch, kv_len - first, KEYS);
        __syncthreads();
        float score[QUERIES / 2] = {};
        for (int d = 0; d < HEAD_DIM; ++d)
#pragma unroll
            for (int c = 0; c < QUERIES / 2; ++c) score[c] += queries[query_half + c][d] * tile[key][d];
#pragma unroll
        for (int c = 0; c < QUERIES / 2; ++c) weights[query_half + c][key] = score[c] * scale;
        __syncthreads();

        load_tile(tile, v + first * pitch, pitch, kv_len - first, KEYS);
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
        for (int c = 0; c < KEYS; ++c) {
            float weight = weights[query][c];
#pragma unroll
            for (int e = 0; e < OWN; ++e) sum[e] += weight * tile[c][lane + 8 * e];
        }
    }
    if (query >= queries_here) return;
    for (int e = 0; e < OWN; ++e) o[query * pitch + lane + 8 * e] = o_t(sum[e] / total);
}

extern "C" void solve(const q_t* q, const k_t* k, const v_t* v, o_t* o, int64_t batch, int64_t heads,
                      int64_t q_len, int64_t kv_len, float scale, cudaStream_t stream) {
    dim3 blocks((unsigned)((q_len + QUERIES - 1) / QUERIES), (unsigned)heads, (unsigned)batch);
    attend<<<blocks, THREADS, 0, stream>>>(q, k, v, o, heads, q_len, kv_len, scale);
}
