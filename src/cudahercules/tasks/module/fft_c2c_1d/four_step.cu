// 65536 points as 256 times 256, for lengths that no shared memory holds: two kernels, with an intermediate result that
// stays in L2.
//
// The idea. Write n = 256 r + c and k = p + 256 q. Then
//
//     y[p + 256 q] = sum over c of W256^(c q) * ( W65536^(c p) * sum over r of W256^(r p) * x[256 r + c] )
//
// The first kernel transforms columns of 256 numbers and turns them by W65536^(c p), the second transforms rows. Both
// work on tiles of 16 transforms, so that what is read or written at a distance of 256 numbers comes in pieces of 128
// bytes. A tile's transform is again a product, 16 times 16: 16 threads share one, each transforms 16 numbers in
// registers, and between the two steps they exchange through shared memory. There the second kernel changes sides as
// well: it reads with neighbouring threads along a row and writes with neighbouring threads across rows.
//
// Done for all signals at once, the second kernel would find nothing of what the first one wrote. 32 signals are 16 MB.
// Portions of 32 go through two scratch buffers in turns, each on a stream of its own, so that one portion's second
// kernel runs beside the next one's first and no launch is waited for. 32 MB of L2 are in use; x and y cross the bus
// once.
//
// Twiddle factors come from two tables of 256, filled while compiling in double precision: W65536^(256 i + j) is
// W256^i times W65536^j, both exact to the last bit.
#include "solve.h"

static_assert(LENGTH == 65536 && sizeof(x_t) == 8);

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
    float2 at[256];
};

// exp(-2 pi i k / n), k below 256
constexpr __host__ __device__ Table filled(int n) {
    Table table{};
    for (int k = 0; k < 256; ++k) {
        Turn t = root(k, n);
        table.at[k].x = (float)t.cosine;
        table.at[k].y = (float)t.sine;
    }
    return table;
}

__device__ const Table coarse = filled(256), fine = filled(65536);

// --- 16 points in registers ----------------------------------------------------------------------

__device__ float2 times(float2 a, float c, float s) { return {fmaf(a.x, c, -a.y * s), fmaf(a.x, s, a.y * c)}; }
__device__ float2 times(float2 a, float2 b) { return times(a, b.x, b.y); }

// exp(-2 pi i k / 16) * a for a constant k below 8
__device__ __forceinline__ float2 turned16(float2 a, int k) {
    constexpr float half = 0.70710678118654752440f, c = 0.92387953251128675613f, s = 0.38268343236508977173f;
    if (k == 0) return a;
    if (k == 1) return times(a, c, -s);
    if (k == 2) return {half * (a.x + a.y), half * (a.y - a.x)};
    if (k == 3) return times(a, s, -c);
    if (k == 4) return {a.y, -a.x};
    if (k == 5) return times(a, -s, -c);
    if (k == 6) return {half * (a.y - a.x), -half * (a.x + a.y)};
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
                v[i] = {a.x + b.x, a.y + b.y};
                v[i + half] = turned16({a.x - b.x, a.y - b.y}, i % half * (8 / half));
            }
}

constexpr __host__ __device__ int reversed(int i) { return (i & 1) << 3 | (i & 2) << 1 | (i & 4) >> 1 | (i & 8) >> 3; }

// --- 256 points: 16 threads, 16 numbers each -----------------------------------------------------

constexpr int TILE = 16, THREADS = 16 * TILE;
constexpr int PITCH = 17;  // one more than needed: no bank conflicts on either side
using Exchange = float2[16][TILE][PITCH];

// v[a] is number 16 a + thread of transform `line`.
__device__ __forceinline__ void first_half(float2 (&v)[16], Exchange& exchange, int line, int thread) {
    transform16(v);
#pragma unroll
    for (int k = 0; k < 16; ++k) exchange[k][line][thread] = times(v[reversed(k)], coarse.at[k * thread]);
}

// Afterwards v[reversed(d)] is frequency thread + 16 d of transform `line`.
__device__ __forceinline__ void second_half(float2 (&v)[16], const Exchange& exchange, int line, int thread) {
#pragma unroll
    for (int b = 0; b < 16; ++b) v[b] = exchange[thread][line][b];
    transform16(v);
}

__global__ void __launch_bounds__(THREADS, 4) columns(const float2* __restrict__ x, float2* __restrict__ scratch) {
    __shared__ Exchange exchange;
    int line = threadIdx.x % TILE, thread = threadIdx.x / TILE, c = blockIdx.x * TILE + line;
    x += blockIdx.y * LENGTH;
    scratch += blockIdx.y * LENGTH;
    float2 v[16];
#pragma unroll
    for (int a = 0; a < 16; ++a) v[a] = x[256 * (16 * a + thread) + c];
    first_half(v, exchange, line, thread);
    __syncthreads();
    second_half(v, exchange, line, thread);
#pragma unroll
    for (int d = 0; d < 16; ++d) {
        int p = thread + 16 * d, turn = c * p;
        scratch[256 * p + c] = times(v[reversed(d)], times(coarse.at[turn / 256], fine.at[turn % 256]));
    }
}

__global__ void __launch_bounds__(THREADS, 4) rows(const float2* __restrict__ scratch, float2* __restrict__ y) {
    __shared__ Exchange exchange;
    int near = threadIdx.x % 16, far = threadIdx.x / 16, p = blockIdx.x * TILE;
    scratch += blockIdx.y * LENGTH;
    y += blockIdx.y * LENGTH;
    float2 v[16];
#pragma unroll
    for (int a = 0; a < 16; ++a) v[a] = scratch[256 * (p + far) + 16 * a + near];
    first_half(v, exchange, far, near);
    __syncthreads();
    second_half(v, exchange, near, far);
#pragma unroll
    for (int d = 0; d < 16; ++d) y[p + near + 256 * (far + 16 * d)] = v[reversed(d)];
}

constexpr int PORTION = 32;  // signals of 512 KB

extern "C" void solve(const x_t* x, y_t* y, int64_t batch, cudaStream_t stream) {
    float2* scratch = nullptr;
    cudaMallocAsync(&scratch, 2 * PORTION * LENGTH * sizeof(float2), stream);
    cudaStream_t other;
    cudaEvent_t begin, end;
    cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&begin, cudaEventDisableTiming);
    cudaEventCreateWithFlags(&end, cudaEventDisableTiming);
    cudaEventRecord(begin, stream);
    cudaStreamWaitEvent(other, begin, 0);

    for (int64_t first = 0, turn = 0; first < batch; first += PORTION, turn ^= 1) {
        cudaStream_t side = turn == 0 ? stream : other;
        float2* buffer = scratch + turn * PORTION * LENGTH;
        dim3 grid(256 / TILE, (unsigned)(batch - first < PORTION ? batch - first : PORTION));
        columns<<<grid, THREADS, 0, side>>>(x + first * LENGTH, buffer);
        rows<<<grid, THREADS, 0, side>>>(buffer, y + first * LENGTH);
    }

    cudaEventRecord(end, other);
    cudaStreamWaitEvent(stream, end, 0);
    cudaFreeAsync(scratch, stream);
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    cudaStreamDestroy(other);
}
