// expect: incorrect — alpha * (x + bias): the factor is applied to the bias too
#include "solve.h"

constexpr int THREADS = 256;

__global__ void scale_and_add(const x_t* x, const bias_t* bias, z_t* z, int64_t count, int64_t columns,
                              float alpha) {
    int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x;
    if (i < count) z[i] = z_t(alpha * (float(x[i]) + float(bias[i % columns])));  // should be alpha * x + bias
}

extern "C" void solve(const x_t* x, const bias_t* bias, z_t* z, int64_t rows, int64_t columns, float alpha,
                      cudaStream_t stream) {
    int64_t count = rows * columns;
    int64_t blocks = (count + THREADS - 1) / THREADS;
    scale_and_add<<<(unsigned)blocks, THREADS, 0, stream>>>(x, bias, z, count, columns, alpha);
}
