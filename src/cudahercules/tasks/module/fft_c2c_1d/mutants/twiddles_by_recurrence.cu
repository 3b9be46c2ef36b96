// expect: incorrect — a table of twiddle factors by repeated multiplication, which drifts
#include "solve.h"

using real = decltype(x_t::x);

__device__ void turn(float fraction, float* sine, float* cosine) { sincospif(fraction, sine, cosine); }
__device__ void turn(double fraction, double* sine, double* cosine) { sincospi(fraction, sine, cosine); }

// The table of a whole turn, one step after the other.
__global__ void multiply_up(x_t* table) {
    real sine, cosine;
    turn(real(-2) / LENGTH, &sine, &cosine);
    x_t w = {1, 0};
    for (int k = 0; k < LENGTH / 2; ++k) {
        table[k] = w;
        w = {w.x * cosine - w.y * sine, w.x * sine + w.y * cosine};
    }
}

__global__ void stage(const x_t* from, x_t* to, const x_t* table, int64_t butterflies, int half) {
    int64_t at = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (at >= butterflies) return;
    int64_t transform = at / (LENGTH / 2);
    int i = at % (LENGTH / 2), k = i % half;
    from += transform * LENGTH;
    to += transform * LENGTH;

    real cosine = table[k * (LENGTH / 2 / half)].x, sine = table[k * (LENGTH / 2 / half)].y;
    x_t a = from[i], b = from[i + LENGTH / 2];
    x_t turned = {b.x * cosine - b.y * sine, b.x * sine + b.y * cosine};
    int place = (i - k) * 2 + k;
    to[place] = {a.x + turned.x, a.y + turned.y};
    to[place + half] = {a.x - turned.x, a.y - turned.y};
}

extern "C" void solve(const x_t* x, y_t* y, int64_t batch, cudaStream_t stream) {
    x_t *scratch = nullptr, *table = nullptr;
    cudaMallocAsync(&table, LENGTH / 2 * sizeof(x_t), stream);
    multiply_up<<<1, 1, 0, stream>>>(table);
    cudaMallocAsync(&scratch, batch * LENGTH * sizeof(x_t), stream);
    int stages = 0;
    while (1 << stages < LENGTH) ++stages;
    int64_t butterflies = batch * (LENGTH / 2);
    const x_t* from = x;
    for (int s = 0; s < stages; ++s) {
        x_t* to = (stages - s) % 2 == 1 ? y : scratch;  // the last stage ends in y
        stage<<<(unsigned)((butterflies + 255) / 256), 256, 0, stream>>>(from, to, table, butterflies, 1 << s);
        from = to;
    }
    cudaFreeAsync(scratch, stream);
}
