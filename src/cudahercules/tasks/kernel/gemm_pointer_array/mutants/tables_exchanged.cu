// expect: incorrect or crash — looks A's matrices up in B's table and B's in A's
#include "solve.h"

__global__ void multiply(const a_t* a, const b_t* b, const int32_t* a_of, const int32_t* b_of, c_t* c,
                         int64_t batch, int64_t m, int64_t n, int64_t k) {
    int64_t element = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (element >= batch * m * n) return;
    int64_t product = element / (m * n), row = element / n % m, column = element % n;

    const a_t* line = a + (b_of[product] * m + row) * k;
    const b_t* matrix = b + a_of[product] * k * n;
    float sum = 0.0f;
    for (int64_t p = 0; p < k; ++p) sum += float(line[p]) * float(matrix[p * n + column]);
    c[element] = c_t(sum);
}

extern "C" void solve(const a_t* a, const b_t* b, const a_of_t* a_of, const b_of_t* b_of, c_t* c, int64_t batch,
                      int64_t m, int64_t n, int64_t k, int64_t a_matrices, int64_t b_matrices, cudaStream_t stream) {
    multiply<<<(unsigned)((batch * m * n + 255) / 256), 256, 0, stream>>>(a, b, a_of, b_of, c, batch, m, n, k);
}
