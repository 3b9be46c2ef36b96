// CUB's device-wide algorithms, called as its manual says: ask for the scratch, take it, go.
#include <cub/device/device_histogram.cuh>
#include <cub/device/device_merge_sort.cuh>
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_reduce.cuh>
#include <cub/device/device_run_length_encode.cuh>
#include <cub/device/device_scan.cuh>
#include <cub/device/device_select.cuh>

#include "solve.h"

struct Even {
  __device__ bool operator()(int x) const { return x % 2 == 0; }
};
struct Less {
  __device__ bool operator()(int x, int y) const { return x < y; }
};

template <class Call>
static void with_scratch(Call call, cudaStream_t stream) {
  size_t bytes = 0;
  void* scratch = nullptr;
  if (call(scratch, bytes) != cudaSuccess || cudaMallocAsync(&scratch, bytes, stream) != cudaSuccess) return;
  call(scratch, bytes);
  cudaFreeAsync(scratch, stream);
}

// `which` selects the algorithm: what it writes into c and into count (one or n values) is in the test.
void solve(const a_t* a, c_t* c, count_t* count, int64_t n, int64_t which, cudaStream_t stream) {
  const int m = static_cast<int>(n);
  with_scratch(
      [=](void* scratch, size_t& bytes) {
        switch (which) {
          case 1: return cub::DeviceReduce::Sum(scratch, bytes, a, c, m, stream);
          case 2: return cub::DeviceReduce::Max(scratch, bytes, a, c, m, stream);
          case 3: return cub::DeviceScan::ExclusiveSum(scratch, bytes, a, c, m, stream);
          case 4: return cub::DeviceRadixSort::SortKeys(scratch, bytes, a, c, m, 0, 32, stream);
          case 5: return cub::DeviceRadixSort::SortPairsDescending(scratch, bytes, a, c, a, count, m, 0, 32, stream);
          case 6: return cub::DeviceSelect::If(scratch, bytes, a, c, count, m, Even{}, stream);
          case 7: return cub::DeviceSelect::Unique(scratch, bytes, a, c, count, m, stream);
          case 8: return cub::DeviceRunLengthEncode::Encode(scratch, bytes, a, c, count + 1, count, m, stream);
          case 9: return cub::DeviceHistogram::HistogramEven(scratch, bytes, a, count, 65, -1000, 1000, m, stream);
          default: return cub::DeviceMergeSort::SortKeysCopy(scratch, bytes, a, c, m, Less{}, stream);
        }
      },
      stream);
}
