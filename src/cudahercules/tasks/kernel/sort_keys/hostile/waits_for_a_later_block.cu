// expect: timeout — odd-even exchanges whose blocks wait for a later block that signals once too seldom
//
// The flags are counted up after each round. The last block stops a round early, so its neighbour waits for
// ever: what a kernel with waiting blocks does when one of them gets its count wrong.
#include "solve.h"

__global__ void exchange(const uint32_t* keys, uint32_t* sorted, int64_t n, unsigned* rounds_done) {
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        sorted[i] = keys[i];
    if (threadIdx.x != 0) return;
    for (unsigned round = 1; round <= 2; ++round) {
        if (blockIdx.x + 1 == gridDim.x && round == 2) return;
        atomicAdd(&rounds_done[blockIdx.x], 1);
        if (blockIdx.x + 1 < gridDim.x)
            while (atomicAdd(&rounds_done[blockIdx.x + 1], 0) < round) {
            }
    }
}

extern "C" void solve(const keys_t* keys, sorted_t* sorted, int64_t n, cudaStream_t stream) {
    unsigned* rounds_done = nullptr;
    cudaMallocAsync(&rounds_done, 2 * sizeof(unsigned), stream);
    cudaMemsetAsync(rounds_done, 0, 2 * sizeof(unsigned), stream);
    exchange<<<2, 256, 0, stream>>>(keys, sorted, n, rounds_done);
}
