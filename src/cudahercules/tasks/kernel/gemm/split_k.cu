// The sum over k is cut in two halves that run side by side on two streams.
//
// A deep product with a small C has too few output tiles to fill a large GPU. Here the first half of k
// is summed on the caller's stream and the second half on a stream of our own, each into its own scratch
// matrix; a last kernel adds the two. The second stream is forked from the caller's stream with one
// event and joined to it with another, so that the whole is one graph of work. Scratch comes from the
// stream-ordered allocator.
#include <type_traits>

#include "solve.h"

// Sums are double where the operands are.
using sum_t = std::conditional_t<std::is_same<c_t, double>::value, double, float>;

__global__ void multiply_part(const a_t* a, const b_t* b, sum_t* part, int64_t m, int64_t n, int64_t k,
                              int64_t begin, int64_t end) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i >= m * n) return;
    int64_t row = i / n, column = i % n;
    sum_t sum = 0;
    for (int64_t p = begin; p < end; ++p) sum += sum_t(a[row * k + p]) * sum_t(b[p * n + column]);
    part[i] = sum;
}

__global__ void add(const sum_t* first, const sum_t* second, c_t* c, int64_t count) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < count) c[i] = c_t(first[i] + second[i]);
}

extern "C" void solve(const a_t* a, const b_t* b, c_t* c, int64_t m, int64_t n, int64_t k,
                      cudaStream_t stream) {
    int64_t count = m * n, middle = k / 2;
    unsigned blocks = (unsigned)((count + 255) / 256);

    sum_t* scratch;
    cudaMallocAsync((void**)&scratch, 2 * count * sizeof(sum_t), stream);

    cudaStream_t side;
    cudaEvent_t forked, joined;
    cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&forked, cudaEventDisableTiming);
    cudaEventCreateWithFlags(&joined, cudaEventDisableTiming);

    cudaEventRecord(forked, stream);
    cudaStreamWaitEvent(side, forked, 0);
    multiply_part<<<blocks, 256, 0, stream>>>(a, b, scratch, m, n, k, 0, middle);
    multiply_part<<<blocks, 256, 0, side>>>(a, b, scratch + count, m, n, k, middle, k);
    cudaEventRecord(joined, side);
    cudaStreamWaitEvent(stream, joined, 0);

    add<<<blocks, 256, 0, stream>>>(scratch, scratch + count, c, count);
    cudaFreeAsync(scratch, stream);

    cudaEventDestroy(forked);
    cudaEventDestroy(joined);
    cudaStreamDestroy(side);
}
