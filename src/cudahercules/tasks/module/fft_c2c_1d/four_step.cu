// 65536 points as 256 times 256, for lengths that no shared memory holds: two kernels, each over the whole array.
//
// Write n = 256 r + c and k = p + 256 q. Then
//
//     y[p + 256 q] = sum over c of W256^(c q) * ( W65536^(c p) * sum over r of W256^(r p) * x[256 r + c] )
//
// The first kernel transforms columns of 256 numbers and turns them by W65536^(c p), the second transforms rows. Both
// work on tiles of 16 transforms, so that what is read or written at a distance of 256 numbers comes in pieces of 128
// bytes. A tile's transform is again a product, 16 times 16: 16 threads share one, each transforms 16 numbers in
// registers, and between the two steps they exchange through shared memory.
#include "solve.h"

static_assert(LENGTH == 65536 && sizeof(x_t) == 8);

constexpr int TILE = 16;  // transforms of a block

__device__ float2 plus(float2 a, float2 b) { return {a.x + b.x, a.y + b.y}; }
__device__ float2 minus(float2 a, float2 b) { return {a.x - b.x, a.y - b.y}; }
__device__ float2 times(float2 a, float c, float s) { return {a.x * c - a.y * s, a.x * s + a.y * c}; }

// exp(-2 pi i k / 16) * a for a constant k below 8
__device__ __forceinline__ float2 turned16(float2 a, int k) {
    constexpr float root = 0.70710678118654752440f, c = 0.92387953251128675613f, s = 0.38268343236508977173f;
    if (k == 0) return a;
    if (k == 1) return times(a, c, -s);
    if (k == 2) return times(a, root, -root);
    if (k == 3) return times(a, s, -c);
    if (k == 4) return {a.y, -a.x};
    if (k == 5) return times(a, -s, -c);
    if (k == 6) return times(a, -root, -root);
    return times(a, -c, -s);
}

// In place; frequency k ends up at index reversed(k).
__device__ __forceinline__ void transform16(float2 (&v)[16]) {
#pragma unroll
    for (int half = 8; half >= 1; half /= 2)
#pragma unroll
        for (int i = 0; i < 16; ++i)
            if ((i & half) == 0) {
                float2 a = v[i], b = v[i + half];
                v[i] = plus(a, b);
                v[i + half] = turned16(minus(a, b), i % half * (8 / half));
            }
}

constexpr __host__ __device__ int reversed(int i) { return (i & 1) << 3 | (i & 2) << 1 | (i & 4) >> 1 | (i & 8) >> 3; }

// exp(-2 pi i k / n) * a
__device__ float2 turned(float2 a, int k, int n) {
    float s, c;
    sincospif(-2.0f * k / n, &s, &c);
    return times(a, c, s);
}

// 256 points: v[a] is number 16 a + thread of transform `column`; afterwards v[reversed(d)] is frequency thread + 16 d.
__device__ void transform256(float2 (&v)[16], float2 (*exchange)[16][TILE], int thread, int column) {
    transform16(v);
#pragma unroll
    for (int k = 0; k < 16; ++k) exchange[k][thread][column] = turned(v[reversed(k)], k * thread, 256);
    __syncthreads();
#pragma unroll
    for (int b = 0; b < 16; ++b) v[b] = exchange[thread][b][column];
    transform16(v);
}

__global__ void columns(const float2* x, float2* turned_columns) {
    __shared__ float2 exchange[16][16][TILE];
    int lane = threadIdx.x % TILE, thread = threadIdx.x / TILE, c = blockIdx.x * TILE + lane;
    x += blockIdx.y * (int64_t)LENGTH;
    turned_columns += blockIdx.y * (int64_t)LENGTH;
    float2 v[16];
#pragma unroll
    for (int a = 0; a < 16; ++a) v[a] = x[256 * (16 * a + thread) + c];
    transform256(v, exchange, thread, lane);
#pragma unroll
    for (int d = 0; d < 16; ++d) {
        int p = thread + 16 * d;
        turned_columns[256 * p + c] = turned(v[reversed(d)], c * p, LENGTH);
    }
}

__global__ void rows(const float2* turned_columns, float2* y) {
    __shared__ float2 exchange[16][16][TILE];
    int lane = threadIdx.x % TILE, thread = threadIdx.x / TILE, p = blockIdx.x * TILE + lane;
    turned_columns += blockIdx.y * (int64_t)LENGTH;
    y += blockIdx.y * (int64_t)LENGTH;
    float2 v[16];
#pragma unroll
    for (int a = 0; a < 16; ++a) v[a] = turned_columns[256 * p + 16 * a + thread];
    transform256(v, exchange, thread, lane);
#pragma unroll
    for (int d = 0; d < 16; ++d) y[p + 256 * (thread + 16 * d)] = v[reversed(d)];
}

extern "C" void solve(const x_t* x, y_t* y, int64_t batch, cudaStream_t stream) {
    constexpr int64_t AT_ONCE = 32768;  // a grid's second extent ends at 65535
    float2* scratch = nullptr;
    cudaMallocAsync(&scratch, batch * LENGTH * sizeof(float2), stream);
    for (int64_t first = 0; first < batch; first += AT_ONCE) {
        dim3 grid(256 / TILE, (unsigned)(batch - first < AT_ONCE ? batch - first : AT_ONCE));
        columns<<<grid, 16 * TILE, 0, stream>>>(x + first * LENGTH, scratch + first * LENGTH);
        rows<<<grid, 16 * TILE, 0, stream>>>(scratch + first * LENGTH, y + first * LENGTH);
    }
    cudaFreeAsync(scratch, stream);
}
