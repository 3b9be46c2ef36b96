// `prepare` interleaves the table once, so that solve reads a cosine and its sine with one 8-byte load.
//
// The table is a weight: prepare sees it before solve runs. It allocates the new table, keeps the pointer
// in a host variable, and fills it on the stream. Queries and keys are rotated on two streams that are
// forked from the caller's stream and joined to it again.
#include "solve.h"

constexpr int HALF = HEAD_DIM / 2;

static float2* table;  // [positions][HALF] of (cosine, sine)

__global__ void interleave(const cos_sin_t* cos_sin, float2* pairs, int64_t count) {
    int64_t index = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (index >= count) return;
    const float* row = cos_sin + index / HALF * HEAD_DIM;
    pairs[index] = make_float2(row[index % HALF], row[HALF + index % HALF]);
}

__global__ void rotate(const __nv_bfloat16* x, const int32_t* position, const float2* pairs,
                       __nv_bfloat16* out, int heads) {
    int64_t token = blockIdx.x;
    const float2* row = pairs + (int64_t)position[token] * HALF;
    for (int index = threadIdx.x; index < heads * HALF; index += blockDim.x) {
        int i = index % HALF;
        int64_t head = (token * heads + index / HALF) * HEAD_DIM;
        int64_t first = head + (INTERLEAVED ? 2 * i : i);
        int64_t second = head + (INTERLEAVED ? 2 * i + 1 : i + HALF);
        float2 angle = row[i];
        float a = __bfloat162float(x[first]), b = __bfloat162float(x[second]);
        out[first] = __float2bfloat16(a * angle.x - b * angle.y);
        out[second] = __float2bfloat16(b * angle.x + a * angle.y);
    }
}

extern "C" void prepare(const cos_sin_t* cos_sin, int64_t tokens, int64_t q_heads, int64_t k_heads,
                        int64_t positions, cudaStream_t stream) {
    int64_t count = positions * HALF;
    cudaMalloc((void**)&table, count * sizeof(float2));
    interleave<<<(unsigned)((count + 255) / 256), 256, 0, stream>>>(cos_sin, table, count);
}

extern "C" void solve(const q_t* q, const k_t* k, const position_t* position, const cos_sin_t* cos_sin,
                      q_out_t* q_out, k_out_t* k_out, int64_t tokens, int64_t q_heads, int64_t k_heads,
                      int64_t positions, cudaStream_t stream) {
    cudaStream_t side;
    cudaEvent_t forked, joined;
    cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&forked, cudaEventDisableTiming);
    cudaEventCreateWithFlags(&joined, cudaEventDisableTiming);

    cudaEventRecord(forked, stream);
    cudaStreamWaitEvent(side, forked, 0);
    rotate<<<(unsigned)tokens, 128, 0, stream>>>(q, position, table, q_out, (int)q_heads);
    rotate<<<(unsigned)tokens, 128, 0, side>>>(k, position, table, k_out, (int)k_heads);
    cudaEventRecord(joined, side);
    cudaStreamWaitEvent(stream, joined, 0);

    cudaEventDestroy(forked);
    cudaEventDestroy(joined);
    cudaStreamDestroy(side);
}
