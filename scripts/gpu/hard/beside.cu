// Looks for its mark a given number of bytes behind a module variable, in memory that belongs to
// nobody, and leaves it there: the driver maps whole pages for a module's few variables.
#include "solve.h"

constexpr unsigned kMark = 0xC0FFEE43u;
__device__ unsigned anchor[4];

__global__ void look(const int64_t offset, int* result) {
  result[0] = *(volatile unsigned*)((char*)anchor + offset) == kMark;
}

__global__ void leave(const int64_t offset) {
  *(volatile unsigned*)((char*)anchor + offset) = kMark;
}

extern "C" void solve(const x_t*, found_t* found, seen_t* seen, int64_t offset, cudaStream_t stream) {
  look<<<1, 1, 0, stream>>>(offset, found);
  leave<<<1, 1, 0, stream>>>(offset);
  look<<<1, 1, 0, stream>>>(offset, seen);
}
