// expect: incorrect — gives every bucket of the highest bits twice its even share of room, and no more
//
// A bucket sort that is fast on uniform keys: one pass by the highest bits into buckets of fixed size, then
// one thread sorts each bucket. Keys that do not fit into their bucket are lost.
#include "solve.h"

constexpr int BUCKETS = 256;

__global__ void spread(const uint32_t* keys, uint32_t* buckets, uint32_t* fill, int64_t n, int64_t room) {
    int64_t at = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (at >= n) return;
    uint32_t bucket = keys[at] >> 24;
    uint32_t place = atomicAdd(&fill[bucket], 1);
    if (place < room) buckets[bucket * room + place] = keys[at];
}

__global__ void collect(uint32_t* buckets, const uint32_t* fill, uint32_t* sorted, int64_t n, int64_t room) {
    int64_t begin = 0, count = min((int64_t)fill[threadIdx.x], room);
    for (int b = 0; b < threadIdx.x; ++b) begin += min((int64_t)fill[b], room);
    uint32_t* mine = buckets + threadIdx.x * room;
    for (int64_t i = 1; i < count; ++i) {
        uint32_t key = mine[i];
        int64_t j = i;
        for (; j > 0 && mine[j - 1] > key; --j) mine[j] = mine[j - 1];
        mine[j] = key;
    }
    for (int64_t i = 0; i < count; ++i) sorted[begin + i] = mine[i];
}

extern "C" void solve(const keys_t* keys, sorted_t* sorted, int64_t n, cudaStream_t stream) {
    int64_t room = 2 * n / BUCKETS + 16;
    uint32_t *buckets = nullptr, *fill = nullptr;
    cudaMallocAsync(&buckets, BUCKETS * room * sizeof(uint32_t), stream);
    cudaMallocAsync(&fill, BUCKETS * sizeof(uint32_t), stream);
    cudaMemsetAsync(fill, 0, BUCKETS * sizeof(uint32_t), stream);
    spread<<<(unsigned)((n + 255) / 256), 256, 0, stream>>>(keys, buckets, fill, n, room);
    collect<<<1, BUCKETS, 0, stream>>>(buckets, fill, sorted, n, room);
}
