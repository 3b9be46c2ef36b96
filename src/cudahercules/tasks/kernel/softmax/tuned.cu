// Tuned for the memory system: every row is read once and written once, whatever its length.
//
// The idea. Softmax needs a row's maximum and sum before it can write the first result, so the row has to
// wait somewhere, and where depends on its length:
//
// * up to 128 vectors of 16 bytes, rows aligned: in the registers of one warp; no barrier at all.
// * up to 1024 elements of any alignment: a block takes a span of rows that begins and ends at a multiple of
//   16 bytes, brings it to shared memory in vectors, lets one warp work on each row, and stores the span in
//   vectors again. Single rows of odd length would need element-sized accesses.
// * up to 1024 vectors, rows aligned: in the registers of one block.
// * any other: one block a row; some vectors a thread stay in registers, the next ones are parked in shared
//   memory, and only what does not fit there is read a second time, from L2. The few elements before the
//   first and after the last aligned vector go to one thread each.
//
// Maximum and sum together. A thread knows the largest of its own elements before it sums, so each
// element costs one exponential for the sum and one for the result. Pairs (largest, sum) merge across
// lanes and warps with one barrier a row. The difference x - largest is taken before scaling to base two:
// folding both into one fma would round largest * log2(e), differently in every thread.
//
// Loads and stores are ordinary: evict-first loads (.cs) cost 2 % for rows of 4096 on an H200, loads past L1 as much.
//
// For rows of a vocabulary one or two blocks fill a multiprocessor. They would leave the bus idle while they
// reduce and store, so they ask L2 for their next rows first.
#include "solve.h"

#include <cfloat>

constexpr int VECTOR = 16 / sizeof(x_t);  // elements of a 16-byte access

struct Pair {
    float largest, sum;  // sum of exp(x - largest)
};

__device__ float exponential(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x * 1.4426950408889634f));
    return result;
}

// An empty pair has the lowest finite number, not -infinity, so that no difference is NaN.
__device__ Pair empty() { return {-FLT_MAX, 0.0f}; }

__device__ Pair merge(Pair a, Pair b) {
    float largest = fmaxf(a.largest, b.largest);
    return {largest, a.sum * exponential(a.largest - largest) + b.sum * exponential(b.largest - largest)};
}

__device__ Pair over_warp(Pair mine) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
        mine = merge(mine, {__shfl_xor_sync(0xffffffffu, mine.largest, distance),
                            __shfl_xor_sync(0xffffffffu, mine.sum, distance)});
    return mine;
}

__device__ float element(const uint4& raw, int i) {
    return float(reinterpret_cast<const x_t*>(&raw)[i]);
}

// A vector of -infinity: takes part in a row without adding anything.
__device__ uint4 nothing() {
    unsigned word = sizeof(x_t) == 4 ? 0xff800000u : 0xff80ff80u;
    return make_uint4(word, word, word, word);
}

// To the compiler these are new numbers. Otherwise it keeps every bf16 that it once made a float as a float, in
// twice the registers, until the results are written.
__device__ void forget(uint4& raw) {
    asm volatile("" : "+r"(raw.x), "+r"(raw.y), "+r"(raw.z), "+r"(raw.w));
}

__device__ float largest_of(const uint4& raw, float largest) {
#pragma unroll
    for (int i = 0; i < VECTOR; ++i) largest = fmaxf(largest, element(raw, i));
    return largest;
}

__device__ float sum_of(const uint4& raw, float largest) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < VECTOR; ++i) sum += exponential(element(raw, i) - largest);
    return sum;
}

__device__ uint4 results(const uint4& raw, float largest, float scale) {
    uint4 packed;
#pragma unroll
    for (int i = 0; i < VECTOR; ++i)
        reinterpret_cast<y_t*>(&packed)[i] = y_t(exponential(element(raw, i) - largest) * scale);
    return packed;
}

// --- aligned rows of up to 32 * KEPT vectors: a warp each ----------------------------------------

template <int KEPT>
__global__ void __launch_bounds__(256) warp_rows(const x_t* __restrict__ x, y_t* __restrict__ y, int64_t rows,
                                                 int vectors) {
    int64_t row = blockIdx.x * (int64_t)8 + threadIdx.x / 32;
    int lane = threadIdx.x % 32;
    if (row >= rows) return;
    const uint4* from = reinterpret_cast<const uint4*>(x) + row * vectors;
    uint4* to = reinterpret_cast<uint4*>(y) + row * vectors;

    uint4 raw[KEPT];
    Pair mine = empty();
#pragma unroll
    for (int v = 0; v < KEPT; ++v) raw[v] = v * 32 + lane < vectors ? from[v * 32 + lane] : nothing();
#pragma unroll
    for (int v = 0; v < KEPT; ++v) mine.largest = largest_of(raw[v], mine.largest);
#pragma unroll
    for (int v = 0; v < KEPT; ++v) mine.sum += sum_of(raw[v], mine.largest);
    mine = over_warp(mine);
    float scale = 1.0f / mine.sum;
#pragma unroll
    for (int v = 0; v < KEPT; ++v)
        if (v * 32 + lane < vectors) to[v * 32 + lane] = results(raw[v], mine.largest, scale);
}

// --- rows of up to 32 * ITEMS elements, spans of them in shared memory ---------------------------

template <int ITEMS>
__device__ void row_in_shared(x_t* row, int columns) {
    int lane = threadIdx.x % 32;
    float value[ITEMS];
    Pair mine = empty();
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
        value[i] = i * 32 + lane < columns ? float(row[i * 32 + lane]) : -INFINITY;
        mine.largest = fmaxf(mine.largest, value[i]);
    }
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
        mine.largest = fmaxf(mine.largest, __shfl_xor_sync(0xffffffffu, mine.largest, distance));
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) mine.sum += value[i] = exponential(value[i] - mine.largest);
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
        mine.sum += __shfl_xor_sync(0xffffffffu, mine.sum, distance);
    float scale = 1.0f / mine.sum;
#pragma unroll
    for (int i = 0; i < ITEMS; ++i)
        if (i * 32 + lane < columns) row[i * 32 + lane] = x_t(value[i] * scale);
}

template <int ITEMS>
__global__ void __launch_bounds__(256) spans(const x_t* __restrict__ x, y_t* __restrict__ y, int64_t rows,
                                             int columns, int rows_a_span) {
    extern __shared__ uint4 shared[];
    x_t* span = reinterpret_cast<x_t*>(shared);
    int64_t first = blockIdx.x * (int64_t)rows_a_span;
    int here = (int)min((int64_t)rows_a_span, rows - first);
    int elements = here * columns, vectors = elements / VECTOR;
    x += first * columns;
    y += first * columns;

    for (int v = threadIdx.x; v < vectors; v += 256) shared[v] = reinterpret_cast<const uint4*>(x)[v];
    for (int i = vectors * VECTOR + threadIdx.x; i < elements; i += 256) span[i] = x[i];
    __syncthreads();
    for (int row = threadIdx.x / 32; row < here; row += 8) row_in_shared<ITEMS>(span + row * columns, columns);
    __syncthreads();
    for (int v = threadIdx.x; v < vectors; v += 256) reinterpret_cast<uint4*>(y)[v] = shared[v];
    for (int i = vectors * VECTOR + threadIdx.x; i < elements; i += 256) y[i] = span[i];
}

// --- aligned rows of up to THREADS * KEPT vectors: a block each -----------------------------------

// A warp sums about its own maximum, so that one barrier is enough, and keeps the exponentials: a result is
// one of them times what the warp's maximum and sum are to the row's.
template <int THREADS, int KEPT>
__global__ void __launch_bounds__(THREADS, 1024 / THREADS)
    aligned_rows(const x_t* __restrict__ x, y_t* __restrict__ y, int vectors) {
    __shared__ Pair warps[THREADS / 32];
    int thread = threadIdx.x;
    const uint4* from = reinterpret_cast<const uint4*>(x) + blockIdx.x * (int64_t)vectors;
    uint4* to = reinterpret_cast<uint4*>(y) + blockIdx.x * (int64_t)vectors;

    uint4 raw[KEPT];
#pragma unroll
    for (int v = 0; v < KEPT; ++v)
        raw[v] = v * THREADS + thread < vectors ? from[v * THREADS + thread] : nothing();
    Pair mine = empty();
#pragma unroll
    for (int v = 0; v < KEPT; ++v) mine.largest = largest_of(raw[v], mine.largest);
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
        mine.largest = fmaxf(mine.largest, __shfl_xor_sync(0xffffffffu, mine.largest, distance));

    float value[KEPT][VECTOR];
#pragma unroll
    for (int v = 0; v < KEPT; ++v)
#pragma unroll
        for (int i = 0; i < VECTOR; ++i)
            mine.sum += value[v][i] = exponential(element(raw[v], i) - mine.largest);
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
        mine.sum += __shfl_xor_sync(0xffffffffu, mine.sum, distance);

    if (thread % 32 == 0) warps[thread / 32] = mine;
    __syncthreads();
    Pair all = warps[0];
#pragma unroll
    for (int w = 1; w < THREADS / 32; ++w) all = merge(all, warps[w]);
    float scale = exponential(mine.largest - all.largest) / all.sum;
#pragma unroll
    for (int v = 0; v < KEPT; ++v) {
        uint4 packed;
#pragma unroll
        for (int i = 0; i < VECTOR; ++i) reinterpret_cast<y_t*>(&packed)[i] = y_t(value[v][i] * scale);
        if (v * THREADS + thread < vectors) to[v * THREADS + thread] = packed;
    }
}

// --- long rows: a block each ---------------------------------------------------------------------

// The row cut at multiples of 16 bytes: `head` elements, `vectors`, and the rest.
struct Cut {
    int64_t head, vectors, columns;

    __device__ Cut(const x_t* row, int64_t columns) : columns(columns) {
        int64_t past = (reinterpret_cast<uintptr_t>(row) % 16) / sizeof(x_t);
        head = min(past == 0 ? 0 : VECTOR - past, columns);
        vectors = (columns - head) / VECTOR;
    }

    // The element outside the vectors that belongs to a thread, or -1.
    __device__ int64_t edge(int thread) const {
        if (thread < head) return thread;
        int64_t at = thread + vectors * VECTOR;
        return at < columns ? at : -1;
    }
};

template <int THREADS>
__device__ Pair over_block(Pair mine, Pair* warps) {
    mine = over_warp(mine);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = mine;
    __syncthreads();
    return over_warp(threadIdx.x % 32 < THREADS / 32 ? warps[threadIdx.x % 32] : empty());
}

// No more than this of a row: 25 MB on 132 multiprocessors, which leaves half of their L2 to the rows at hand.
constexpr int64_t ASKED_BYTES = 192 * 1024;

__device__ void ask_l2_for(const x_t* row, int64_t columns) {
    const char* begin = reinterpret_cast<const char*>(row);
    int64_t bytes = min(columns * (int64_t)sizeof(x_t), ASKED_BYTES);
    for (int64_t at = threadIdx.x * (int64_t)128; at < bytes; at += blockDim.x * 128)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(begin + at));
}

// `parked`: vectors a thread in dynamic shared memory, behind the KEPT ones in registers.
template <int THREADS, int KEPT>
__global__ void __launch_bounds__(THREADS, 1024 / THREADS)
    block_rows(const x_t* __restrict__ x, y_t* __restrict__ y, int64_t rows, int64_t columns, int parked) {
    extern __shared__ uint4 shared[];
    __shared__ Pair warps[2][THREADS / 32];  // alternating, so that one barrier a row is enough
    int thread = threadIdx.x, copy = 0;
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x, copy ^= 1) {
        Cut cut(x + row * columns, columns);
        const uint4* from = reinterpret_cast<const uint4*>(x + row * columns + cut.head);
        int64_t edge = cut.edge(thread);
        int64_t parked_end = min(cut.vectors, (KEPT + parked) * (int64_t)THREADS);

        uint4 raw[KEPT];
        Pair mine = empty();
#pragma unroll
        for (int v = 0; v < KEPT; ++v) {
            int at = v * THREADS + thread;
            raw[v] = at < cut.vectors ? from[at] : nothing();
        }
        float at_edge = edge >= 0 ? float(x[row * columns + edge]) : -INFINITY;
        mine.largest = fmaxf(mine.largest, at_edge);
#pragma unroll 4
        for (int64_t at = KEPT * THREADS + thread; at < parked_end; at += THREADS) {
            uint4 vector = from[at];
            shared[at - KEPT * THREADS] = vector;
            mine.largest = largest_of(vector, mine.largest);
        }
#pragma unroll
        for (int v = 0; v < KEPT; ++v) {
            mine.largest = largest_of(raw[v], mine.largest);
            forget(raw[v]);
        }

        mine.sum = exponential(at_edge - mine.largest);
#pragma unroll
        for (int v = 0; v < KEPT; ++v) {
            mine.sum += sum_of(raw[v], mine.largest);
            forget(raw[v]);
        }
        for (int64_t at = KEPT * THREADS + thread; at < parked_end; at += THREADS) {
            uint4 vector = shared[at - KEPT * THREADS];  // a copy, or else elements are loaded one by one
            mine.sum += sum_of(vector, mine.largest);
        }
#pragma unroll 4
        for (int64_t at = (KEPT + parked) * THREADS + thread; at < cut.vectors; at += THREADS) {
            uint4 vector = __ldg(from + at);
            float largest = largest_of(vector, -FLT_MAX);
            mine = merge(mine, {largest, sum_of(vector, largest)});
        }

        if (row + gridDim.x < rows) ask_l2_for(x + (row + gridDim.x) * columns, columns);
        Pair all = over_block<THREADS>(mine, warps[copy]);
        float scale = 1.0f / all.sum;

        uint4* to = reinterpret_cast<uint4*>(y + row * columns + cut.head);
        // First what must be read again: it is in L2 still.
        for (int64_t at = (KEPT + parked) * THREADS + thread; at < cut.vectors; at += THREADS)
            to[at] = results(from[at], all.largest, scale);
#pragma unroll
        for (int v = 0; v < KEPT; ++v) {
            int at = v * THREADS + thread;
            if (at < cut.vectors) to[at] = results(raw[v], all.largest, scale);
        }
        for (int64_t at = KEPT * THREADS + thread; at < parked_end; at += THREADS) {
            uint4 vector = shared[at - KEPT * THREADS];
            to[at] = results(vector, all.largest, scale);
        }
        if (edge >= 0) y[row * columns + edge] = y_t(exponential(at_edge - all.largest) * scale);
    }
}

// Vectors a thread in registers for rows of any length. A thread of such a block has 64 registers: eight
// vectors in them leave no room to take bf16 apart.
constexpr int HELD = sizeof(x_t) == 4 ? 8 : 4;

// --- which kernel --------------------------------------------------------------------------------

static int attribute(cudaDeviceAttr which) {
    int device = 0, value = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&value, which, device);
    return value;
}

static void launch_spans(const x_t* x, y_t* y, int64_t rows, int columns, cudaStream_t stream) {
    // Whole vectors: a multiple of VECTOR rows; and 6400 elements or so, to keep many blocks resident.
    int rows_a_span = VECTOR * max(1, 6400 / (columns * VECTOR));
    unsigned blocks = (unsigned)((rows + rows_a_span - 1) / rows_a_span);
    size_t bytes = (size_t)rows_a_span * columns * sizeof(x_t);
    if (columns <= 256)
        spans<8><<<blocks, 256, bytes, stream>>>(x, y, rows, columns, rows_a_span);
    else
        spans<32><<<blocks, 256, bytes, stream>>>(x, y, rows, columns, rows_a_span);
}

// Vectors a thread that find no place in registers.
static int beyond_registers(int64_t vectors, int threads) {
    return (int)max((int64_t)0, (vectors + threads - 1) / threads - HELD);
}

template <int THREADS>
static void launch_long(const x_t* x, y_t* y, int64_t rows, int64_t columns, int parked, cudaStream_t stream) {
    int bytes = parked * THREADS * 16;
    cudaFuncSetAttribute(block_rows<THREADS, HELD>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    int64_t blocks = min(rows, attribute(cudaDevAttrMultiProcessorCount) * (int64_t)(1024 / THREADS));
    block_rows<THREADS, HELD><<<(unsigned)blocks, THREADS, bytes, stream>>>(x, y, rows, columns, parked);
}

// Two blocks of 512 threads on a multiprocessor, if both rows fit; else one of 1024.
static void launch_long_rows(const x_t* x, y_t* y, int64_t rows, int64_t columns, cudaStream_t stream) {
    int64_t vectors = columns / VECTOR;
    int half_room = (attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor) / 2 - 2048) / (512 * 16);
    int room = (attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) - 1024) / (1024 * 16);
    if (beyond_registers(vectors, 512) <= half_room)
        launch_long<512>(x, y, rows, columns, beyond_registers(vectors, 512), stream);
    else
        launch_long<1024>(x, y, rows, columns, min(beyond_registers(vectors, 1024), room), stream);
}

extern "C" void solve(const x_t* x, y_t* y, int64_t rows, int64_t columns, cudaStream_t stream) {
    int64_t vectors = columns / VECTOR;
    unsigned row_blocks = (unsigned)((rows + 7) / 8);
    if (columns % VECTOR == 0 && vectors <= 32)
        warp_rows<1><<<row_blocks, 256, 0, stream>>>(x, y, rows, (int)vectors);
    else if (columns % VECTOR == 0 && vectors <= 64)
        warp_rows<2><<<row_blocks, 256, 0, stream>>>(x, y, rows, (int)vectors);
    else if (columns % VECTOR == 0 && vectors <= 128)
        warp_rows<4><<<row_blocks, 256, 0, stream>>>(x, y, rows, (int)vectors);
    else if (columns % VECTOR == 0 && vectors <= 512)
        aligned_rows<128, 4><<<(unsigned)rows, 128, 0, stream>>>(x, y, (int)vectors);
    else if (columns % VECTOR == 0 && vectors <= 1024)
        aligned_rows<256, 4><<<(unsigned)rows, 256, 0, stream>>>(x, y, (int)vectors);
    else if (columns <= 1024)
        launch_spans(x, y, rows, (int)columns, stream);
    else if (vectors <= 128 * 4)
        block_rows<128, 4><<<(unsigned)rows, 128, 0, stream>>>(x, y, rows, columns, 0);
    else if (vectors <= 256 * 4)
        block_rows<256, 4><<<(unsigned)rows, 256, 0, stream>>>(x, y, rows, columns, 0);
    else
        launch_long_rows(x, y, rows, columns, stream);
}
