// expect: incorrect — stores the product where it should be added
#include "solve.h"

__global__ void multiply_add(const a_t* a, const b_t* b, const gather_t* gather, const scatter_t* scatter, d_t* d,
                             int64_t pairs, int64_t n, int64_t k) {
    int64_t column = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    int64_t pair = blockIdx.y * (int64_t)blockDim.y + threadIdx.y + blockIdx.z * ((int64_t)gridDim.y * blockDim.y);
    if (pair >= pairs || column >= n) return;
    const a_t* row = a + gather[pair] * k;
    float sum = 0.0f;
    for (int64_t p = 0; p < k; ++p) sum += float(row[p]) * float(b[p * n + column]);
    d[scatter[pair] * n + column] = sum;
}

extern "C" void solve(const a_t* a, const b_t* b, const gather_t* gather, const scatter_t* scatter, d_t* d,
                      int64_t pairs, int64_t rows_a, int64_t rows_d, int64_t n, int64_t k, cudaStream_t stream) {
    dim3 threads(32, 8), blocks((unsigned)((n + 31) / 32), (unsigned)((pairs + 7) / 8));
    if (blocks.y > 32768) {  // what one dimension of a grid may have is 65535
        blocks.z = (blocks.y + 32767) / 32768;
        blocks.y = 32768;
    }
    multiply_add<<<blocks, threads, 0, stream>>>(a, b, gather, scatter, d, pairs, n, k);
}
