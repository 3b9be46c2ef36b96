// One thread computes one element of C, straight from the definition.
//
// Every value of A is read n times and every value of B m times from global memory; the caches are
// all that saves it. Neighbouring threads take neighbouring columns, so reads of B and writes of C
// are coalesced, and a whole warp reads the same element of A. Products and the sum are fp32 whatever the
// operands are (sum_t() also converts fp16 and bf16), but fp64 for fp64; only the result is rounded to C's type.
#include <type_traits>

#include "solve.h"

// Sums are double where the operands are.
using sum_t = std::conditional_t<std::is_same<c_t, double>::value, double, float>;

__global__ void multiply(const a_t* a, const b_t* b, c_t* c, int64_t m, int64_t n, int64_t k) {
    int64_t column = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    int64_t row = blockIdx.y * (int64_t)blockDim.y + threadIdx.y;
    if (row >= m || column >= n) return;

    sum_t sum = 0;
    for (int64_t p = 0; p < k; ++p) sum += sum_t(a[row * k + p]) * sum_t(b[p * n + column]);
    c[row * n + column] = c_t(sum);
}

extern "C" void solve(const a_t* a, const b_t* b, c_t* c, int64_t m, int64_t n, int64_t k,
                      cudaStream_t stream) {
    dim3 threads(32, 8);
    dim3 blocks((n + threads.x - 1) / threads.x, (m + threads.y - 1) / threads.y);
    multiply<<<blocks, threads, 0, stream>>>(a, b, c, m, n, k);
}
