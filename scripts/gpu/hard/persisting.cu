// Reads its input after having asked (mode 2) that L2 keep it beyond the sample.
#include "solve.h"

__global__ void read(const float* x, float* y, int64_t n) {
  float sum = 0.0f;
  for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < n; i += int64_t(gridDim.x) * blockDim.x)
    sum += x[i];
  y[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

extern "C" void solve(const x_t* x, y_t* y, const int32_t*, int64_t n, int64_t mode, cudaStream_t stream) {
  if (mode == 2) {
    cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, 32 << 20);
    cudaStreamAttrValue value{};
    value.accessPolicyWindow.base_ptr = (void*)x;
    value.accessPolicyWindow.num_bytes = n * sizeof(float);
    value.accessPolicyWindow.hitRatio = 1.0f;
    value.accessPolicyWindow.hitProp = cudaAccessPropertyPersisting;
    value.accessPolicyWindow.missProp = cudaAccessPropertyStreaming;
    cudaStreamSetAttribute(stream, cudaStreamAttributeAccessPolicyWindow, &value);
  }
  read<<<264, 1024, 0, stream>>>(x, y, n);
}
