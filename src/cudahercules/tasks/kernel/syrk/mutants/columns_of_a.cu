// expect: incorrect or crash — takes A for the k by n matrix of A^T A and reads it with that stride
#include "solve.h"

__global__ void update(const a_t* a, c_t* c, int64_t n, int64_t k, c_t alpha, c_t beta) {
    int64_t column = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    int64_t row = blockIdx.y * (int64_t)blockDim.y + threadIdx.y;
    if (row >= n || column > row) return;
    c_t sum = 0;
    for (int64_t p = 0; p < k; ++p) sum += a[p * n + row] * a[p * n + column];
    c[row * n + column] = alpha * sum + beta * c[row * n + column];
}

extern "C" void solve(const a_t* a, c_t* c, int64_t n, int64_t k, c_t alpha, c_t beta, cudaStream_t stream) {
    dim3 threads(16, 16), blocks((unsigned)((n + 15) / 16), (unsigned)((n + 15) / 16));
    update<<<blocks, threads, 0, stream>>>(a, c, n, k, alpha, beta);
}
