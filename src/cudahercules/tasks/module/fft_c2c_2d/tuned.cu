// 1024 points as 32 times 32, along rows and then along columns, in portions that stay in L2 between the two.
//
// The idea. Both axes are transformed alike: 32 threads share a line of 1024 numbers, each transforms 32 of them in
// registers, they exchange through shared memory, and each transforms 32 again. With n = 32 a + b and k = c + 32 d,
//
//     y[c + 32 d] = sum over b of W32^(b d) * ( W1024^(b c) * sum over a of W32^(a c) * x[32 a + b] )
//
// A row belongs to one warp, which meets no barrier. Columns are taken eight at a time by a block of 256 threads, so
// that every row gives 64 bytes of contiguous numbers, two sectors of memory; their 64 KB go through shared memory once.
//
// Done for all images at once, the second pass would find nothing of what the first one wrote: 512 MB for 64 images.
// Two images are 16 MB. Rows of two images and columns of the same two follow each other, so that the second pass reads
// from L2, and most lines are written to memory once. Two streams take portions in turns, so that one portion's columns
// run beside the next one's rows and no launch is waited for; 32 MB of L2 are in use.
#include "solve.h"

static_assert(HEIGHT == 1024 && WIDTH == 1024 && sizeof(x_t) == 8);
constexpr int SIDE = 1024;

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

// --- rows: a warp each ---------------------------------------------------------------------------

constexpr int WARPS = 2;   // few: a block's registers are free again only when its last warp ends
constexpr int PITCH = 33;  // a column more than needed: rows and columns are free of bank conflicts

__global__ void __launch_bounds__(WARPS * 32, 12 / WARPS)
    transform_rows(const float2* __restrict__ x, float2* __restrict__ y, int64_t rows) {
    __shared__ float2 exchange[WARPS][32 * PITCH];
    int lane = threadIdx.x % 32;
    int64_t row = blockIdx.x * (int64_t)WARPS + threadIdx.x / 32;
    if (row >= rows) return;  // whole warps leave
    x += row * SIDE;
    y += row * SIDE;
    float2* mine = exchange[threadIdx.x / 32];

    float2 v[32];
#pragma unroll
    for (int a = 0; a < 32; ++a) v[a] = x[32 * a + lane];
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
    for (int d = 0; d < 32; ++d) y[32 * d + lane] = v[reversed(d)];
}

// --- columns: eight a block ----------------------------------------------------------------------

constexpr int COLUMNS = 8;
constexpr int COLUMN_BYTES = 32 * PITCH * COLUMNS * sizeof(float2);

__global__ void __launch_bounds__(32 * COLUMNS, 2) transform_columns(float2* __restrict__ y) {
    extern __shared__ float2 exchange[];  // c, b (of PITCH), column
    int column = threadIdx.x % COLUMNS, thread = threadIdx.x / COLUMNS;
    y += blockIdx.y * (int64_t)(SIDE * SIDE) + blockIdx.x * COLUMNS + column;

    float2 v[32];
#pragma unroll
    for (int a = 0; a < 32; ++a) v[a] = y[(32 * a + thread) * SIDE];
    transform32(v);
#pragma unroll
    for (int c = 0; c < 32; ++c) {
        float2 value = v[reversed(c)];
        if (c > 0) {
            float2 w = twiddles.at[32 * c + thread];
            value = times(value, w.x, w.y);
        }
        exchange[(c * PITCH + thread) * COLUMNS + column] = value;
    }
    __syncthreads();
#pragma unroll
    for (int b = 0; b < 32; ++b) v[b] = exchange[(thread * PITCH + b) * COLUMNS + column];
    transform32(v);
#pragma unroll
    for (int d = 0; d < 32; ++d) y[(thread + 32 * d) * SIDE] = v[reversed(d)];
}

constexpr int64_t PORTION = 2;  // images of 8 MB

extern "C" void solve(const x_t* x, y_t* y, int64_t batch, cudaStream_t stream) {
    cudaFuncSetAttribute(transform_columns, cudaFuncAttributeMaxDynamicSharedMemorySize, COLUMN_BYTES);
    cudaStream_t other;
    cudaEvent_t begin, end;
    cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&begin, cudaEventDisableTiming);
    cudaEventCreateWithFlags(&end, cudaEventDisableTiming);
    cudaEventRecord(begin, stream);
    cudaStreamWaitEvent(other, begin, 0);

    cudaStream_t sides[] = {stream, other};
    for (int64_t image = 0, turn = 0; image < batch; image += PORTION, turn ^= 1) {
        int64_t images = batch - image < PORTION ? batch - image : PORTION, first = image * SIDE * SIDE;
        unsigned row_blocks = (unsigned)(images * SIDE / WARPS);
        transform_rows<<<row_blocks, WARPS * 32, 0, sides[turn]>>>(x + first, y + first, images * SIDE);
        dim3 grid(SIDE / COLUMNS, (unsigned)images);
        transform_columns<<<grid, 32 * COLUMNS, COLUMN_BYTES, sides[turn]>>>(y + first);
    }

    cudaEventRecord(end, other);
    cudaStreamWaitEvent(stream, end, 0);
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    cudaStreamDestroy(other);
}
