// Programmatic dependent launch: the second kernel starts early and waits for the first on the device.
#include "solve.h"

__global__ void first(const float* x, float* middle, int64_t n) {
  int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i < n) middle[i] = x[i] * 3.0f;
  cudaTriggerProgrammaticLaunchCompletion();
}

__global__ void second(const float* middle, float* y, int64_t n) {
  int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  cudaGridDependencySynchronize();
  if (i < n) y[i] = middle[n - 1 - i] + 1.0f;
}

extern "C" void solve(const x_t* x, y_t* y, int64_t n, cudaStream_t stream) {
  float* middle = nullptr;
  cudaMalloc(&middle, n * sizeof(float));
  const unsigned blocks = unsigned((n + 255) / 256);
  first<<<blocks, 256, 0, stream>>>(x, middle, n);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(256);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  cudaLaunchKernelEx(&config, second, (const float*)middle, y, n);
}
