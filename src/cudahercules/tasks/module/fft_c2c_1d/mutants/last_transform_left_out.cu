// expect: incorrect — counts transforms from zero to batch - 1 and stops one too early
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
    x_t a = from[i], b = from[i + LENGTH / 2];
    x_t turned = {b.x * cosine - b.y * sine, b.x * sine + b.y * cosine};
    int place = (i - k) * 2 + k;
    to[place] = {a.x + turned.x, a.y + turned.y};
    to[place + half] = {a.x - turned.x, a.y - turned.y};
}

extern "C" void solve(const x_t* x, y_t* y, int64_t batch, cudaStream_t stream) {
    x_t* scratch = nullptr;
    cudaMallocAsync(&scratch, batch * LENGTH * sizeof(x_t), stream);
    int stages = 0;
    while (1 << stages < LENGTH) ++stages;
    int64_t last = batch > 1 ? batch - 1 : 1, butterflies = last * (LENGTH / 2);
    const x_t* from = x;
    for (int s = 0; s < stages; ++s) {
        x_t* to = (stages - s) % 2 == 1 ? y : scratch;  // the last stage ends in y
        stage<<<(unsigned)((butterflies + 255) / 256), 256, 0, stream>>>(from, to, butterflies, 1 << s);
        from = to;
    }
    cudaFreeAsync(scratch, stream);
}
