// One kernel for all three gradients: a block keeps 16 keys and adds to dq atomically.
//
// The block walks over tiles of 16 queries, in all heads of its group and from the first query on that sees
// one of its keys. Of each tile it computes the 16 x 16 weights and their gradients once and uses them
// three times: dk and dv grow in registers, and what the tile's queries get from these keys goes to a
// scratch copy of dq in fp32, where blocks of other keys add as well. Scratch is zeroed before and scaled
// and rounded afterwards.
#include "solve.h"

constexpr int TILE = 16, THREADS = 128;  // queries and keys of a tile
constexpr int PITCH = HEAD_DIM + 2;      // an odd number of words: walks along a column meet no bank twice
constexpr int LANES = THREADS / TILE, OWN = HEAD_DIM / LANES;  // a row's threads, and elements of each

struct Place {  // where a row begins: [sequence][position][head]
    int64_t sequence, head, length, heads;
    __device__ int64_t row(int64_t position) const {
        return ((sequence * length + position) * heads + head) * HEAD_DIM;
    }
};

template <typename T>
__device__ void load_tile(T (*tile)[PITCH], const T* source, const Place& place, int64_t first) {
    for (int n = threadIdx.x; n < TILE * HEAD_DIM; n += THREADS) {
        int row = n / HEAD_DIM, d = n % HEAD_DIM;
        tile[row][d] = first + row < place.length ? source[place.row(first + row) + d] : T(0.0f);
    }
}

__global__ void __launch_bounds__(THREADS)
    attend_backward(const q_t* __restrict__ q, const k_t* __restrict__ k, const v_t* __restrict__ v,
                    const o_t* __restrict__ o, const lse_t* __restrict__ lse, const dout_t* __restrict__ dout,
                    float* __restrict__ dq_sum, dk_t* __restrict__ dk, dv_t* __restrict__ dv, int64_t q_heads,
                    int64_t kv_heads, int64_t q_len, int64_t kv_len, float scale) {
    __shared__ k_t keys[TILE][PITCH];
    __shared__ v_t values[TILE][PITCH];
    __shared__ q_t queries[TILE][PITCH];
    __shared__ dout_t gradients[TILE][PITCH];
    __shared__ float p[TILE][TILE], ds[TILE][TILE], dots[TILE];
    int64_t first_key = (int64_t)blockIdx.x * TILE, group = q_heads / kv_heads, past = kv_len - q_len;
    Place key_place{blockIdx.z, blockIdx.y, kv_len, kv_heads};
    int row = threadIdx.x / LANES, lane = threadIdx.x % LANES;  // a query's or a key's thread, in turns
    load_tile(keys, k, key_place, first_key);
    load_tile(values, v, key_place, first_key);

    int64_t begin = CAUSAL && first_key > past ? (first_key - past) / TILE * TILE : 0;
    float key_sum[OWN] = {}, value_sum[OWN] = {};
    for (int64_t head = blockIdx.y * group; head < (blockIdx.y + 1) * group; ++head) {
        Place place{blockIdx.z, head, q_len, q_heads};
        for (int64_t first = begin; first < q_len; first += TILE) {
            __syncthreads();
            load_tile(queries, q, place, first);
            load_tile(gradients, dout, place, first);
            __syncthreads();

            // D of each query, by its eight threads.
            float dot = 0.0f;
            if (first + row < q_len)
                for (int e = 0; e < OWN; ++e) {
                    int d = lane + LANES * e;
                    dot += float(o[place.row(first + row) + d]) * float(gradients[row][d]);
                }
            for (int step = LANES / 2; step > 0; step /= 2) dot += __shfl_xor_sync(0xffffffffu, dot, step);
            if (lane == 0) dots[row] = dot;
            __syncthreads();

            for (int n = threadIdx.x; n < TILE * TILE; n += THREADS) {
                int i = n / TILE, j = n % TILE;
                int64_t query = first + i, key = first_key + j;
                bool seen = query < q_len && key < (CAUSAL ? query + 1 + past : kv_len);
                float score = 0.0f, product = 0.0f;
                if (seen)
                    for (int d = 0; d < HEAD_DIM; ++d) {
                        score += float(queries[i][d]) * float(keys[j][d]);
                        product += float(gradients[i][d]) * float(values[j][d]);
                    }
                int64_t at = (place.sequence * q_heads + head) * q_len + query;
                p[i][j] = seen ? expf(scale * score - lse[at]) : 0.0f;
                ds[i][j] = p[i][j] * (product - dots[i]);
            }
            __syncthreads();

            int queries_here = (int)(q_len - first < TILE ? q_len - first : TILE);
            for (int i = 0; i < queries_here; ++i) {
                float weight = p[i][row], slope = ds[i][row];  // row: a key
#pragma unroll
                for (int e = 0; e < OWN; ++e) {
                    key_sum[e] += slope * float(queries[i][lane + LANES * e]);
                    value_sum[e] += weight * float(gradients[i][lane + LANES * e]);
                }
            }
            if (row < queries_here) {  // row: a query
                float query_sum[OWN] = {};
                for (int j = 0; j < TILE; ++j) {
                    float slope = ds[row][j];
#pragma unroll
                    for (int e = 0; e < OWN; ++e) query_sum[e] += slope * float(keys[j][lane + LANES * e]);
                }
                for (int e = 0; e < OWN; ++e)
                    atomicAdd(dq_sum + place.row(first + row) + lane + LANES * e, query_sum[e]);
            }
        }
    }
    if (first_key + row >= kv_len) return;
    for (int e = 0; e < OWN; ++e) {
        int64_t at = key_place.row(first_key + row) + lane + LANES * e;
        dk[at] = dk_t(scale * key_sum[e]);
        dv[at] = dv_t(value_sum[e]);
    }
}

__global__ void scale_and_round(const float* sum, dq_t* dq, int64_t count, float scale) {
    int64_t n = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (n < count) dq[n] = dq_t(scale * sum[n]);
}

extern "C" void solve(const q_t* q, const k_t* k, const v_t* v, const o_t* o, const lse_t* lse,
                      const dout_t* dout, dq_t* dq, dk_t* dk, dv_t* dv, int64_t batch, int64_t q_heads,
                      int64_t kv_heads, int64_t q_len, int64_t kv_len, float scale, cudaStream_t stream) {
    int64_t count = batch * q_len * q_heads * HEAD_DIM;
    float* dq_sum;
    cudaMallocAsync((void**)&dq_sum, count * sizeof(float), stream);
    cudaMemsetAsync(dq_sum, 0, count * sizeof(float), stream);
    dim3 blocks((unsigned)((kv_len + TILE - 1) / TILE), (unsigned)kv_heads, (unsigned)batch);
    attend_backward<<<blocks, THREADS, 0, stream>>>(q, k, v, o, lse, dout, dq_sum, dk, dv, q_heads, kv_heads,
                                                    q_len, kv_len, scale);
    scale_and_round<<<(unsigned)((count + 255) / 256), 256, 0, stream>>>(dq_sum, dq, count, scale);
    cudaFreeAsync(dq_sum, stream);
}
