// expect: incorrect — sorts whole tiles only and copies the keys behind the last one
#include "solve.h"

constexpr int THREADS = 256;
constexpr int ITEMS = 4;
constexpr int TILE = THREADS * ITEMS;
constexpr int DIGITS = 16;

__device__ int digit_of(uint32_t key, int shift) { return (key >> shift) & (DIGITS - 1); }

__global__ void count(const uint32_t* keys, uint32_t* counts, int64_t n, int64_t tiles, int shift) {
    __shared__ uint32_t mine[DIGITS];
    if (threadIdx.x < DIGITS) mine[threadIdx.x] = 0;
    __syncthreads();
    int64_t first = blockIdx.x * (int64_t)TILE;
    for (int i = threadIdx.x; i < TILE && first + i < n; i += THREADS)
        atomicAdd(&mine[digit_of(keys[first + i], shift)], 1);
    __syncthreads();
    if (threadIdx.x < DIGITS) counts[threadIdx.x * tiles + blockIdx.x] = mine[threadIdx.x];
}

// Exclusive prefix sums in place, by one block: each thread sums a stretch, then the stretches are offset.
__global__ void scan(uint32_t* counts, int64_t length) {
    __shared__ uint32_t sums[1024];
    int64_t stretch = (length + 1023) / 1024;
    int64_t begin = threadIdx.x * stretch, end = min(begin + stretch, length);
    uint32_t sum = 0;
    for (int64_t i = begin; i < end; ++i) sum += counts[i];
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (int distance = 1; distance < 1024; distance *= 2) {
        uint32_t earlier = threadIdx.x >= distance ? sums[threadIdx.x - distance] : 0;
        __syncthreads();
        sums[threadIdx.x] += earlier;
        __syncthreads();
    }
    uint32_t before = sums[threadIdx.x] - sum;
    for (int64_t i = begin; i < end; ++i) {
        uint32_t here = counts[i];
        counts[i] = before;
        before += here;
    }
}

__global__ void move(const uint32_t* from, uint32_t* to, const uint32_t* starts, int64_t n, int64_t tiles,
                     int shift) {
    __shared__ uint32_t before[DIGITS][THREADS];  // keys of a digit in earlier threads
    int64_t first = blockIdx.x * (int64_t)TILE + threadIdx.x * ITEMS;
    for (int d = 0; d < DIGITS; ++d) before[d][threadIdx.x] = 0;
    for (int i = 0; i < ITEMS && first + i < n; ++i) before[digit_of(from[first + i], shift)][threadIdx.x]++;
    __syncthreads();
    if (threadIdx.x < DIGITS) {
        uint32_t sum = starts[threadIdx.x * tiles + blockIdx.x];
        for (int t = 0; t < THREADS; ++t) {
            uint32_t here = before[threadIdx.x][t];
            before[threadIdx.x][t] = sum;
            sum += here;
        }
    }
    __syncthreads();
    for (int i = 0; i < ITEMS && first + i < n; ++i) {
        uint32_t key = from[first + i];
        to[before[digit_of(key, shift)][threadIdx.x]++] = key;
    }
}

extern "C" void solve(const keys_t* keys, sorted_t* sorted, int64_t n, cudaStream_t stream) {
    int64_t all = n;
    n = n / TILE * TILE;  // whole tiles
    int64_t tiles = n / TILE;
    cudaMemcpyAsync(sorted + n, keys + n, (all - n) * sizeof(uint32_t), cudaMemcpyDeviceToDevice, stream);
    if (tiles == 0) return;
    uint32_t *counts = nullptr, *other = nullptr;
    cudaMallocAsync(&counts, DIGITS * tiles * sizeof(uint32_t), stream);
    cudaMallocAsync(&other, n * sizeof(uint32_t), stream);
    const uint32_t* from = keys;
    for (int pass = 0; pass < 8; ++pass) {
        uint32_t* to = pass % 2 == 0 ? other : sorted;
        count<<<(unsigned)tiles, THREADS, 0, stream>>>(from, counts, n, tiles, 4 * pass);
        scan<<<1, 1024, 0, stream>>>(counts, DIGITS * tiles);
        move<<<(unsigned)tiles, THREADS, 0, stream>>>(from, to, counts, n, tiles, 4 * pass);
        from = to;
    }
    cudaFreeAsync(counts, stream);
    cudaFreeAsync(other, stream);
}
