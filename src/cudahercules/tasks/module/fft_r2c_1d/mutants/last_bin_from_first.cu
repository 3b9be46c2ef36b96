// expect: incorrect — takes frequency LENGTH / 2 for frequency 0, because both come from the same number
#include "solve.h"

constexpr int HALF = LENGTH / 2;  // points of the complex transform
static_assert(BINS == HALF + 1);

__device__ float2 times(float2 a, float2 b) { return {a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x}; }

// exp(-2 pi i k / length)
__device__ float2 twiddle(int k, int length) {
    float2 w;
    sincospif(-2.0f * k / length, &w.y, &w.x);
    return w;
}

__global__ void stage(const float2* from, float2* to, int64_t butterflies, int half) {
    int64_t at = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (at >= butterflies) return;
    int64_t transform = at / (HALF / 2);
    int i = at % (HALF / 2), k = i % half;
    from += transform * HALF;
    to += transform * HALF;
    float2 a = from[i], turned = times(from[i + HALF / 2], twiddle(k, 2 * half));
    int place = (i - k) * 2 + k;
    to[place] = {a.x + turned.x, a.y + turned.y};
    to[place + half] = {a.x - turned.x, a.y - turned.y};
}

__global__ void take_apart(const float2* z, float2* y, int64_t count) {
    int64_t at = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (at >= count) return;
    int64_t transform = at / BINS;
    int k = at % BINS % HALF;
    z += transform * HALF;
    float2 a = z[k % HALF], b = z[(HALF - k) % HALF];
    float2 even = {(a.x + b.x) / 2, (a.y - b.y) / 2}, odd = {(a.y + b.y) / 2, (b.x - a.x) / 2};
    float2 turned = times(odd, twiddle(k, LENGTH));
    y[at] = {even.x + turned.x, even.y + turned.y};
}

extern "C" void solve(const x_t* x, y_t* y, int64_t batch, cudaStream_t stream) {
    float2* scratch[2] = {};
    for (float2*& buffer : scratch) cudaMallocAsync(&buffer, batch * HALF * sizeof(float2), stream);
    int64_t butterflies = batch * (HALF / 2);
    const float2* from = reinterpret_cast<const float2*>(x);
    int next = 0;
    for (int half = 1; half < HALF; half *= 2, next ^= 1) {
        stage<<<(unsigned)((butterflies + 255) / 256), 256, 0, stream>>>(from, scratch[next], butterflies, half);
        from = scratch[next];
    }
    int64_t count = batch * BINS;
    take_apart<<<(unsigned)((count + 255) / 256), 256, 0, stream>>>(from, y, count);
    for (float2* buffer : scratch) cudaFreeAsync(buffer, stream);
}
