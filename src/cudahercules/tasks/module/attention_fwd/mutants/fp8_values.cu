// expect: incorrect — rounds the values to FP8 (e4m3) before they are weighted
#include <cuda_fp8.h>

#include "solve.h"

constexpr int THREADS = 128, OWN = (HEAD_DIM + THREADS - 1) / THREADS;  // elements of o a thread

__device__ float block_max(float value, float* scratch) {
    scratch[threadIdx.x] = value;
    __syncthreads();
    for (int width = THREADS / 2; width > 0; width /= 2) {
        if (threadIdx.x < width)
            scratch[threadIdx.x] = fmaxf(scratch[threadIdx.x], scratch[threadIdx.x + width]);
        __syncthreads();
    }
    float largest = scratch[0];
    __syncthreads();  // before scratch is written again
    return largest;
}

__global__ void attend(const q_t* q, const k_t* k, const v_t* v, o_t* o, lse_t* lse, int64_t q_heads,
                       int64_t kv_heads, int64_t q_len, int64_t kv_len, float scale) {
    __shared__ float query[HEAD_DIM], weight[THREADS], scratch[THREADS];
    int64_t i = blockIdx.x, head = blockIdx.y, sequence = blockIdx.z;
    int64_t row = (sequence * q_heads + head) * q_len + i;
    int64_t kv_head = sequence * kv_heads + head / (q_heads / kv_heads);
    k += kv_head * kv_len * HEAD_DIM;
    v += kv_head * kv_len * HEAD_DIM;
    int64_t visible = CAUSAL ? i + 1 + kv_len - q_len : kv_len;
    int thread = threadIdx.x;

    for (int d = thread; d < HEAD_DIM; d += THREADS) query[d] = float(q[row * HEAD_DIM + d]);
    __syncthreads();

    float maximum = -INFINITY, total = 0.0f, sum[OWN] = {};  // sum[e]: element thread + 128 e of o
    for (int64_t first = 0; first < visible; first += THREADS) {
        int64_t j = first + thread;
        float score = -INFINITY;
        if (j < visible) {
            score = 0.0f;
            for (int d = 0; d < HEAD_DIM; ++d) score += query[d] * float(k[j * HEAD_DIM + d]);
            score *= scale;
        }
        float larger = fmaxf(maximum, block_max(score, scratch));
        float shrink = expf(maximum - larger);
        maximum = larger;
        weight[thread] = expf(score - maximum);
        __syncthreads();

        int count = (int)(visible - first < THREADS ? visible - first : THREADS);
        total *= shrink;
        for (int e = 0; e < OWN; ++e) sum[e] *= shrink;
        for (int c = 0; c < count; ++c) {
            total += weight[c];
            for (int e = 0; e < OWN; ++e) {
                int d = thread + e * THREADS;
                if (d < HEAD_DIM)
                    sum[e] += weight[c] * float(__nv_fp8_e4m3(float(v[(first + c) * HEAD_DIM + d])));
            }
        }
        __syncthreads();
    }
    for (int e = 0; e < OWN; ++e) {
        int d = thread + e * THREADS;
        if (d < HEAD_DIM) o[row * HEAD_DIM + d] = o_t(sum[e] / total);
    }
    if (thread == 0) lse[row] = maximum + logf(total);
}

extern "C" void solve(const q_t* q, const k_t* k, const v_t* v, o_t* o, lse_t* lse, int64_t batch,
                      int64_t q_heads, int64_t kv_heads, int64_t q_len, int64_t kv_len, float scale,
                      cudaStream_t stream) {
    dim3 blocks((unsigned)q_len, (unsigned)q_heads, (unsigned)batch);
    attend<<<blocks, THREADS, 0, stream>>>(q, k, v, o, lse, q_heads, kv_heads, q_len, kv_len, scale);
}
