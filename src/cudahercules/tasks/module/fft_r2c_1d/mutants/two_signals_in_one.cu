// expect: incorrect — two signals as one complex one, in which a weak signal drowns in the errors of a strong one
#include "solve.h"

// z[n] = x[2 p][n] + i x[2 p + 1][n] for pair p
__global__ void pack(const float* x, float2* z, int64_t count, int64_t batch) {
    int64_t at = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (at >= count) return;
    int64_t pair = at / LENGTH;
    int n = at % LENGTH;
    z[at] = {x[2 * pair * LENGTH + n], 2 * pair + 1 < batch ? x[(2 * pair + 1) * LENGTH + n] : 0.0f};
}

__global__ void stage(const float2* from, float2* to, int64_t butterflies, int half) {
    int64_t at = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (at >= butterflies) return;
    int64_t transform = at / (LENGTH / 2);
    int i = at % (LENGTH / 2), k = i % half;
    from += transform * LENGTH;
    to += transform * LENGTH;

    float sine, cosine;
    sincospif(-float(k) / half, &sine, &cosine);  // exp(-2 pi i k / (2 half))
    float2 a = from[i], b = from[i + LENGTH / 2];
    float2 turned = {b.x * cosine - b.y * sine, b.x * sine + b.y * cosine};
    int place = (i - k) * 2 + k;
    to[place] = {a.x + turned.x, a.y + turned.y};
    to[place + half] = {a.x - turned.x, a.y - turned.y};
}

__global__ void separate(const float2* z, float2* y, int64_t batch) {
    int64_t at = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (at >= batch * BINS) return;
    int64_t signal = at / BINS;
    int k = at % BINS;
    z += signal / 2 * LENGTH;
    float2 a = z[k], b = z[(LENGTH - k) % LENGTH];
    if (signal % 2 == 0)
        y[at] = {(a.x + b.x) / 2, (a.y - b.y) / 2};
    else
        y[at] = {(a.y + b.y) / 2, (b.x - a.x) / 2};
}

extern "C" void solve(const x_t* x, y_t* y, int64_t batch, cudaStream_t stream) {
    int64_t pairs = (batch + 1) / 2, butterflies = pairs * (LENGTH / 2);
    float2* scratch[2] = {};
    for (float2*& buffer : scratch) cudaMallocAsync(&buffer, pairs * LENGTH * sizeof(float2), stream);
    pack<<<(unsigned)((pairs * LENGTH + 255) / 256), 256, 0, stream>>>(x, scratch[0], pairs * LENGTH, batch);
    int from = 0;
    for (int half = 1; half < LENGTH; half *= 2, from ^= 1)
        stage<<<(unsigned)((butterflies + 255) / 256), 256, 0, stream>>>(scratch[from], scratch[from ^ 1], butterflies,
                                                                       half);
    separate<<<(unsigned)((batch * BINS + 255) / 256), 256, 0, stream>>>(scratch[from], y, batch);
    for (float2* buffer : scratch) cudaFreeAsync(buffer, stream);
}
