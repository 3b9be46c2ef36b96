// expect: incorrect — leaves the last head of each group of more than one out of dk and dv
#include "solve.h"

constexpr int THREADS = 64, OWN = (HEAD_DIM + THREADS - 1) / THREADS;  // elements of a gradient a thread

// Where row (sequence, position, head) of a tensor with `length` positions and `heads` heads begins.
__device__ int64_t row_of(int64_t sequence, int64_t position, int64_t head, int64_t length, int64_t heads) {
    return ((sequence * length + position) * heads + head) * HEAD_DIM;
}

template <typename A, typename B>
__device__ float dot(const A* a, const B* b) {
    float sum = 0.0f;
    for (int d = 0; d < HEAD_DIM; ++d) sum += float(a[d]) * float(b[d]);
    return sum;
}

// D in the order of lse: (sequence, head, query).
__global__ void dot_products(const o_t* o, const dout_t* dout, float* D, int64_t q_heads, int64_t q_len,
                             int64_t count) {
    int64_t n = blockIdx.x * (int64_t)THREADS + threadIdx.x;
    if (n >= count) return;
    int64_t row = row_of(n / (q_heads * q_len), n % q_len, n / q_len % q_heads, q_len, q_heads);
    D[n] = dot(o + row, dout + row);
}

__global__ void query_gradient(const q_t* q, const k_t* k, const v_t* v, const lse_t* lse, const dout_t* dout,
                               const float* D, dq_t* dq, int64_t q_heads, int64_t kv_heads, int64_t q_len,
                               int64_t kv_len, float scale) {
    __shared__ float query[HEAD_DIM], gradient[HEAD_DIM], ds[THREADS];
    int64_t i = blockIdx.x, head = blockIdx.y, sequence = blockIdx.z, kv_head = head / (q_heads / kv_heads);
    int64_t row = row_of(sequence, i, head, q_len, q_heads), n = (sequence * q_heads + head) * q_len + i;
    int64_t visible = CAUSAL ? i + 1 + kv_len - q_len : kv_len;
    int thread = threadIdx.x;
    for (int d = thread; d < HEAD_DIM; d += THREADS) query[d] = float(q[row + d]);
    for (int d = thread; d < HEAD_DIM; d += THREADS) gradient[d] = float(dout[row + d]);
    __syncthreads();

    float sum[OWN] = {};  // sum[e]: element thread + 64 e
    for (int64_t first = 0; first < visible; first += THREADS) {
        int64_t j = first + thread;
        if (j < visible) {
            int64_t key = row_of(sequence, j, kv_head, kv_len, kv_heads);
            float p = expf(scale * dot(query, k + key) - lse[n]);
            ds[thread] = p * (dot(gradient, v + key) - D[n]);
        }
        __syncthreads();
        int count = (int)(visible - first < THREADS ? visible - first : THREADS);
        const k_t* key = k + row_of(sequence, first, kv_head, kv_len, kv_heads);
        for (int c = 0; c < count; ++c, key += kv_heads * HEAD_DIM) {
            for (int e = 0; e < OWN; ++e)
                if (thread + e * THREADS < HEAD_DIM) sum[e] += ds[c] * float(key[thread + e * THREADS]);
        }
        __syncthreads();
    }
    for (int e = 0; e < OWN; ++e)
        if (thread + e * THREADS < HEAD_DIM) dq[row + thread + e * THREADS] = dq_t(scale * sum[e]);
}

__global__ void key_gradients(const q_t* q, const k_t* k, const v_t* v, const lse_t* lse, const dout_t* dout,
                              const float* D, dk_t* dk, dv_t* dv, int64_t q_heads, int64_t kv_heads,
                              int64_t q_len, int64_t kv_len, float scale) {
    __shared__ float key[HEAD_DIM], value[HEAD_DIM], p[THREADS], ds[THREADS];
    int64_t j = blockIdx.x, kv_head = blockIdx.y, sequence = blockIdx.z, group = q_heads / kv_heads;
    int64_t row = row_of(sequence, j, kv_head, kv_len, kv_heads);
    int64_t begin = CAUSAL && j > kv_len - q_len ? j - (kv_len - q_len) : 0;  // the first query that sees it
    int thread = threadIdx.x;
    for (int d = thread; d < HEAD_DIM; d += THREADS) key[d] = float(k[row + d]);
    for (int d = thread; d < HEAD_DIM; d += THREADS) value[d] = float(v[row + d]);
    __syncthreads();

    float key_sum[OWN] = {}, value_sum[OWN] = {};
    int64_t heads = group > 1 ? group - 1 : 1;
    for (int64_t head = kv_head * group; head < kv_head * group + heads; ++head)
        for (int64_t first = begin; first < q_len; first += THREADS) {
            int64_t i = first + thread, n = (sequence * q_heads + head) * q_len + i;
            if (i < q_len) {
                int64_t query = row_of(sequence, i, head, q_len, q_heads);
                p[thread] = expf(scale * dot(key, q + query) - lse[n]);
                ds[thread] = p[thread] * (dot(value, dout + query) - D[n]);
            }
            __syncthreads();
            int count = (int)(q_len - first < THREADS ? q_len - first : THREADS);
            int64_t query = row_of(sequence, first, head, q_len, q_heads);
            for (int c = 0; c < count; ++c, query += q_heads * HEAD_DIM) {
                for (int e = 0; e < OWN; ++e) {
                    int d = thread + e * THREADS;
                    if (d >= HEAD_DIM) continue;
                    key_sum[e] += ds[c] * float(q[query + d]);
                    value_sum[e] += p[c] * float(dout[query + d]);
                }
            }
            __syncthreads();
        }
    for (int e = 0; e < OWN; ++e) {
        int d = thread + e * THREADS;
        if (d >= HEAD_DIM) continue;
        dk[row + d] = dk_t(scale * key_sum[e]);
        dv[row + d] = dv_t(value_sum[e]);
    }
}

extern "C" void solve(const q_t* q, const k_t* k, const v_t* v, const o_t* o, const lse_t* lse,
                      const dout_t* dout, dq_t* dq, dk_t* dk, dv_t* dv, int64_t batch, int64_t q_heads,
                      int64_t kv_heads, int64_t q_len, int64_t kv_len, float scale, cudaStream_t stream) {
    float* D;
    int64_t rows = batch * q_heads * q_len;
    cudaMallocAsync((void**)&D, rows * sizeof(float), stream);
    unsigned dots = (unsigned)((rows + THREADS - 1) / THREADS);
    dot_products<<<dots, THREADS, 0, stream>>>(o, dout, D, q_heads, q_len, rows);
    dim3 queries((unsigned)q_len, (unsigned)q_heads, (unsigned)batch);
    query_gradient<<<queries, THREADS, 0, stream>>>(q, k, v, lse, dout, D, dq, q_heads, kv_heads, q_len,
                                                    kv_len, scale);
    dim3 keys((unsigned)kv_len, (unsigned)kv_heads, (unsigned)batch);
    key_gradients<<<keys, THREADS, 0, stream>>>(q, k, v, lse, dout, D, dk, dv, q_heads, kv_heads, q_len,
                                                kv_len, scale);
    cudaFreeAsync(D, stream);
}
