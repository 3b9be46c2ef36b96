// expect: incorrect — takes every head for a matrix of its own, head by head, instead of side by side in each position
#include "solve.h"

constexpr int THREADS = 128;

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

__global__ void attend(const q_t* q, const k_t* k, const v_t* v, o_t* o, int64_t heads, int64_t q_len,
                       int64_t kv_len, float scale) {
    __shared__ float query[HEAD_DIM], weight[THREADS], scratch[THREADS];
    int64_t i = blockIdx.x, head = blockIdx.y, sequence = blockIdx.z;
    int64_t row = (sequence * heads + head) * q_len + i, pitch = HEAD_DIM;
    k += (sequence * heads + head) * kv_len * HEAD_DIM;
    v += (sequence * heads + head) * kv_len * HEAD_DIM;
    int64_t visible = CAUSAL && i + 1 < kv_len ? i + 1 : kv_len;
    int thread = threadIdx.x;

    if (thread < HEAD_DIM) query[thread] = float(q[row * HEAD_DIM + thread]);
    __syncthreads();

    float maximum = -INFINITY, total = 0.0f, sum = 0.0f;  // sum: element `thread` of the row of o
    for (int64_t first = 0; first < visible; first += THREADS) {
        int64_t j = first + thread;
        float score = -INFINITY;
        if (j < visible) {
            score = 0.0f;
            for (int d = 0; d < HEAD_DIM; ++d) score += query[d] * float(k[j * pitch + d]);
            score *= scale;
        }
        float larger = fmaxf(maximum, block_max(score, scratch));
        float shrink = expf(maximum - larger);
        maximum = larger;
        weight[thread] = expf(score - maximum);
        __syncthreads();

        int count = (int)(visible - first < THREADS ? visible - first : THREADS);
        total *= shrink;
        sum *= shrink;
        for (int c = 0; c < count; ++c) {
            total += weight[c];
            if (thread < HEAD_DIM) sum += weight[c] * float(v[(first + c) * pitch + thread]);
        }
        __syncthreads();
    }
    if (thread < HEAD_DIM) o[row * HEAD_DIM + thread] = o_t(sum / total);
}

extern "C" void solve(const q_t* q, const k_t* k, const v_t* v, o_t* o, int64_t batch, int64_t heads,
                      int64_t q_len, int64_t kv_len, float scale, cudaStream_t stream) {
    dim3 blocks((unsigned)q_len, (unsigned)heads, (unsigned)batch);
    attend<<<blocks, THREADS, 0, stream>>>(q, k, v, o, heads, q_len, kv_len, scale);
}
