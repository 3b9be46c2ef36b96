// Ordinary kernels: vector loads, reductions, softmax, tiled GEMM, histogram, FFT.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern "C" __global__ void vadd4(const float4* a, const float4* b, float4* c, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float4 x = a[i], y = __ldg(b + i);
  c[i] = make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w);
}

extern "C" __global__ void block_sums(const float* in, float* out, int n) {
  __shared__ float partial[32];
  float sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += in[i];
  for (int d = 16; d; d >>= 1) sum += __shfl_down_sync(~0u, sum, d);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x < 32) {
    sum = threadIdx.x < blockDim.x / 32 ? partial[threadIdx.x] : 0;
    for (int d = 16; d; d >>= 1) sum += __shfl_xor_sync(~0u, sum, d);
    if (threadIdx.x == 0) atomicAdd(out, sum);
  }
}

extern "C" __global__ void softmax(const __nv_bfloat16* in, __nv_bfloat16* out, int columns) {
  extern __shared__ float row[];
  __shared__ float shared_max, shared_sum;
  in += size_t(blockIdx.x) * columns;
  out += size_t(blockIdx.x) * columns;
  float most = -INFINITY;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) most = fmaxf(most, row[i] = __bfloat162float(in[i]));
  for (int d = 16; d; d >>= 1) most = fmaxf(most, __shfl_xor_sync(~0u, most, d));
  __shared__ float scratch[32];
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = most;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int w = 0; w < blockDim.x / 32; w++) most = fmaxf(most, scratch[w]);
    shared_max = most;
    shared_sum = 0;
  }
  __syncthreads();
  float sum = 0;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += row[i] = __expf(row[i] - shared_max);
  atomicAdd(&shared_sum, sum);
  __syncthreads();
  for (int i = threadIdx.x; i < columns; i += blockDim.x) out[i] = __float2bfloat16(row[i] / shared_sum);
}

// 64 x 64 tile of C a block of 16 x 16 threads, 4 x 4 values a thread.
extern "C" __global__ void gemm(const float* a, const float* b, float* c, int m, int n, int k) {
  __shared__ float as[16][64], bs[16][64];
  const int tx = threadIdx.x, ty = threadIdx.y, t = ty * 16 + tx;
  const int row = blockIdx.y * 64, column = blockIdx.x * 64;
  float acc[4][4] = {};
  for (int k0 = 0; k0 < k; k0 += 16) {
    for (int i = t; i < 16 * 64; i += 256) {
      as[i % 16][i / 16] = a[(row + i / 16) * k + k0 + i % 16];
      bs[i / 64][i % 64] = b[(k0 + i / 64) * n + column + i % 64];
    }
    __syncthreads();
#pragma unroll
    for (int kk = 0; kk < 16; kk++) {
      const float4 x = *(const float4*)&as[kk][ty * 4], y = *(const float4*)&bs[kk][tx * 4];
      const float xs[4] = {x.x, x.y, x.z, x.w}, ys[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
      for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) acc[i][j] += xs[i] * ys[j];
    }
    __syncthreads();
  }
  for (int i = 0; i < 4; i++)
    *(float4*)&c[(row + ty * 4 + i) * n + column + tx * 4] = make_float4(acc[i][0], acc[i][1], acc[i][2], acc[i][3]);
}

extern "C" __global__ void histogram(const unsigned char* in, unsigned* out, int n) {
  __shared__ unsigned bins[256];
  for (int i = threadIdx.x; i < 256; i += blockDim.x) bins[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&bins[in[i]], 1u);
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += blockDim.x)
    if (bins[i]) atomicAdd(&out[i], bins[i]);
}

// One radix-2 FFT of 256 points a block of 128 threads.
extern "C" __global__ void fft256(const float2* in, float2* out) {
  __shared__ float2 v[256];
  in += blockIdx.x * 256;
  out += blockIdx.x * 256;
  for (int i = threadIdx.x; i < 256; i += 128) v[__brev(i) >> 24] = in[i];
  __syncthreads();
  for (int half = 1; half < 256; half *= 2) {
    const int k = threadIdx.x & (half - 1), i = (threadIdx.x - k) * 2 + k;
    float s, c;
    __sincosf(-3.14159265f * k / half, &s, &c);
    const float2 x = v[i], y = v[i + half];
    const float2 w = make_float2(y.x * c - y.y * s, y.x * s + y.y * c);
    __syncthreads();
    v[i] = make_float2(x.x + w.x, x.y + w.y);
    v[i + half] = make_float2(x.x - w.x, x.y - w.y);
    __syncthreads();
  }
  for (int i = threadIdx.x; i < 256; i += 128) out[i] = v[i];
}

extern "C" __global__ void half2_axpy(const __half2* x, __half2* y, __half2 a, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = __hfma2(a, x[i], y[i]);
}
