// expect: incorrect — scales all experts' weights by those of expert 0
#include "solve.h"

// Weight p of a group, without its scale. With two weights a byte the even one has the low four bits.
__device__ float decode(const w_t* group, int p) {
#if FORMAT == 4
    int nibble = p % 2 ? group[p / 2] >> 4 : group[p / 2] & 15;
    return float(nibble < 8 ? nibble : nibble - 16);
#else
    return float(group[p]);
#endif
}

__device__ int64_t expert_of(int64_t row, const length_t* length, int64_t experts) {
    int64_t expert = 0;
    for (int64_t end = length[0]; row >= end && expert + 1 < experts; end += length[expert]) ++expert;
    return expert;
}

__global__ void multiply(const a_t* a, const w_t* w, const scale_t* scale, const length_t* length, c_t* c,
                         int64_t rows, int64_t experts, int64_t n, int64_t groups) {
    int64_t column = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    int64_t row = blockIdx.y * (int64_t)blockDim.y + threadIdx.y;
    if (row >= rows || column >= n) return;
    int64_t expert = expert_of(row, length, experts);
    float total = 0.0f;
    for (int64_t g = 0; g < groups; ++g) {
        const a_t* activations = a + (row * groups + g) * GROUP;
        const w_t* weights = w + ((expert * n + column) * groups + g) * GROUP_BYTES;
        float sum = 0.0f;
        for (int p = 0; p < GROUP; ++p) sum += float(activations[p]) * decode(weights, p);
        total += sum * float(scale[g * n + column]);
    }
    c[row * n + column] = c_t(total);
}

extern "C" void solve(const a_t* a, const w_t* w, const scale_t* scale, const length_t* length, c_t* c,
                      int64_t rows, int64_t experts, int64_t n, int64_t groups, cudaStream_t stream) {
    dim3 threads(32, 8), blocks((unsigned)((n + 31) / 32), (unsigned)((rows + 7) / 8));
    multiply<<<blocks, threads, 0, stream>>>(a, w, scale, length, c, rows, experts, n, groups);
}
