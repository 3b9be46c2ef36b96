// Tuned for the memory system: logits are read once and gradients written once.
//
// The idea. A token's maximum and sum must be known before its first gradient, so its logits wait on the
// chip: four vectors of 16 bytes a thread in registers, the next ones in shared memory, and only what fits in
// neither (classes beyond 147456 on an H200) is read a second time. A thread knows the largest of its own
// logits before it sums exponentials, so each logit costs one exponential for the sum and one for its
// gradient; pairs (largest, sum) merge across the block with one barrier.
//
// One block of 1024 threads, or two of 512, fill a multiprocessor and walk over tokens. While they reduce and
// store, the bus would have nothing to read, so they ask L2 for their next rows before. Rows of odd length
// begin anywhere: the few logits before the first and after the last aligned vector go to one thread each.
// Short vocabularies take smaller blocks, one token each.
//
// Logits are loaded evict-first and gradients stored ordinarily: what is still dirty in L2 when the kernel ends
// need not reach memory in time (streaming stores cost a layer normalisation 8 to 14 % on an H200; not measured
// here).
//
// The label's element is an ordinary one when the gradient is written; the thread that holds it subtracts.
// The loss needs its logit, which one thread reads again. Ignored tokens are not read at all.
#include "solve.h"

#include <cfloat>

constexpr int VECTOR = 8;  // logits of a 16-byte access

// Vectors a thread in registers. It has 64 of them: eight vectors leave no room to take bf16 apart.
constexpr int HELD = 4;

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

template <int THREADS>
__device__ Pair over_block(Pair mine, Pair* warps) {
    mine = over_warp(mine);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = mine;
    __syncthreads();
    return over_warp(threadIdx.x % 32 < THREADS / 32 ? warps[threadIdx.x % 32] : empty());
}

__device__ float logit(const uint4& raw, int i) {
    return float(reinterpret_cast<const logits_t*>(&raw)[i]);
}

// A vector of -infinity: takes part in a row without adding anything.
__device__ uint4 nothing() { return make_uint4(0xff80ff80u, 0xff80ff80u, 0xff80ff80u, 0xff80ff80u); }

// To the compiler these are new numbers. Otherwise it keeps every bf16 that it once made a float as a float, in
// twice the registers, until the results are written.
__device__ void forget(uint4& raw) {
    asm volatile("" : "+r"(raw.x), "+r"(raw.y), "+r"(raw.z), "+r"(raw.w));
}

__device__ float largest_of(const uint4& raw, float largest) {
#pragma unroll
    for (int i = 0; i < VECTOR; ++i) largest = fmaxf(largest, logit(raw, i));
    return largest;
}

__device__ float sum_of(const uint4& raw, float largest) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < VECTOR; ++i) sum += exponential(logit(raw, i) - largest);
    return sum;
}

// What a gradient needs besides its logit. `label` counts from the element that the vectors begin with.
struct Row {
    float largest, factor, grad_scale;  // factor: grad_scale over the sum
    int label;

    __device__ float gradient(float x, bool is_label) const {
        float weight = exponential(x - largest) * factor;
        return is_label ? weight - grad_scale : weight;
    }

    __device__ uint4 gradients(const uint4& raw, int vector) const {
        uint4 packed;
        int in_vector = label - vector * VECTOR;
#pragma unroll
        for (int i = 0; i < VECTOR; ++i)
            reinterpret_cast<dlogits_t*>(&packed)[i] = dlogits_t(gradient(logit(raw, i), i == in_vector));
        return packed;
    }
};

// The row cut at multiples of 16 bytes: `head` logits, `vectors`, and the rest.
struct Cut {
    int head, vectors, columns;

    __device__ Cut(const logits_t* row, int columns) : columns(columns) {
        int past = (int)(reinterpret_cast<uintptr_t>(row) % 16) / (int)sizeof(logits_t);
        head = min(past == 0 ? 0 : VECTOR - past, columns);
        vectors = (columns - head) / VECTOR;
    }

    // The logit outside the vectors that belongs to a thread, or -1.
    __device__ int edge(int thread) const {
        if (thread < head) return thread;
        int at = thread + vectors * VECTOR;
        return at < columns ? at : -1;
    }
};

// No more than this of a row: 25 MB on 132 multiprocessors, which leaves half of their L2 to the rows at hand.
constexpr int ASKED_BYTES = 192 * 1024;

__device__ void ask_l2_for(const logits_t* row, int columns) {
    const char* begin = reinterpret_cast<const char*>(row);
    int bytes = min(columns * (int)sizeof(logits_t), ASKED_BYTES);
    for (int at = threadIdx.x * 128; at < bytes; at += blockDim.x * 128)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(begin + at));
}

template <int THREADS>
__device__ void ignored(const Cut& cut, dlogits_t* gradient, int edge) {
    uint4* to = reinterpret_cast<uint4*>(gradient + cut.head);
    for (int at = threadIdx.x; at < cut.vectors; at += THREADS) to[at] = make_uint4(0, 0, 0, 0);
    if (edge >= 0) gradient[edge] = dlogits_t(0.0f);
}

// `parked`: vectors a thread in dynamic shared memory, behind the HELD ones in registers.
template <int THREADS>
__global__ void __launch_bounds__(THREADS, 1024 / THREADS)
    cross_entropy(const logits_t* __restrict__ logits, const labels_t* __restrict__ labels,
                  float* __restrict__ loss, dlogits_t* __restrict__ dlogits, int64_t rows, int columns,
                  int64_t ignore_index, float grad_scale, int parked) {
    extern __shared__ uint4 shared[];
    __shared__ Pair warps[2][THREADS / 32];  // alternating, so that one barrier a row is enough
    int thread = threadIdx.x, copy = 0;
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const logits_t* x = logits + row * columns;
        dlogits_t* gradient = dlogits + row * columns;
        Cut cut(x, columns);
        int edge = cut.edge(thread);
        int64_t label = labels[row];
        if (label == ignore_index) {
            ignored<THREADS>(cut, gradient, edge);
            if (thread == 0) loss[row] = 0.0f;
            continue;
        }
        const uint4* from = reinterpret_cast<const uint4*>(x + cut.head);
        int parked_end = min(cut.vectors, (HELD + parked) * THREADS);

        uint4 raw[HELD];
        Pair mine = empty();
#pragma unroll
        for (int v = 0; v < HELD; ++v) {
            int at = v * THREADS + thread;
            raw[v] = at < cut.vectors ? __ldcs(from + at) : nothing();
        }
        float at_edge = edge >= 0 ? float(x[edge]) : -INFINITY;
        mine.largest = fmaxf(mine.largest, at_edge);
#pragma unroll 4
        for (int at = HELD * THREADS + thread; at < parked_end; at += THREADS) {
            uint4 vector = __ldcs(from + at);
            shared[at - HELD * THREADS] = vector;
            mine.largest = largest_of(vector, mine.largest);
        }
#pragma unroll
        for (int v = 0; v < HELD; ++v) {
            mine.largest = largest_of(raw[v], mine.largest);
            forget(raw[v]);
        }

        mine.sum = exponential(at_edge - mine.largest);
#pragma unroll
        for (int v = 0; v < HELD; ++v) {
            mine.sum += sum_of(raw[v], mine.largest);
            forget(raw[v]);
        }
        for (int at = HELD * THREADS + thread; at < parked_end; at += THREADS) {
            uint4 vector = shared[at - HELD * THREADS];  // a copy, or else logits are loaded one by one
            mine.sum += sum_of(vector, mine.largest);
        }
        for (int at = (HELD + parked) * THREADS + thread; at < cut.vectors; at += THREADS) {
            uint4 vector = __ldg(from + at);
            float largest = largest_of(vector, -FLT_MAX);
            mine = merge(mine, {largest, sum_of(vector, largest)});
        }

        int64_t next = row + gridDim.x;
        if (next < rows && labels[next] != ignore_index) ask_l2_for(logits + next * columns, columns);
        Pair all = over_block<THREADS>(mine, warps[copy]);
        copy ^= 1;
        if (thread == 0) loss[row] = logf(all.sum) + (all.largest - float(x[label]));

        Row finish = {all.largest, grad_scale / all.sum, grad_scale, (int)label - cut.head};
        uint4* to = reinterpret_cast<uint4*>(gradient + cut.head);
        // First what must be read again: it is in L2 still.
        for (int at = (HELD + parked) * THREADS + thread; at < cut.vectors; at += THREADS)
            to[at] = finish.gradients(__ldcs(from + at), at);
#pragma unroll
        for (int v = 0; v < HELD; ++v) {
            int at = v * THREADS + thread;
            if (at < cut.vectors) to[at] = finish.gradients(raw[v], at);
        }
        for (int at = HELD * THREADS + thread; at < parked_end; at += THREADS) {
            uint4 vector = shared[at - HELD * THREADS];
            to[at] = finish.gradients(vector, at);
        }
        if (edge >= 0) gradient[edge] = dlogits_t(finish.gradient(at_edge, edge == label));
    }
}

static int attribute(cudaDeviceAttr which) {
    int device = 0, value = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&value, which, device);
    return value;
}

// Vectors a thread that find no place in registers.
static int beyond_registers(int vectors, int threads) {
    return max(0, (vectors + threads - 1) / threads - HELD);
}

extern "C" void solve(const logits_t* logits, const labels_t* labels, loss_t* loss, dlogits_t* dlogits,
                      int64_t rows, int64_t vocabulary, int64_t ignore_index, float grad_scale,
                      cudaStream_t stream) {
    int columns = (int)vocabulary, vectors = columns / VECTOR;
    int half_room = (attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor) / 2 - 2048) / (512 * 16);
    int room = (attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) - 1024) / (1024 * 16);
    auto launch = [&](auto kernel, int threads, int64_t blocks, int parked) {
        int bytes = parked * threads * 16;
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
        kernel<<<(unsigned)min(rows, blocks), threads, bytes, stream>>>(
            logits, labels, loss, dlogits, rows, columns, ignore_index, grad_scale, parked);
    };
    int64_t multiprocessors = attribute(cudaDevAttrMultiProcessorCount);
    if (vectors <= 128 * HELD)
        launch(cross_entropy<128>, 128, rows, 0);
    else if (beyond_registers(vectors, 512) <= half_room)  // two rows on a multiprocessor
        launch(cross_entropy<512>, 512, 2 * multiprocessors, beyond_registers(vectors, 512));
    else
        launch(cross_entropy<1024>, 1024, multiprocessors, min(beyond_registers(vectors, 1024), room));
}
