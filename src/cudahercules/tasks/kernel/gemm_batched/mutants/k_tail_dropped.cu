// expect: incorrect — sums k in whole groups of eight and drops the rest
#include "solve.h"

__global__ void multiply(const a_t* a, const b_t* b, c_t* c, int64_t batch, int64_t m, int64_t n, int64_t k) {
    int64_t element = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (element >= batch * m * n) return;
    int64_t product = element / (m * n), row = element / n % m, column = element % n;

    const a_t* line = a + (product * m + row) * k;
    const b_t* matrix = b + product * k * n;
    float sum = 0.0f;
    for (int64_t p = 0; p < k / 8 * 8; ++p) sum += float(line[p]) * float(matrix[p * n + column]);
    c[element] = c_t(sum);
}

extern "C" void solve(const a_t* a, const b_t* b, c_t* c, int64_t batch, int64_t m, int64_t n, int64_t k,
                      cudaStream_t stream) {
    multiply<<<(unsigned)((batch * m * n + 255) / 256), 256, 0, stream>>>(a, b, c, batch, m, n, k);
}
