// CUB's scan, reduction and selection with its own host code: scratch sizes are asked for first.
#include "solve.h"

#include <cub/cub.cuh>

struct IsOdd {
  __host__ __device__ bool operator()(int v) const { return v & 1; }
};

template <typename Call>
static void run(Call call, cudaStream_t stream) {
  size_t bytes = 0;
  call(nullptr, bytes);
  void* scratch = nullptr;
  cudaMallocAsync(&scratch, bytes, stream);
  call(scratch, bytes);
  cudaFreeAsync(scratch, stream);
}

extern "C" void solve(const values_t* values, prefix_t* prefix, total_t* total, odd_t* odd, count_t* count,
                      int64_t n, cudaStream_t stream) {
  run([&](void* s, size_t& b) { cub::DeviceScan::InclusiveSum(s, b, values, prefix, int(n), stream); }, stream);
  run([&](void* s, size_t& b) { cub::DeviceReduce::Sum(s, b, values, total, int(n), stream); }, stream);
  run([&](void* s, size_t& b) { cub::DeviceSelect::If(s, b, values, odd, count, int(n), IsOdd{}, stream); },
      stream);
}
