// A cooperative launch: blocks exchange partial sums across a grid-wide barrier.
#include "solve.h"

#include <cooperative_groups.h>

namespace cg = cooperative_groups;
constexpr int kThreads = 256;
constexpr int kMostBlocks = 4096;
__device__ unsigned long long partial[kMostBlocks];

__global__ void sums(const unsigned* x, unsigned long long* y, int64_t n) {
  __shared__ unsigned long long mine;
  if (threadIdx.x == 0) mine = 0;
  __syncthreads();
  unsigned long long sum = 0;
  for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < n; i += int64_t(gridDim.x) * blockDim.x)
    sum += x[i];
  atomicAdd(&mine, sum);
  __syncthreads();
  if (threadIdx.x == 0) partial[blockIdx.x] = mine;
  cg::this_grid().sync();
  unsigned long long total = 0;
  for (unsigned b = 0; b < gridDim.x; ++b) total += partial[b];
  for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < n; i += int64_t(gridDim.x) * blockDim.x)
    y[i] = total + x[i];
}

extern "C" void solve(const x_t* x, y_t* y, int64_t n, cudaStream_t stream) {
  int blocks = 0, multiprocessors = 0;
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, sums, kThreads, 0);
  cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0);
  auto out = reinterpret_cast<unsigned long long*>(y);
  void* arguments[] = {(void*)&x, &out, &n};
  cudaLaunchCooperativeKernel((void*)sums, dim3(blocks * multiprocessors), dim3(kThreads), arguments, 0, stream);
}
