// CUB's DeviceRadixSort, called as its manual says: ask for the scratch size, take it, sort.
//
// This is the expert of both members, and a candidate where the library policy allows CUB.
#include "solve.h"

#include <cub/device/device_radix_sort.cuh>

extern "C" void solve(const keys_t* keys, sorted_t* sorted, int64_t n, cudaStream_t stream) {
    size_t bytes = 0;
    cub::DeviceRadixSort::SortKeys(nullptr, bytes, keys, sorted, n, 0, 32, stream);
    void* scratch = nullptr;
    cudaMallocAsync(&scratch, bytes, stream);
    cub::DeviceRadixSort::SortKeys(scratch, bytes, keys, sorted, n, 0, 32, stream);
    cudaFreeAsync(scratch, stream);
}
