// expect: incorrect — the grid is rounded down, so elements behind the last full block stay unwritten
#include "solve.h"

constexpr int THREADS = 256;

__global__ void scale_and_add(const x_t* x, const bias_t* bias, z_t* z, int64_t count, int64_t columns,
                              float alpha) {
    int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x;
    if (i < count) z[i] = z_t(alpha * float(x[i]) + float(bias[i % columns]));
}

extern "C" void solve(const x_t* x, const bias_t* bias, z_t* z, int64_t rows, int64_t columns, float alpha,
                      cudaStream_t stream) {
    int64_t count = rows * columns;
    int64_t blocks = count / THREADS + (count < THREADS);  // should be (count + THREADS - 1) / THREADS
    scale_and_add<<<(unsigned)blocks, THREADS, 0, stream>>>(x, bias, z, count, columns, alpha);
}
