// expect: incorrect — rounds the running sum to bfloat16 after every instruction of 16 products
#include "solve.h"

__global__ void multiply(const a_t* a, const b_t* b, const int32_t* group_rows, c_t* c, int64_t m, int64_t n,
                         int64_t k) {
    int64_t column = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    int64_t row = blockIdx.y * (int64_t)blockDim.y + threadIdx.y;
    if (row >= m || column >= n) return;

    int64_t group = 0, end = group_rows[0];
    while (row >= end) end += group_rows[++group];

    const b_t* matrix = b + group * n * k;
    float sum = 0.0f;
    for (int64_t p = 0; p < k; ++p) {
        sum += float(a[row * k + p]) * float(matrix[column * k + p]);
        if (p % 16 == 15) sum = __bfloat162float(__float2bfloat16(sum));
    }
    c[row * n + column] = c_t(sum);
}

extern "C" void solve(const a_t* a, const b_t* b, const group_rows_t* group_rows, c_t* c, int64_t m, int64_t n,
                      int64_t k, int64_t groups, cudaStream_t stream) {
    dim3 threads(32, 8), blocks((unsigned)((n + 31) / 32), (unsigned)((m + 7) / 8));
    multiply<<<blocks, threads, 0, stream>>>(a, b, group_rows, c, m, n, k);
}
