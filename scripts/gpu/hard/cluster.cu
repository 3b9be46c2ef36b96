// A launch in clusters of 16 (non-portable) blocks that read each other's shared memory, with more
// dynamic shared memory than the default.
#include "solve.h"

#include <cooperative_groups.h>

namespace cg = cooperative_groups;
constexpr int kCluster = 16, kThreads = 128, kShared = 100 * 1024;

__global__ void rotate(const float* x, float* y, int64_t n) {
  extern __shared__ float tile[];
  auto cluster = cg::this_cluster();
  const int64_t i = blockIdx.x * int64_t(kThreads) + threadIdx.x;
  tile[threadIdx.x] = i < n ? x[i] : 0.0f;
  cluster.sync();
  const unsigned next = (cluster.block_rank() + 1) % kCluster;
  const float value = cluster.map_shared_rank(tile, next)[threadIdx.x];
  cluster.sync();
  if (i < n) y[i] = value;
}

extern "C" void solve(const x_t* x, y_t* y, int64_t n, cudaStream_t stream) {
  cudaFuncSetAttribute(rotate, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
  cudaFuncSetAttribute(rotate, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {kCluster, 1, 1};
  cudaLaunchConfig_t config{};
  const unsigned blocks = unsigned((n + kThreads - 1) / kThreads);
  config.gridDim = dim3((blocks + kCluster - 1) / kCluster * kCluster);
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = kShared;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  int fit = 0;  // asked so that the profile's answer is compared with the device's
  cudaOccupancyMaxActiveClusters(&fit, rotate, &config);
  cudaLaunchKernelEx(&config, rotate, x, y, n);
}
