// expect: incorrect — the stages in reverse, in place, which leaves the frequencies in bit-reversed order
#include "solve.h"

using real = decltype(x_t::x);

__device__ void turn(float fraction, float* sine, float* cosine) { sincospif(fraction, sine, cosine); }
__device__ void turn(double fraction, double* sine, double* cosine) { sincospi(fraction, sine, cosine); }

__global__ void stage(const x_t* from, x_t* to, int64_t butterflies, int half) {
    int64_t at = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (at >= butterflies) return;
    int64_t transform = at / (LENGTH / 2);
    int i = at % (LENGTH / 2), k = i % half;
    from += transform * LENGTH;
    to += transform * LENGTH;

    real sine, cosine;
    turn(-real(k) / half, &sine, &cosine);  // exp(-2 pi i k / (2 half))
    int place = (i - k) * 2 + k;
    x_t a = from[place], b = from[place + half], d = {a.x - b.x, a.y - b.y};
    to[place] = {a.x + b.x, a.y + b.y};
    to[place + half] = {d.x * cosine - d.y * sine, d.x * sine + d.y * cosine};
}

extern "C" void solve(const x_t* x, y_t* y, int64_t batch, cudaStream_t stream) {
    x_t* scratch = nullptr;
    cudaMallocAsync(&scratch, batch * LENGTH * sizeof(x_t), stream);
    int stages = 0;
    while (1 << stages < LENGTH) ++stages;
    int64_t butterflies = batch * (LENGTH / 2);
    const x_t* from = x;
    for (int s = 0; s < stages; ++s) {
        x_t* to = (stages - s) % 2 == 1 ? y : scratch;  // the last stage ends in y
        stage<<<(unsigned)((butterflies + 255) / 256), 256, 0, stream>>>(from, to, butterflies, LENGTH / 2 >> s);
        from = to;
    }
    cudaFreeAsync(scratch, stream);
}
