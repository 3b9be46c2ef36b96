// expect: incorrect — negative scores count as they are
#include "solve.h"

constexpr int THREADS = 128;

__global__ void __launch_bounds__(THREADS) scores(const q_t* q, const k_t* k, const k_scale_t* k_scale, const w_t* w,
                                                  const first_t* first, const end_t* end, logits_t* logits,
                                                  int64_t keys, int64_t columns) {
    __shared__ float query[HEADS * HEAD_DIM];
    __shared__ float weight[HEADS];
    int64_t i = blockIdx.x;
    for (int e = threadIdx.x; e < HEADS * HEAD_DIM; e += THREADS) query[e] = float(q[i * HEADS * HEAD_DIM + e]);
    for (int h = threadIdx.x; h < HEADS; h += THREADS) weight[h] = w[i * HEADS + h];
    __syncthreads();

    for (int64_t j = threadIdx.x; j < columns; j += THREADS) {
        float logit = -INFINITY;
        if (j >= first[i] && j < end[i]) {
            float key[HEAD_DIM];
#pragma unroll
            for (int d = 0; d < HEAD_DIM; ++d) key[d] = float(k[j * HEAD_DIM + d]);
            logit = 0.0f;
            for (int h = 0; h < HEADS; ++h) {
                float score = 0.0f;
#pragma unroll
                for (int d = 0; d < HEAD_DIM; ++d) score += query[h * HEAD_DIM + d] * key[d];
                logit += weight[h] * score;
            }
            logit *= k_scale[j];
        }
        logits[i * columns + j] = logit;
    }
}

extern "C" void solve(const q_t* q, const k_t* k, const k_scale_t* k_scale, const w_t* w, const first_t* first,
                      const end_t* end, logits_t* logits, int64_t queries, int64_t keys, int64_t columns,
                      cudaStream_t stream) {
    scores<<<(unsigned)queries, THREADS, 0, stream>>>(q, k, k_scale, w, first, end, logits, keys, columns);
}
