// expect: incorrect — takes LENGTH / 2 frequencies, as if the last one belonged to the others' conjugates
#include "solve.h"

__device__ float2 number(float real) { return {real, 0.0f}; }
__device__ float2 number(float2 complex) { return complex; }

// Of each transform's results, which lie `pitch` apart, only the first `kept` are written.
template <class From>
__global__ void stage(const From* from, float2* to, int64_t butterflies, int half, int pitch, int kept) {
    int64_t at = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (at >= butterflies) return;
    int64_t transform = at / (LENGTH / 2);
    int i = at % (LENGTH / 2), k = i % half;
    from += transform * LENGTH;
    to += transform * pitch;

    float sine, cosine;
    sincospif(-float(k) / half, &sine, &cosine);  // exp(-2 pi i k / (2 half))
    float2 a = number(from[i]), b = number(from[i + LENGTH / 2]);
    float2 turned = {b.x * cosine - b.y * sine, b.x * sine + b.y * cosine};
    int place = (i - k) * 2 + k;
    if (place < kept) to[place] = {a.x + turned.x, a.y + turned.y};
    if (place + half < kept) to[place + half] = {a.x - turned.x, a.y - turned.y};
}

extern "C" void solve(const x_t* x, y_t* y, int64_t batch, cudaStream_t stream) {
    float2* scratch[2] = {};
    for (float2*& buffer : scratch) cudaMallocAsync(&buffer, batch * LENGTH * sizeof(float2), stream);
    int64_t butterflies = batch * (LENGTH / 2);
    unsigned blocks = (unsigned)((butterflies + 255) / 256);
    stage<<<blocks, 256, 0, stream>>>(x, scratch[0], butterflies, 1, LENGTH, LENGTH);
    int from = 0;
    for (int half = 2; half < LENGTH / 2; half *= 2, from ^= 1)
        stage<<<blocks, 256, 0, stream>>>(scratch[from], scratch[from ^ 1], butterflies, half, LENGTH, LENGTH);
    stage<<<blocks, 256, 0, stream>>>(scratch[from], y, butterflies, LENGTH / 2, BINS, BINS - 1);
    for (float2* buffer : scratch) cudaFreeAsync(buffer, stream);
}
