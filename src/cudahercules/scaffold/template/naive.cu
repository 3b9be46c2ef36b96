// One thread an element: the plainest right answer. It must pass, and it is allowed to be slow.
//
// solve.h is generated from task.yaml (`hercules show --header TASK` prints it): it declares solve and names
// the element types x_t, bias_t and z_t, so that this file serves every member.
#include "solve.h"

constexpr int THREADS = 256;

__global__ void scale_and_add(const x_t* x, const bias_t* bias, z_t* z, int64_t count, int64_t columns,
                              float alpha) {
    int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x;
    if (i < count) z[i] = z_t(alpha * float(x[i]) + float(bias[i % columns]));
}

// Only enqueue work on the stream: inputs are read-only, outputs hold poison, nothing survives between calls.
extern "C" void solve(const x_t* x, const bias_t* bias, z_t* z, int64_t rows, int64_t columns, float alpha,
                      cudaStream_t stream) {
    int64_t count = rows * columns;
    int64_t blocks = (count + THREADS - 1) / THREADS;
    scale_and_add<<<(unsigned)blocks, THREADS, 0, stream>>>(x, bias, z, count, columns, alpha);
}
