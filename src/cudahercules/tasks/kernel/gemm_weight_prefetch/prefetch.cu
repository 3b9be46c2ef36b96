// Two kernels that overlap: the product asks for its weights while the norm still runs, then waits for it.
//
// The product is launched programmatically: its blocks may start as soon as every block of the norm has asked for
// it, which is the first thing that they do. A warp owns one row of W. It prefetches that row into L2, a cache line a
// lane, and only then waits for the norm's results, which makes them visible. After that it multiplies: a lane takes
// eight neighbouring elements of W with one 16-byte load and uses them for eight rows of h, so that W is
// converted once for all of them. If nothing overlaps, the wait returns at once and the result is the same.
#include "solve.h"

constexpr int THREADS = 256, ROWS = 8;

__global__ void __launch_bounds__(THREADS)
    normalise(const x_t* __restrict__ x, const gain_t* __restrict__ gain, __nv_bfloat16* __restrict__ h, int64_t k,
              float eps) {
    __shared__ float parts[THREADS / 32];
    cudaTriggerProgrammaticLaunchCompletion();
    x += blockIdx.x * k;
    h += blockIdx.x * k;

    float squares = 0.0f;
    for (int64_t p = threadIdx.x; p < k; p += THREADS) squares += float(x[p]) * float(x[p]);
    for (int step = 16; step > 0; step /= 2) squares += __shfl_xor_sync(0xffffffffu, squares, step);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = squares;
    __syncthreads();
    float total = 0.0f;
    for (int warp = 0; warp < THREADS / 32; ++warp) total += parts[warp];
    float r = 1.0f / sqrtf(total / k + eps);
    for (int64_t p = threadIdx.x; p < k; p += THREADS) h[p] = __nv_bfloat16(float(x[p]) * r * float(gain[p]));
}

__device__ void eight(const __nv_bfloat16* from, float (&to)[8]) {
    uint4 raw = *reinterpret_cast<const uint4*>(from);
    const __nv_bfloat162* pairs = reinterpret_cast<const __nv_bfloat162*>(&raw);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        float2 pair = __bfloat1622float2(pairs[i]);
        to[2 * i] = pair.x;
        to[2 * i + 1] = pair.y;
    }
}

__global__ void __launch_bounds__(THREADS)
    multiply(const __nv_bfloat16* h, const w_t* __restrict__ w, c_t* __restrict__ c, int m, int64_t n, int64_t k) {
    int lane = threadIdx.x % 32;
    int64_t column = (blockIdx.x * (int64_t)THREADS + threadIdx.x) / 32;
    if (column >= n) return;
    w += column * k;
    for (int64_t p = lane * 64; p < k; p += 32 * 64) asm volatile("prefetch.global.L2 [%0];" ::"l"(w + p));
    cudaGridDependencySynchronize();

    for (int row0 = 0; row0 < m; row0 += ROWS) {
        float sum[ROWS] = {};
        for (int64_t p = lane * 8; p < k; p += 32 * 8) {
            float weights[8], values[8];
            eight(w + p, weights);
#pragma unroll
            for (int i = 0; i < ROWS; ++i) {
                if (row0 + i >= m) break;
                eight(h + (row0 + i) * k + p, values);
#pragma unroll
                for (int e = 0; e < 8; ++e) sum[i] += values[e] * weights[e];
            }
        }
#pragma unroll
        for (int i = 0; i < ROWS; ++i) {
            for (int step = 16; step > 0; step /= 2) sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], step);
            if (lane == 0 && row0 + i < m) c[(row0 + i) * n + column] = c_t(sum[i]);
        }
    }
}

extern "C" void solve(const x_t* x, const gain_t* gain, const w_t* w, c_t* c, int64_t m, int64_t n, int64_t k,
                      float eps, cudaStream_t stream) {
    __nv_bfloat16* h;
    cudaMallocAsync((void**)&h, m * k * sizeof(__nv_bfloat16), stream);
    normalise<<<(unsigned)m, THREADS, 0, stream>>>(x, gain, h, k, eps);

    cudaLaunchAttribute early;
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)((n * 32 + THREADS - 1) / THREADS));
    config.blockDim = dim3(THREADS);
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = 1;
    cudaLaunchKernelEx(&config, multiply, (const __nv_bfloat16*)h, w, c, (int)m, n, k);
    cudaFreeAsync(h, stream);
}
