// expect: incorrect — masks j >= i instead of j > i: a query does not see its own key (if there is another)
#include "solve.h"

constexpr int KEYS = 128;                          // of a piece: one a thread
constexpr int OWN = (HEAD_DIM + KEYS - 1) / KEYS;  // elements of a piece's sum a thread

__device__ float block_max(float value, float* scratch) {
    scratch[threadIdx.x] = value;
    __syncthreads();
    for (int width = KEYS / 2; width > 0; width /= 2) {
        if (threadIdx.x < width)
            scratch[threadIdx.x] = fmaxf(scratch[threadIdx.x], scratch[threadIdx.x + width]);
        __syncthreads();
    }
    float largest = scratch[0];
    __syncthreads();  // before scratch is written again
    return largest;
}

// Row (sequence, head, i) of the pieces: maximum and total [row][piece], sum [row][piece][HEAD_DIM].
__global__ void attend_piece(const q_t* q, const k_t* k, const v_t* v, float* maximum, float* total,
                             float* sum, int64_t q_heads, int64_t kv_heads, int64_t q_len, int64_t kv_len,
                             float scale) {
    __shared__ float query[HEAD_DIM], weight[KEYS], scratch[KEYS];
    int64_t piece = blockIdx.x, pieces = gridDim.x, i = blockIdx.y;
    int64_t sequence = blockIdx.z / q_heads, head = blockIdx.z % q_heads;
    int64_t kv_head = head / (q_heads / kv_heads), first = piece * KEYS;
    int64_t visible = CAUSAL ? i + 1 + kv_len - q_len : kv_len;
    if (CAUSAL && visible > 1) --visible;
    int thread = threadIdx.x;
    q += ((sequence * q_len + i) * q_heads + head) * HEAD_DIM;
    k += ((sequence * kv_len + first) * kv_heads + kv_head) * HEAD_DIM;
    v += ((sequence * kv_len + first) * kv_heads + kv_head) * HEAD_DIM;

    for (int d = thread; d < HEAD_DIM; d += KEYS) query[d] = float(q[d]);
    __syncthreads();
    float score = -INFINITY;
    if (first + thread < visible) {
        score = 0.0f;
        for (int d = 0; d < HEAD_DIM; ++d) score += query[d] * float(k[thread * kv_heads * HEAD_DIM + d]);
        score *= scale;
    }
    float largest = block_max(score, scratch);
    weight[thread] = expf(score - largest);
    __syncthreads();

    int count = (int)(visible - first < KEYS ? visible - first : KEYS);  // below 1: none is visible
    float weights = 0.0f, own[OWN] = {};                                 // own[e]: element thread + 128 e
    for (int c = 0; c < count; ++c) {
        weights += weight[c];
        for (int e = 0; e < OWN; ++e) {
            int d = thread + e * KEYS;
            if (d < HEAD_DIM) own[e] += weight[c] * float(v[c * kv_heads * HEAD_DIM + d]);
        }
    }
    int64_t at = (blockIdx.z * q_len + i) * pieces + piece;
    for (int d = thread, e = 0; e < OWN; d += KEYS, ++e)
        if (d < HEAD_DIM) sum[at * HEAD_DIM + d] = own[e];
    if (thread == 0) {
        maximum[at] = largest;
        total[at] = weights;
    }
}

__global__ void join(const float* maximum, const float* total, const float* sum, o_t* o, lse_t* lse,
                     int64_t q_heads, int64_t q_len, int64_t pieces) {
    int64_t row = blockIdx.x, d = threadIdx.x, head = row / q_len;  // head: of all sequences
    maximum += row * pieces;
    total += row * pieces;
    sum += row * pieces * HEAD_DIM;

    float largest = -INFINITY;
    for (int64_t p = 0; p < pieces; ++p) largest = fmaxf(largest, maximum[p]);
    float weights = 0.0f, value = 0.0f;
    for (int64_t p = 0; p < pieces; ++p) {
        float shrink = expf(maximum[p] - largest);
        weights += shrink * total[p];
        value += shrink * sum[p * HEAD_DIM + d];
    }
    int64_t sequence = head / q_heads, i = row % q_len;
    o[((sequence * q_len + i) * q_heads + head % q_heads) * HEAD_DIM + d] = o_t(value / weights);
    if (d == 0) lse[row] = largest + logf(weights);
}

extern "C" void solve(const q_t* q, const k_t* k, const v_t* v, o_t* o, lse_t* lse, int64_t batch,
                      int64_t q_heads, int64_t kv_heads, int64_t q_len, int64_t kv_len, float scale,
                      cudaStream_t stream) {
    int64_t rows = batch * q_heads * q_len, pieces = (kv_len + KEYS - 1) / KEYS;
    float* scratch;
    cudaMallocAsync((void**)&scratch, rows * pieces * (HEAD_DIM + 2) * sizeof(float), stream);
    float *maximum = scratch, *total = maximum + rows * pieces, *sum = total + rows * pieces;

    dim3 blocks((unsigned)pieces, (unsigned)q_len, (unsigned)(batch * q_heads));
    attend_piece<<<blocks, KEYS, 0, stream>>>(q, k, v, maximum, total, sum, q_heads, kv_heads, q_len, kv_len,
                                              scale);
    join<<<(unsigned)rows, HEAD_DIM, 0, stream>>>(maximum, total, sum, o, lse, q_heads, q_len, pieces);
    cudaFreeAsync(scratch, stream);
}
