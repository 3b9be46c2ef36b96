// expect: incorrect — takes the fourth component for the real part, as CUTLASS stores quaternions
#include "solve.h"

__global__ void multiply(const float4* a, const float4* b, float4* c, int64_t m, int64_t n, int64_t k) {
    int64_t column = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    int64_t row = blockIdx.y * (int64_t)blockDim.y + threadIdx.y;
    if (row >= m || column >= n) return;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);  // w, x, y, z: the real part is the member .x
    for (int64_t p = 0; p < k; ++p) {
        float4 u = a[row * k + p], v = b[p * n + column];
        sum.w += u.w * v.w - u.x * v.x - u.y * v.y - u.z * v.z;
        sum.x += u.w * v.x + u.x * v.w + u.y * v.z - u.z * v.y;
        sum.y += u.w * v.y - u.x * v.z + u.y * v.w + u.z * v.x;
        sum.z += u.w * v.z + u.x * v.y - u.y * v.x + u.z * v.w;
    }
    c[row * n + column] = sum;
}

extern "C" void solve(const a_t* a, const b_t* b, c_t* c, int64_t m, int64_t n, int64_t k, cudaStream_t stream) {
    dim3 threads(32, 8), blocks((unsigned)((n + 31) / 32), (unsigned)((m + 7) / 8));
    multiply<<<blocks, threads, 0, stream>>>((const float4*)a, (const float4*)b, (float4*)c, m, n, k);
}
