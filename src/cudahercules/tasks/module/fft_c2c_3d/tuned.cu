// 64 points as 8 times 8, planes first and then depth, in portions that stay in L2 between the two.
//
// The idea. A plane of 64 by 64 numbers is 32 KB: one block transforms both of its axes in shared memory. What is left
// are 4096 lines along the depth, whose numbers lie 32 KB apart; a block takes 16 neighbours, 128 bytes in every plane.
// Along every axis 8 threads share a line. With n = 8 a + b and k = c + 8 d,
//
//     y[c + 8 d] = sum over b of W8^(b d) * ( W64^(b c) * sum over a of W8^(a c) * x[8 a + b] )
//
// each thread transforms 8 numbers in registers, turns them, writes them back to the places from which it took them,
// and reads those of its neighbours. A line along the width belongs to lanes of one warp, which needs no barrier.
//
// Done for all volumes at once, the second kernel would find nothing of what the first one wrote. 8 volumes are 16 MB:
// both kernels for the same 8 follow each other, so that the second one reads from L2. Two streams take portions in
// turns, so that one portion's depth runs beside the next one's planes and no launch is waited for.
#include "solve.h"

static_assert(DEPTH == 64 && HEIGHT == 64 && WIDTH == 64 && sizeof(x_t) == 8);
constexpr int SIDE = 64, PLANE = SIDE * SIDE, VOLUME = SIDE * PLANE;

// --- sine and cosine while compiling -------------------------------------------------------------

struct Turn {
    double cosine, sine;
};

// Taylor series of cosine and sine at -2 pi * k / n for an angle of at most an eighth of a turn.
constexpr __host__ __device__ Turn series(double angle) {
    double square = angle * angle, cosine = 1.0, sine = 1.0;
    for (int i = 22; i >= 2; i -= 2) {
        cosine = 1.0 - square / ((i - 1) * i) * cosine;
        sine = 1.0 - square / (i * (i + 1)) * sine;
    }
    return {cosine, sine * angle};
}

// exp(-2 pi i k / n) for n a multiple of 8: brought into the first eighth of a turn, and back.
constexpr __host__ __device__ Turn root(int k, int n) {
    k %= n;
    int quarter = 4 * k / n, rest = k - quarter * n / 4;
    bool mirrored = 8 * rest > n;
    int small = mirrored ? n / 4 - rest : rest;
    Turn t = series(6.283185307179586476925 * small / n);
    double c = mirrored ? t.sine : t.cosine, s = mirrored ? t.cosine : t.sine;
    double turned_c = quarter == 0 ? c : quarter == 1 ? -s : quarter == 2 ? -c : s;
    double turned_s = quarter == 0 ? s : quarter == 1 ? c : quarter == 2 ? -s : -c;
    return {turned_c, -turned_s};
}

struct Table {
    float2 at[64];  // 8 c + b: W64^(b c)
};

constexpr __host__ __device__ Table filled() {
    Table table{};
    for (int c = 0; c < 8; ++c)
        for (int b = 0; b < 8; ++b) {
            Turn t = root(b * c, 64);
            table.at[8 * c + b].x = (float)t.cosine;
            table.at[8 * c + b].y = (float)t.sine;
        }
    return table;
}

__device__ const Table twiddles = filled();

// --- 8 points in registers -----------------------------------------------------------------------

__device__ float2 times(float2 a, float c, float s) {
    return {fmaf(a.x, c, -a.y * s), fmaf(a.x, s, a.y * c)};
}

// exp(-2 pi i k / 8) * a
__device__ __forceinline__ float2 turned(float2 a, int k) {
    constexpr float half = 0.70710678118654752440f;
    if (k == 0) return a;
    if (k == 1) return {half * (a.x + a.y), half * (a.y - a.x)};
    if (k == 2) return {a.y, -a.x};
    return {half * (a.y - a.x), -half * (a.x + a.y)};
}

constexpr __host__ __device__ int reversed(int i) { return (i & 1) << 2 | (i & 2) | (i & 4) >> 2; }

// In place; frequency k ends up at index reversed(k).
__device__ __forceinline__ void transform8(float2 (&v)[8]) {
#pragma unroll
    for (int half = 4; half >= 1; half /= 2)
#pragma unroll
        for (int i = 0; i < 8; ++i)
            if ((i & half) == 0) {
                float2 a = v[i], b = v[i + half];
                v[i] = {a.x + b.x, a.y + b.y};
                v[i + half] = turned({a.x - b.x, a.y - b.y}, i % half * (4 / half));
            }
}

// Transforms numbers 8 a + thread of a line and writes them, turned, to line[(8 c + thread) * stride].
__device__ __forceinline__ void first_half(float2 (&v)[8], float2* line, int stride, int thread) {
    transform8(v);
#pragma unroll
    for (int c = 0; c < 8; ++c) {
        float2 w = twiddles.at[8 * c + thread];
        line[(8 * c + thread) * stride] = times(v[reversed(c)], w.x, w.y);
    }
}

// Then v[reversed(d)] is frequency thread + 8 d.
__device__ __forceinline__ void second_half(float2 (&v)[8], const float2* line, int stride, int thread) {
#pragma unroll
    for (int b = 0; b < 8; ++b) v[b] = line[(8 * thread + b) * stride];
    transform8(v);
}

// --- a plane a block -----------------------------------------------------------------------------

constexpr int PITCH = SIDE + 1;  // a number more than needed: fewer bank conflicts

__global__ void __launch_bounds__(512) transform_planes(const float2* __restrict__ x, float2* __restrict__ y) {
    __shared__ float2 plane[SIDE * PITCH];
    x += blockIdx.x * (int64_t)PLANE;
    y += blockIdx.x * (int64_t)PLANE;

    int thread = threadIdx.x % 8, row = threadIdx.x / 8;
    float2 v[8];
#pragma unroll
    for (int a = 0; a < 8; ++a) v[a] = x[row * SIDE + 8 * a + thread];
    float2* line = plane + row * PITCH;
    first_half(v, line, 1, thread);
    __syncwarp();
    second_half(v, line, 1, thread);
    __syncwarp();  // everybody has read
#pragma unroll
    for (int d = 0; d < 8; ++d) line[thread + 8 * d] = v[reversed(d)];
    __syncthreads();

    int column = threadIdx.x % SIDE;
    thread = threadIdx.x / SIDE;
    line = plane + column;
#pragma unroll
    for (int a = 0; a < 8; ++a) v[a] = line[(8 * a + thread) * PITCH];
    first_half(v, line, PITCH, thread);
    __syncthreads();
    second_half(v, line, PITCH, thread);
#pragma unroll
    for (int d = 0; d < 8; ++d) y[(thread + 8 * d) * SIDE + column] = v[reversed(d)];
}

// --- 16 lines along the depth a block ------------------------------------------------------------

constexpr int LINES = 16;

__global__ void __launch_bounds__(8 * LINES) transform_depth(float2* __restrict__ y) {
    __shared__ float2 lines[SIDE * (LINES + 1)];
    int column = threadIdx.x % LINES, thread = threadIdx.x / LINES;
    y += blockIdx.y * (int64_t)VOLUME + blockIdx.x * LINES + column;
    float2 v[8];
#pragma unroll
    for (int a = 0; a < 8; ++a) v[a] = y[(8 * a + thread) * PLANE];
    first_half(v, lines + column, LINES + 1, thread);
    __syncthreads();
    second_half(v, lines + column, LINES + 1, thread);
#pragma unroll
    for (int d = 0; d < 8; ++d) y[(thread + 8 * d) * PLANE] = v[reversed(d)];
}

constexpr int64_t PORTION = 8;  // volumes of 2 MB

extern "C" void solve(const x_t* x, y_t* y, int64_t batch, cudaStream_t stream) {
    cudaStream_t other;
    cudaEvent_t begin, end;
    cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&begin, cudaEventDisableTiming);
    cudaEventCreateWithFlags(&end, cudaEventDisableTiming);
    cudaEventRecord(begin, stream);
    cudaStreamWaitEvent(other, begin, 0);

    cudaStream_t sides[] = {stream, other};
    for (int64_t volume = 0, turn = 0; volume < batch; volume += PORTION, turn ^= 1) {
        int64_t volumes = batch - volume < PORTION ? batch - volume : PORTION, first = volume * VOLUME;
        transform_planes<<<(unsigned)(volumes * SIDE), 512, 0, sides[turn]>>>(x + first, y + first);
        dim3 grid(PLANE / LINES, (unsigned)volumes);
        transform_depth<<<grid, 8 * LINES, 0, sides[turn]>>>(y + first);
    }

    cudaEventRecord(end, other);
    cudaStreamWaitEvent(stream, end, 0);
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    cudaStreamDestroy(other);
}
