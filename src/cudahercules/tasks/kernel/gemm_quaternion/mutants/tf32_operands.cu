// expect: incorrect — multiplies in TF32, without splitting
#include "solve.h"

// The nearest TF32 number.
__device__ float high(float x) {
    uint32_t bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return __uint_as_float(bits);
}

__device__ float4 high(float4 q) { return make_float4(high(q.x), high(q.y), high(q.z), high(q.w)); }

__global__ void multiply(const float4* a, const float4* b, float4* c, int64_t m, int64_t n, int64_t k) {
    int64_t column = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    int64_t row = blockIdx.y * (int64_t)blockDim.y + threadIdx.y;
    if (row >= m || column >= n) return;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);  // w, x, y, z: the real part is the member .x
    for (int64_t p = 0; p < k; ++p) {
        float4 u = high(a[row * k + p]), v = high(b[p * n + column]);
        sum.x += u.x * v.x - u.y * v.y - u.z * v.z - u.w * v.w;
        sum.y += u.x * v.y + u.y * v.x + u.z * v.w - u.w * v.z;
        sum.z += u.x * v.z - u.y * v.w + u.z * v.x + u.w * v.y;
        sum.w += u.x * v.w + u.y * v.z - u.z * v.y + u.w * v.x;
    }
    c[row * n + column] = sum;
}

extern "C" void solve(const a_t* a, const b_t* b, c_t* c, int64_t m, int64_t n, int64_t k, cudaStream_t stream) {
    dim3 threads(32, 8), blocks((unsigned)((n + 31) / 32), (unsigned)((m + 7) / 8));
    multiply<<<blocks, threads, 0, stream>>>((const float4*)a, (const float4*)b, (float4*)c, m, n, k);
}
