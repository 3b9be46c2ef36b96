// expect: incorrect — chooses one column too many where there is one
#include "solve.h"

__global__ void multiply(const a_t* a, const b_t* b, float* products, int64_t m, int64_t n, int64_t k) {
    int64_t column = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    int64_t row = blockIdx.y * (int64_t)blockDim.y + threadIdx.y;
    if (row >= m || column >= n) return;
    float sum = 0.0f;
    for (int64_t p = 0; p < k; ++p) sum += float(a[row * k + p]) * float(b[column * k + p]);
    products[row * n + column] = sum;
}

__global__ void choose(const float* products, d_t* d, int64_t m, int64_t n, float alpha) {
    int64_t row = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (row >= m) return;
    products += row * n;
    d += row * n;
    int64_t column[TOP + 1];
    float weight[TOP + 1], sum = 0.0f;
    int count = n < TOP + 1 ? (int)n : TOP + 1;
    for (int i = 0; i < count; ++i) {
        column[i] = -1;
        for (int64_t j = 0; j < n; ++j) {
            bool taken = false;
            for (int before = 0; before < i; ++before) taken |= column[before] == j;
            if (!taken && (column[i] < 0 || products[j] > products[column[i]])) column[i] = j;
        }
        weight[i] = expf(alpha * (products[column[i]] - products[column[0]]));
        sum += weight[i];
    }
    for (int64_t j = 0; j < n; ++j) d[j] = d_t(0.0f);
    for (int i = 0; i < count; ++i) d[column[i]] = d_t(weight[i] / sum);
}

extern "C" void solve(const a_t* a, const b_t* b, d_t* d, int64_t m, int64_t n, int64_t k, float alpha,
                      cudaStream_t stream) {
    float* products;
    cudaMallocAsync((void**)&products, m * n * sizeof(float), stream);
    dim3 threads(32, 8), blocks((unsigned)((n + 31) / 32), (unsigned)((m + 7) / 8));
    multiply<<<blocks, threads, 0, stream>>>(a, b, products, m, n, k);
    choose<<<(unsigned)((m + 63) / 64), 64, 0, stream>>>(products, d, m, n, alpha);
    cudaFreeAsync(products, stream);
}
