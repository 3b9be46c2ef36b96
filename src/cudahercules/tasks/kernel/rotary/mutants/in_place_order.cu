// expect: incorrect — computes the second element from the first one after its rotation
#include "solve.h"

__global__ void rotate(const __nv_bfloat16* x, const int32_t* position, const float* cos_sin,
                       __nv_bfloat16* out, int64_t pairs, int64_t heads) {
    constexpr int HALF = HEAD_DIM / 2;
    int64_t index = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (index >= pairs) return;

    int i = index % HALF;
    int64_t head = index / HALF;  // counted through all tokens
    int64_t token = head / heads;
    int first = INTERLEAVED ? 2 * i : i;
    int second = INTERLEAVED ? 2 * i + 1 : i + HALF;

    const float* row = cos_sin + (int64_t)position[token] * HEAD_DIM;
    float c = row[i], s = row[HALF + i];
    float a = __bfloat162float(x[head * HEAD_DIM + first]);
    float b = __bfloat162float(x[head * HEAD_DIM + second]);
    out[head * HEAD_DIM + first] = __float2bfloat16(a * c - b * s);
    a = __bfloat162float(out[head * HEAD_DIM + first]);
    out[head * HEAD_DIM + second] = __float2bfloat16(b * c + a * s);
}

static void launch(const __nv_bfloat16* x, const int32_t* position, const float* cos_sin,
                   __nv_bfloat16* out, int64_t tokens, int64_t heads, cudaStream_t stream) {
    int64_t pairs = tokens * heads * (HEAD_DIM / 2);
    rotate<<<(unsigned)((pairs + 255) / 256), 256, 0, stream>>>(x, position, cos_sin, out, pairs, heads);
}

extern "C" void solve(const q_t* q, const k_t* k, const position_t* position, const cos_sin_t* cos_sin,
                      q_out_t* q_out, k_out_t* k_out, int64_t tokens, int64_t q_heads, int64_t k_heads,
                      int64_t positions, cudaStream_t stream) {
    launch(q, position, cos_sin, q_out, tokens, q_heads, stream);
    launch(k, position, cos_sin, k_out, tokens, k_heads, stream);
}
