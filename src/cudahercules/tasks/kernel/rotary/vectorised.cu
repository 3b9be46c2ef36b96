// One block a token: its row of the table is staged in shared memory once and serves all heads.
//
// Queries and keys share one launch: heads 0 .. q_heads - 1 are queries, the rest keys. Each thread
// rotates eight pairs with 16-byte loads and stores; a head of HEAD_DIM bf16 elements is a multiple of
// 128 bytes, so every vector is aligned. With halved pairs a thread reads eight elements of each half;
// with interleaved pairs the sixteen elements are neighbours.
#include "solve.h"

constexpr int HALF = HEAD_DIM / 2;
constexpr int WIDTH = 8;                   // pairs a thread
constexpr int THREADS_A_HEAD = HALF / WIDTH;

struct alignas(16) Eight {
    __nv_bfloat162 pair[4];

    __device__ float operator[](int i) const {
        return i % 2 ? __high2float(pair[i / 2]) : __low2float(pair[i / 2]);
    }
};

__device__ Eight pack(const float* values) {
    Eight packed;
#pragma unroll
    for (int i = 0; i < 4; ++i) packed.pair[i] = __floats2bfloat162_rn(values[2 * i], values[2 * i + 1]);
    return packed;
}

__device__ void rotate(const __nv_bfloat16* x, __nv_bfloat16* out, const float* cosine, const float* sine,
                       int part) {
    int low = INTERLEAVED ? part * 2 * WIDTH : part * WIDTH;
    int high = INTERLEAVED ? low + WIDTH : low + HALF;
    Eight u = *reinterpret_cast<const Eight*>(x + low);
    Eight v = *reinterpret_cast<const Eight*>(x + high);

    float a[WIDTH], b[WIDTH], first[WIDTH], second[WIDTH];
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) {
        if (INTERLEAVED) {
            a[i] = i < 4 ? u[2 * i] : v[2 * i - 8];
            b[i] = i < 4 ? u[2 * i + 1] : v[2 * i - 7];
        } else {
            a[i] = u[i];
            b[i] = v[i];
        }
        float c = cosine[part * WIDTH + i], s = sine[part * WIDTH + i];
        first[i] = a[i] * c - b[i] * s;
        second[i] = b[i] * c + a[i] * s;
    }
    float to_low[WIDTH], to_high[WIDTH];
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) {
        if (INTERLEAVED) {
            to_low[i] = i % 2 ? second[i / 2] : first[i / 2];
            to_high[i] = i % 2 ? second[4 + i / 2] : first[4 + i / 2];
        } else {
            to_low[i] = first[i];
            to_high[i] = second[i];
        }
    }
    *reinterpret_cast<Eight*>(out + low) = pack(to_low);
    *reinterpret_cast<Eight*>(out + high) = pack(to_high);
}

__global__ void __launch_bounds__(256) rotate_token(const q_t* q, const k_t* k, const position_t* position,
                                                    const cos_sin_t* cos_sin, q_out_t* q_out,
                                                    k_out_t* k_out, int q_heads, int k_heads) {
    __shared__ float row[HEAD_DIM];
    int64_t token = blockIdx.x;
    for (int i = threadIdx.x; i < HEAD_DIM; i += blockDim.x)
        row[i] = cos_sin[(int64_t)position[token] * HEAD_DIM + i];
    __syncthreads();

    int pieces = (q_heads + k_heads) * THREADS_A_HEAD;
    for (int piece = threadIdx.x; piece < pieces; piece += blockDim.x) {
        int head = piece / THREADS_A_HEAD, part = piece % THREADS_A_HEAD;
        if (head < q_heads) {
            int64_t at = (token * q_heads + head) * HEAD_DIM;
            rotate(q + at, q_out + at, row, row + HALF, part);
        } else {
            int64_t at = (token * k_heads + head - q_heads) * HEAD_DIM;
            rotate(k + at, k_out + at, row, row + HALF, part);
        }
    }
}

extern "C" void solve(const q_t* q, const k_t* k, const position_t* position, const cos_sin_t* cos_sin,
                      q_out_t* q_out, k_out_t* k_out, int64_t tokens, int64_t q_heads, int64_t k_heads,
                      int64_t positions, cudaStream_t stream) {
    rotate_token<<<(unsigned)tokens, 256, 0, stream>>>(q, k, position, cos_sin, q_out, k_out, (int)q_heads,
                                                       (int)k_heads);
}
