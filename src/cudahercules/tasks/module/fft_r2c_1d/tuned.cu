// Two real signals of 1024 numbers as one complex one, 32 times 32: a warp transforms both in registers.
//
// The idea. With z = x[b] + i x[b+1] and its transform Z,
//
//     y[b][k] = (Z[k] + conj Z[N-k]) / 2        y[b+1][k] = (Z[k] - conj Z[N-k]) / 2i
//
// so that two real signals cost one complex transform and no further twiddle factor. The transform is that of
// 1024 complex numbers: write n = 32 a + b and k = c + 32 d; lane b transforms its numbers 32 a + b in registers, turns
// them by W1024^(b c), the warp transposes through shared memory, lane c transforms again and has frequencies c + 32 d.
// Frequency N - k is in lane 32 - c, at 31 - d: a shuffle brings it. All loads and stores are of 128 or 256
// contiguous bytes; no barrier is wider than a warp.
//
// A weak signal would drown in the rounding errors of a strong one. Both are therefore brought to a size between 1/2
// and 1 by a power of two first, which costs a warp two reductions, and brought back at the end.
#include "solve.h"

static_assert(LENGTH == 1024 && BINS == 513);

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
    float2 at[1024];  // 32 c + b: W1024^(b c)
};

constexpr __host__ __device__ Table filled() {
    Table table{};
    for (int c = 0; c < 32; ++c)
        for (int b = 0; b < 32; ++b) {
            Turn t = root(b * c, 1024);
            table.at[32 * c + b].x = (float)t.cosine;
            table.at[32 * c + b].y = (float)t.sine;
        }
    return table;
}

__device__ const Table twiddles = filled();

struct Root32 {
    float cosine[16], sine[16];
};

constexpr __host__ __device__ Root32 filled32() {
    Root32 roots{};
    for (int k = 0; k < 16; ++k) {
        roots.cosine[k] = (float)root(k, 32).cosine;
        roots.sine[k] = (float)root(k, 32).sine;
    }
    return roots;
}

// --- 32 points in registers ----------------------------------------------------------------------

__device__ float2 times(float2 a, float c, float s) {
    return {fmaf(a.x, c, -a.y * s), fmaf(a.x, s, a.y * c)};
}

// exp(-2 pi i k / 32) * a, cheaper at multiples of an eighth of a turn.
__device__ __forceinline__ float2 turned(float2 a, int k) {
    constexpr Root32 roots = filled32();
    constexpr float half = 0.70710678118654752440f;
    if (k == 0) return a;
    if (k == 8) return {a.y, -a.x};
    if (k == 4) return {half * (a.x + a.y), half * (a.y - a.x)};
    if (k == 12) return {half * (a.y - a.x), -half * (a.x + a.y)};
    return times(a, roots.cosine[k], roots.sine[k]);
}

constexpr __host__ __device__ int reversed(int i) {
    return (i & 1) << 4 | (i & 2) << 2 | (i & 4) | (i & 8) >> 2 | (i & 16) >> 4;
}

// In place; frequency k ends up at index reversed(k).
__device__ __forceinline__ void transform32(float2 (&v)[32]) {
#pragma unroll
    for (int half = 16; half >= 1; half /= 2)
#pragma unroll
        for (int i = 0; i < 32; ++i)
            if ((i & half) == 0) {
                float2 a = v[i], b = v[i + half];
                v[i] = {a.x + b.x, a.y + b.y};
                v[i + half] = turned({a.x - b.x, a.y - b.y}, i % half * (16 / half));
            }
}

// --- a warp two signals --------------------------------------------------------------------------

constexpr int WARPS = 2;   // few: a block's registers are free again only when its last warp ends
constexpr int PITCH = 33;  // a column more than needed: rows and columns are free of bank conflicts

// The exponent of a signal's root mean square, of which each lane has 32 numbers; 0 if there is nothing. Within +-120,
// so that powers of two of either sign are ordinary numbers.
__device__ int exponent_of(const float (&x)[32]) {
    float largest = 0.0f, squares = 0.0f;
#pragma unroll
    for (int a = 0; a < 32; ++a) largest = fmaxf(largest, fabsf(x[a]));
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
    if (largest == 0.0f) return 0;
    int peak = min(max(ilogbf(largest), -120), 120);
    float down = ldexpf(1.0f, -peak);
#pragma unroll
    for (int a = 0; a < 32; ++a) {
        float part = x[a] * down;
        squares += part * part;
    }
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
        squares += __shfl_xor_sync(0xffffffffu, squares, distance);
    return max(peak + ilogbf(sqrtf(squares * (1.0f / LENGTH))), -120);
}

__global__ void __launch_bounds__(WARPS * 32, 12 / WARPS)
    transform(const float* __restrict__ x, float2* __restrict__ y, int64_t batch) {
    __shared__ float2 exchange[WARPS][32 * PITCH];
    int lane = threadIdx.x % 32;
    int64_t signal = (blockIdx.x * (int64_t)WARPS + threadIdx.x / 32) * 2;
    if (signal >= batch) return;  // whole warps leave
    bool second = signal + 1 < batch;
    x += signal * LENGTH;
    y += signal * BINS;
    float2* mine = exchange[threadIdx.x / 32];

    float x0[32], x1[32];
#pragma unroll
    for (int a = 0; a < 32; ++a) x0[a] = x[32 * a + lane];
#pragma unroll
    for (int a = 0; a < 32; ++a) x1[a] = second ? x[LENGTH + 32 * a + lane] : 0.0f;
    int exponent0 = exponent_of(x0), exponent1 = exponent_of(x1);
    float down0 = ldexpf(1.0f, -exponent0), down1 = ldexpf(1.0f, -exponent1);
    float up0 = ldexpf(0.5f, exponent0), up1 = ldexpf(0.5f, exponent1);  // with the half of both formulas
    float2 v[32];
#pragma unroll
    for (int a = 0; a < 32; ++a) v[a] = {x0[a] * down0, x1[a] * down1};

    transform32(v);
#pragma unroll
    for (int c = 0; c < 32; ++c) {
        float2 value = v[reversed(c)];
        if (c > 0) {
            float2 w = twiddles.at[32 * c + lane];
            value = times(value, w.x, w.y);
        }
        mine[c * PITCH + lane] = value;
    }
    __syncwarp();
#pragma unroll
    for (int b = 0; b < 32; ++b) v[b] = mine[lane * PITCH + b];
    transform32(v);

#pragma unroll
    for (int d = 0; d <= 16; ++d) {  // frequency k = lane + 32 d up to 512
        float2 a = v[reversed(d)], b = v[reversed(31 - d)];
        b.x = __shfl_sync(0xffffffffu, b.x, (32 - lane) % 32);
        b.y = __shfl_sync(0xffffffffu, b.y, (32 - lane) % 32);
        if (lane == 0) b = v[reversed((32 - d) % 32)];  // lane 0 mirrors itself
        if (d == 16 && lane > 0) continue;
        y[lane + 32 * d] = {up0 * (a.x + b.x), up0 * (a.y - b.y)};
        if (second) y[BINS + lane + 32 * d] = {up1 * (a.y + b.y), up1 * (b.x - a.x)};
    }
}

extern "C" void solve(const x_t* x, y_t* y, int64_t batch, cudaStream_t stream) {
    transform<<<(unsigned)((batch + 2 * WARPS - 1) / (2 * WARPS)), WARPS * 32, 0, stream>>>(x, y, batch);
}
