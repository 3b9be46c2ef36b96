// CUB's radix sort of keys and values.
#include "solve.h"

#include <cub/cub.cuh>

extern "C" void solve(const keys_t* keys, const values_t* values, sorted_keys_t* sorted_keys,
                      sorted_values_t* sorted_values, int64_t n, cudaStream_t stream) {
  size_t bytes = 0;
  cub::DeviceRadixSort::SortPairs(nullptr, bytes, keys, sorted_keys, values, sorted_values, int(n), 0, 32, stream);
  void* scratch = nullptr;
  cudaMallocAsync(&scratch, bytes, stream);
  cub::DeviceRadixSort::SortPairs(scratch, bytes, keys, sorted_keys, values, sorted_values, int(n), 0, 32, stream);
  cudaFreeAsync(scratch, stream);
}
