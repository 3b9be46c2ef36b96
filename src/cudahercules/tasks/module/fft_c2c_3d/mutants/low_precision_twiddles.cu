// expect: incorrect — twiddle factors pass through half precision
#include <cuda_fp16.h>

#include "solve.h"

constexpr int POINTS = DEPTH * HEIGHT * WIDTH;  // of one transform

__global__ void stage(const float2* from, float2* to, int64_t butterflies, int length, int inner, int half) {
    int64_t at = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (at >= butterflies) return;
    int64_t column = at % inner, i = at / inner % (length / 2), line = at / inner / (length / 2);
    int k = i % half;
    from += line * length * inner + column;
    to += line * length * inner + column;

    float sine, cosine;
    sincospif(-float(k) / half, &sine, &cosine);  // exp(-2 pi i k / (2 half))
    sine = __half2float(__float2half(sine));
    cosine = __half2float(__float2half(cosine));
    float2 a = from[i * inner], b = from[(i + length / 2) * inner];
    float2 turned = {b.x * cosine - b.y * sine, b.x * sine + b.y * cosine};
    int64_t place = ((i - k) * 2 + k) * inner;
    to[place] = {a.x + turned.x, a.y + turned.y};
    to[place + (int64_t)half * inner] = {a.x - turned.x, a.y - turned.y};
}

extern "C" void solve(const x_t* x, y_t* y, int64_t batch, cudaStream_t stream) {
    float2* scratch = nullptr;
    cudaMallocAsync(&scratch, batch * POINTS * sizeof(float2), stream);
    int64_t butterflies = batch * (POINTS / 2);
    unsigned blocks = (unsigned)((butterflies + 255) / 256);
    const int lengths[] = {WIDTH, HEIGHT, DEPTH};  // the last axis first
    const float2* from = x;
    int inner = 1;
    for (int length : lengths) {
        for (int half = 1; half < length; half *= 2) {
            float2* to = from == scratch ? y : scratch;
            stage<<<blocks, 256, 0, stream>>>(from, to, butterflies, length, inner, half);
            from = to;
        }
        inner *= length;
    }
    // 18 stages, an even number that began with scratch: the last one wrote y.
    cudaFreeAsync(scratch, stream);
}
