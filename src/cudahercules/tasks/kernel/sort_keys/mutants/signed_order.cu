// expect: incorrect — compares keys as signed integers, so that the upper half comes first
#include "solve.h"

// How many of run[0 .. length) come before `key`.
__device__ int64_t rank_in(const uint32_t* run, int64_t length, uint32_t key, bool equal_come_before) {
    int64_t low = 0, high = length;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        int32_t ours = key, other = run[middle];
        bool before = equal_come_before ? other <= ours : other < ours;
        if (before)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

__global__ void merge_runs(const uint32_t* from, uint32_t* to, int64_t n, int64_t run) {
    int64_t at = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (at >= n) return;
    uint32_t key = from[at];
    int64_t left = at / (2 * run) * (2 * run), right = min(left + run, n), end = min(right + run, n);
    int64_t rank;
    if (at < right)
        rank = at - left + rank_in(from + right, end - right, key, false);
    else
        rank = at - right + rank_in(from + left, right - left, key, true);
    to[left + rank] = key;
}

extern "C" void solve(const keys_t* keys, sorted_t* sorted, int64_t n, cudaStream_t stream) {
    uint32_t* other = nullptr;
    cudaMallocAsync(&other, n * sizeof(uint32_t), stream);
    int passes = 1;  // at least one, which copies a single key
    while ((int64_t)1 << passes < n) ++passes;
    unsigned blocks = (unsigned)((n + 255) / 256);
    const uint32_t* from = keys;
    for (int pass = 0; pass < passes; ++pass) {
        uint32_t* to = (passes - pass) % 2 == 1 ? sorted : other;  // the last pass ends in `sorted`
        merge_runs<<<blocks, 256, 0, stream>>>(from, to, n, (int64_t)1 << pass);
        from = to;
    }
    cudaFreeAsync(other, stream);
}
