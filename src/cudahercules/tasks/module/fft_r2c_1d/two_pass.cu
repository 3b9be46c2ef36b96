// 65536 real numbers as 32768 complex ones, 128 times 256, and taken apart at the end: two kernels, with an intermediate
// result that stays in L2.
//
// The idea. With z[n] = x[2n] + i x[2n+1], n = 256 r + c and k = p + 128 q,
//
//     Z[p + 128 q] = sum over c of W256^(c q) * ( W32768^(c p) * sum over r of W128^(r p) * z[256 r + c] )
//
// The first kernel transforms columns of 128 numbers and turns them by W32768^(c p), 16 columns a block: pieces of 128
// bytes. The second transforms rows of 256 and takes the result apart at once: with M = 32768,
//
//     E = (Z[k] + conj Z[M-k]) / 2    O = (Z[k] - conj Z[M-k]) / 2i    T = W65536^k * O
//     y[k] = E + T                    y[M-k] = conj(E - T)
//
// so that rows p and 128 - p belong together. A block takes eight neighbouring rows and the eight that mirror them; rows
// 0 and 64 mirror themselves and share a place. y is written in pieces of 64 bytes, once.
//
// Portions of 64 signals (16 MB of intermediate result) go through two scratch buffers in turns, each on a stream of its
// own, so that one portion's second kernel runs beside the next one's first; x and y cross the bus once.
#include "solve.h"

static_assert(LENGTH == 65536 && BINS == 32769);
constexpr int HALF = LENGTH / 2;  // complex numbers of a signal

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

// The same for numbers first .. first + 7: frequency k ends up at first + reversed8(k).
__device__ __forceinline__ void transform8(float2 (&v)[16], int first) {
#pragma unroll
    for (int half = 4; half >= 1; half /= 2)
#pragma unroll
        for (int i = 0; i < 8; ++i)
            if ((i & half) == 0) {
                float2 a = v[first + i], b = v[first + i + half];
                v[first + i] = {a.x + b.x, a.y + b.y};
                v[first + i + half] = turned16({a.x - b.x, a.y - b.y}, i % half * (8 / half));
            }
}

constexpr __host__ __device__ int reversed8(int i) { return (i & 1) << 2 | (i & 2) | (i & 4) >> 2; }

// --- columns of 128: 8 threads, 16 numbers each --------------------------------------------------

constexpr int TILE = 16;
constexpr int PITCH = 17;  // one more than needed: no bank conflicts

__global__ void __launch_bounds__(8 * TILE, 8) columns(const float2* __restrict__ z, float2* __restrict__ scratch) {
    __shared__ float2 exchange[8][TILE][PITCH];
    int line = threadIdx.x % TILE, thread = threadIdx.x / TILE, c = blockIdx.x * TILE + line;
    z += blockIdx.y * (int64_t)HALF;
    scratch += blockIdx.y * (int64_t)HALF;
    float2 v[16];
#pragma unroll
    for (int a = 0; a < 8; ++a) {  // numbers 16 a + thread and 16 a + thread + 8
        v[a] = z[256 * (16 * a + thread) + c];
        v[8 + a] = z[256 * (16 * a + thread + 8) + c];
    }
    transform8(v, 0);
    transform8(v, 8);
#pragma unroll
    for (int k = 0; k < 8; ++k) {
        exchange[k][line][thread] = times(v[reversed8(k)], coarse.at[2 * k * thread]);
        exchange[k][line][thread + 8] = times(v[8 + reversed8(k)], coarse.at[2 * k * (thread + 8)]);
    }
    __syncthreads();
#pragma unroll
    for (int b = 0; b < 16; ++b) v[b] = exchange[thread][line][b];
    transform16(v);
#pragma unroll
    for (int d = 0; d < 16; ++d) {
        int p = thread + 8 * d, turn = c * p;  // of 32768
        scratch[256 * p + c] = times(v[reversed(d)], times(coarse.at[turn / 128], fine.at[turn % 128 * 2]));
    }
}

// --- rows of 256: 16 threads, 16 numbers each; then pairs ----------------------------------------

// y[k] and y[M-k] from Z[k] and Z[M-k].
__device__ void take_apart(float2* y, int k, float2 a, float2 b) {
    float2 even = {(a.x + b.x) / 2, (a.y - b.y) / 2}, odd = {(a.y + b.y) / 2, (b.x - a.x) / 2};
    float2 t = times(odd, times(coarse.at[k / 256], fine.at[k % 256]));
    y[k] = {even.x + t.x, even.y + t.y};
    y[HALF - k] = {even.x - t.x, t.y - even.y};
}

__global__ void __launch_bounds__(16 * TILE, 4) rows(const float2* __restrict__ scratch, float2* __restrict__ y) {
    __shared__ float2 exchange[16][TILE][PITCH];
    int near = threadIdx.x % 16, far = threadIdx.x / 16, first = blockIdx.x * 8;
    scratch += blockIdx.y * (int64_t)HALF;
    y += blockIdx.y * (int64_t)BINS;
    // Lines 0 to 7 are rows first + line, lines 8 to 15 their mirrors.
    int p = far < 8 ? first + far : first + far == 8 ? 64 : 128 - (first + far - 8);
    float2 v[16];
#pragma unroll
    for (int a = 0; a < 16; ++a) v[a] = scratch[256 * p + 16 * a + near];
    transform16(v);
#pragma unroll
    for (int k = 0; k < 16; ++k) exchange[k][far][near] = times(v[reversed(k)], coarse.at[k * near]);
    __syncthreads();
#pragma unroll
    for (int b = 0; b < 16; ++b) v[b] = exchange[far][near][b];
    __syncthreads();  // everybody has read
    transform16(v);
    float2(*spectrum)[PITCH] = &exchange[0][0];  // q (of 256), line
#pragma unroll
    for (int d = 0; d < 16; ++d) spectrum[far + 16 * d][near] = v[reversed(d)];
    __syncthreads();

    int line = threadIdx.x % 8;
    for (int q = threadIdx.x / 8; q < 256; q += 32) {
        if (first + line > 0) {
            take_apart(y, first + line + 128 * q, spectrum[q][line], spectrum[255 - q][line + 8]);
        } else if (q < 128) {  // row 0 mirrors itself
            take_apart(y, 128 * q, spectrum[q][0], spectrum[(256 - q) % 256][0]);
            if (q == 0) take_apart(y, 128 * 128, spectrum[128][0], spectrum[128][0]);
        } else {  // and so does row 64
            take_apart(y, 64 + 128 * (q - 128), spectrum[q - 128][8], spectrum[255 - (q - 128)][8]);
        }
    }
}

constexpr int PORTION = 64;  // signals, 256 KB of intermediate result each

extern "C" void solve(const x_t* x, y_t* y, int64_t batch, cudaStream_t stream) {
    float2* scratch = nullptr;
    cudaMallocAsync(&scratch, 2 * PORTION * HALF * sizeof(float2), stream);
    cudaStream_t other;
    cudaEvent_t begin, end;
    cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&begin, cudaEventDisableTiming);
    cudaEventCreateWithFlags(&end, cudaEventDisableTiming);
    cudaEventRecord(begin, stream);
    cudaStreamWaitEvent(other, begin, 0);

    const float2* z = reinterpret_cast<const float2*>(x);
    for (int64_t first = 0, turn = 0; first < batch; first += PORTION, turn ^= 1) {
        cudaStream_t side = turn == 0 ? stream : other;
        float2* buffer = scratch + turn * PORTION * HALF;
        unsigned signals = (unsigned)(batch - first < PORTION ? batch - first : PORTION);
        columns<<<dim3(256 / TILE, signals), 8 * TILE, 0, side>>>(z + first * HALF, buffer);
        rows<<<dim3(8, signals), 16 * TILE, 0, side>>>(buffer, y + first * BINS);
    }

    cudaEventRecord(end, other);
    cudaStreamWaitEvent(stream, end, 0);
    cudaFreeAsync(scratch, stream);
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    cudaStreamDestroy(other);
}
