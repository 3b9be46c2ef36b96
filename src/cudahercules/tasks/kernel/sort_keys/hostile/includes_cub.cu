// expect: build_error or contract_error — includes CUB, which the library policy of this member refuses
#include <cub/cub.cuh>

#include "solve.h"

extern "C" void solve(const keys_t* keys, sorted_t* sorted, int64_t n, cudaStream_t stream) {
    void* scratch = nullptr;
    size_t bytes = 0;
    cub::DeviceRadixSort::SortKeys(scratch, bytes, keys, sorted, n, 0, sizeof(keys_t) * 8, stream);
    cudaMallocAsync(&scratch, bytes, stream);
    cub::DeviceRadixSort::SortKeys(scratch, bytes, keys, sorted, n, 0, sizeof(keys_t) * 8, stream);
}
