// Tables in constant memory filled by the host, static and function-static variables, a symbol's
// address handed to a kernel.
#include "solve.h"

__constant__ float table[16] = {1, 2, 3, 4};
static __device__ float bias = 0.25f;
__device__ float moved[16];

__global__ void apply(const float* x, float* y, int64_t n, const float* from_symbol) {
  static int calls = 3;
  int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i < n) y[i] = x[i] * table[i % 16] + bias + from_symbol[i % 16] + calls;
}

__global__ void change() {
  bias += 1.0f;
}

extern "C" void solve(const x_t* x, y_t* y, int64_t n, cudaStream_t stream) {
  float host[12], other[16];
  for (int i = 0; i < 12; ++i) host[i] = 0.5f * i;
  for (int i = 0; i < 16; ++i) other[i] = 100.0f * i;
  cudaMemcpyToSymbolAsync(table, host, sizeof host, 4 * sizeof(float), cudaMemcpyHostToDevice, stream);
  cudaMemcpyToSymbolAsync(moved, other, sizeof other, 0, cudaMemcpyHostToDevice, stream);
  void* address = nullptr;
  cudaGetSymbolAddress(&address, moved);
  change<<<1, 1, 0, stream>>>();
  apply<<<unsigned((n + 255) / 256), 256, 0, stream>>>(x, y, n, (const float*)address);
}
