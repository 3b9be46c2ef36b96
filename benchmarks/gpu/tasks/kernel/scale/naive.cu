// y = 2 x with 16-byte accesses. SPIN_CYCLES, if set, adds a launch that does nothing for that many
// clock cycles: a planted slowdown that does not touch memory.
#include "solve.h"

__global__ void twice(const float4* x, float4* y, int64_t vectors) {
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < vectors; i += step) {
        float4 v = x[i];
        y[i] = make_float4(2 * v.x, 2 * v.y, 2 * v.z, 2 * v.w);
    }
}

__global__ void spin(long long cycles) {
    long long start = clock64();
    while (clock64() - start < cycles) {
    }
}

extern "C" void solve(const x_t* x, y_t* y, int64_t n, cudaStream_t stream) {
    int64_t vectors = n / 4;
    int64_t blocks = (vectors + 255) / 256;
    twice<<<(unsigned)(blocks < 65536 ? blocks : 65536), 256, 0, stream>>>(
        reinterpret_cast<const float4*>(x), reinterpret_cast<float4*>(y), vectors);
#ifdef SPIN_CYCLES
    spin<<<1, 1, 0, stream>>>(SPIN_CYCLES);
#endif
}
