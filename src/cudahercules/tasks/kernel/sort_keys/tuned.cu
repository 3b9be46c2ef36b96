// Radix sort in four passes of eight bits, each of which reads and writes every key once.
//
// The idea. A pass must know where the keys of each digit go: how many keys have smaller digits (the same
// for the whole array: one kernel counts the digits of all four passes in a single read), and how many
// with the same digit lie in earlier tiles. The second number travels from tile to tile while the pass
// runs (decoupled look-back): a tile publishes how many keys of each digit it holds, then walks back over
// its predecessors and adds up what they published, until one of them has published its total so far; then
// it publishes its own total. So no pass needs a kernel for counting and one for scanning.
//
// Waiting is safe because tiles are numbered by an atomic counter when their blocks start: a tile waits
// only for smaller numbers, whose blocks are running or have ended. What is published is one 32-bit word,
// state and count together, so that no order of memory operations has to be enforced around it.
//
// Within a tile each warp ranks its own stretch of keys, 32 at a time. Eight ballots give a lane the mask of
// lanes with its digit; the lowest of them adds their number to the warp's counter of that digit. Ranks
// are therefore in the order of the keys, which makes the pass stable. The tile is then put in order in
// shared memory and written from there, so that neighbouring threads write runs of neighbouring places.
#include "solve.h"

constexpr int THREADS = 256, WARPS = THREADS / 32, DIGITS = 256, PASSES = 4;
constexpr int ITEMS = 20;  // keys a thread
constexpr int TILE = THREADS * ITEMS;
static_assert(THREADS == DIGITS);  // thread d looks after digit d

// A published word: the state in the upper two bits, a count of keys below.
constexpr uint32_t OWN = 1u << 30, TOTAL = 2u << 30, COUNT = (1u << 30) - 1;

__device__ int digit_of(uint32_t key, int shift) { return (key >> shift) & (DIGITS - 1); }

// --- digits of the whole array -------------------------------------------------------------------

__global__ void __launch_bounds__(THREADS) count_digits(const uint32_t* __restrict__ keys, uint32_t* counts,
                                                        int64_t n) {
    __shared__ uint32_t mine[PASSES][DIGITS];
    for (int p = 0; p < PASSES; ++p) mine[p][threadIdx.x] = 0;
    __syncthreads();
    auto add = [&](uint32_t key) {
#pragma unroll
        for (int p = 0; p < PASSES; ++p) atomicAdd(&mine[p][digit_of(key, 8 * p)], 1);
    };
    int64_t step = gridDim.x * (int64_t)THREADS, thread = blockIdx.x * (int64_t)THREADS + threadIdx.x;
    int64_t vectors = n / 4;
    for (int64_t v = thread; v < vectors; v += step) {
        uint4 four = __ldcs(reinterpret_cast<const uint4*>(keys) + v);
        add(four.x);
        add(four.y);
        add(four.z);
        add(four.w);
    }
    if (thread < n - 4 * vectors) add(keys[4 * vectors + thread]);
    __syncthreads();
    for (int p = 0; p < PASSES; ++p)
        if (uint32_t count = mine[p][threadIdx.x]) atomicAdd(&counts[p * DIGITS + threadIdx.x], count);
}

// The sum of `value` over earlier threads of the block. `sums` holds a number a warp.
__device__ uint32_t sum_of_earlier(uint32_t value, uint32_t* sums) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t inclusive = value;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
        uint32_t earlier = __shfl_up_sync(0xffffffffu, inclusive, distance);
        if (lane >= distance) inclusive += earlier;
    }
    if (lane == 31) sums[warp] = inclusive;
    __syncthreads();
    uint32_t before = inclusive - value;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) before += w < warp ? sums[w] : 0;
    return before;
}

// Block p turns the counts of pass p into the places where digits begin.
__global__ void __launch_bounds__(THREADS) begin_of_digits(uint32_t* counts) {
    __shared__ uint32_t sums[WARPS];
    uint32_t* mine = counts + blockIdx.x * DIGITS + threadIdx.x;
    *mine = sum_of_earlier(*mine, sums);
}

// --- one pass ------------------------------------------------------------------------------------

// Lanes of the warp whose digit is the same.
__device__ uint32_t lanes_alike(int digit) {
    uint32_t alike = 0xffffffffu;
#pragma unroll
    for (int bit = 0; bit < 8; ++bit) {
        bool set = digit >> bit & 1;
        uint32_t lanes = __ballot_sync(0xffffffffu, set);
        alike &= set ? lanes : ~lanes;
    }
    return alike;
}

struct Shared {
    uint32_t counters[WARPS][DIGITS];  // per warp: keys so far; later: keys of the digit in earlier warps
    uint32_t keys[TILE];
    uint32_t begin[DIGITS];  // place in the output of the tile's first key of a digit, less its place here
    uint32_t sums[WARPS];
    uint32_t tile;
};

// How many keys of this thread's digit lie in tiles before `tile`. Publishes `own`, then the total.
__device__ uint32_t look_back(uint32_t own, uint32_t tile, volatile uint32_t* published) {
    volatile uint32_t* slot = published + tile * (int64_t)DIGITS + threadIdx.x;
    *slot = (tile == 0 ? TOTAL : OWN) | own;
    uint32_t before = 0;
    for (volatile uint32_t* earlier = slot; tile > 0; --tile) {
        earlier -= DIGITS;
        uint32_t word = *earlier;
        while (word < OWN) word = *earlier;  // not published yet
        before += word & COUNT;
        if (word >= TOTAL) {
            *slot = TOTAL | (before + own);
            break;
        }
    }
    return before;
}

__global__ void __launch_bounds__(THREADS, 3)
    sort_digit(const uint32_t* __restrict__ from, uint32_t* __restrict__ to, const uint32_t* digit_begin,
               uint32_t* published, uint32_t* next_tile, int64_t n, int shift) {
    __shared__ Shared shared;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (threadIdx.x == 0) shared.tile = atomicAdd(next_tile, 1);
    for (int w = 0; w < WARPS; ++w) shared.counters[w][threadIdx.x] = 0;
    __syncthreads();
    uint32_t tile = shared.tile;
    int64_t first = tile * (int64_t)TILE;
    int here = (int)min((int64_t)TILE, n - first);

    // Past the end stand keys with the highest digit. They come last among the tile's keys, so that nobody
    // else's place depends on them, and they are not written.
    uint32_t key[ITEMS];
    int offset = warp * ITEMS * 32 + lane;
#pragma unroll
    for (int i = 0; i < ITEMS; ++i)
        key[i] = offset + i * 32 < here ? __ldcs(from + first + offset + i * 32) : 0xffffffffu;

    uint32_t rank[ITEMS];  // among the warp's keys of the same digit
    uint32_t* counter = shared.counters[warp];
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        int digit = digit_of(key[i], shift);
        uint32_t alike = lanes_alike(digit);
        uint32_t earlier = alike & ((1u << lane) - 1);
        uint32_t so_far = counter[digit];
        __syncwarp();
        if (earlier == 0) counter[digit] = so_far + __popc(alike);
        __syncwarp();
        rank[i] = so_far + __popc(earlier);
    }
    __syncthreads();

    uint32_t own = 0;  // keys of digit threadIdx.x in this tile
    for (int w = 0; w < WARPS; ++w) {
        uint32_t count = shared.counters[w][threadIdx.x];
        shared.counters[w][threadIdx.x] = own;
        own += count;
    }
    uint32_t place = sum_of_earlier(own, shared.sums);  // of the digit's first key within the tile
    for (int w = 0; w < WARPS; ++w) shared.counters[w][threadIdx.x] += place;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) shared.keys[counter[digit_of(key[i], shift)] + rank[i]] = key[i];
    shared.begin[threadIdx.x] = digit_begin[threadIdx.x] + look_back(own, tile, published) - place;
    __syncthreads();

    for (int at = threadIdx.x; at < here; at += THREADS) {
        uint32_t sorted = shared.keys[at];
        to[shared.begin[digit_of(sorted, shift)] + at] = sorted;
    }
}

extern "C" void solve(const keys_t* keys, sorted_t* sorted, int64_t n, cudaStream_t stream) {
    int device = 0, multiprocessors = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
    int64_t tiles = (n + TILE - 1) / TILE;

    // One block of zeros: digit counts, tile counters, and the published words of every pass.
    int64_t words = PASSES * DIGITS + PASSES + PASSES * tiles * DIGITS;
    uint32_t *counts = nullptr, *other = nullptr;
    cudaMallocAsync(&counts, words * sizeof(uint32_t), stream);
    cudaMallocAsync(&other, n * sizeof(uint32_t), stream);
    cudaMemsetAsync(counts, 0, words * sizeof(uint32_t), stream);
    uint32_t* next_tile = counts + PASSES * DIGITS;
    uint32_t* published = next_tile + PASSES;

    int64_t blocks = min((n / 4 + THREADS - 1) / THREADS + 1, (int64_t)multiprocessors * 8);
    count_digits<<<(unsigned)blocks, THREADS, 0, stream>>>(keys, counts, n);
    begin_of_digits<<<PASSES, DIGITS, 0, stream>>>(counts);
    const uint32_t* from = keys;
    for (int pass = 0; pass < PASSES; ++pass) {
        uint32_t* to = pass % 2 == 0 ? other : sorted;
        sort_digit<<<(unsigned)tiles, THREADS, 0, stream>>>(from, to, counts + pass * DIGITS,
                                                           published + pass * tiles * DIGITS,
                                                           next_tile + pass, n, 8 * pass);
        from = to;
    }
    cudaFreeAsync(counts, stream);
    cudaFreeAsync(other, stream);
}
