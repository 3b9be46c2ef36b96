// A second honest solution in another style: 16 bytes a thread where rows allow it.
//
// A family needs more than one honest solution, so that its bounds do not fit a single way of computing.
// Pointers are 256-byte aligned: 16-byte accesses are aligned in every row if a row is a multiple of 16
// bytes. Other widths take the plain kernel; the workload `odd` catches who forgets them.
#include "solve.h"

constexpr int THREADS = 256;
constexpr int WIDTH = 16 / sizeof(x_t);

template <class T>
struct alignas(16) Pack {
    T value[WIDTH];
};

// `packs` counts those of the matrix, `packs_a_row` those of a row.
__global__ void packed(const Pack<x_t>* x, const Pack<bias_t>* bias, Pack<z_t>* z, int64_t packs,
                       int64_t packs_a_row, float alpha) {
    int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x;
    if (i >= packs) return;
    Pack<x_t> from = x[i];
    Pack<bias_t> plus = bias[i % packs_a_row];
    Pack<z_t> to;
#pragma unroll
    for (int k = 0; k < WIDTH; ++k) to.value[k] = z_t(alpha * float(from.value[k]) + float(plus.value[k]));
    z[i] = to;
}

__global__ void plain(const x_t* x, const bias_t* bias, z_t* z, int64_t count, int64_t columns, float alpha) {
    int64_t i = blockIdx.x * (int64_t)THREADS + threadIdx.x;
    if (i < count) z[i] = z_t(alpha * float(x[i]) + float(bias[i % columns]));
}

unsigned blocks_for(int64_t threads) { return unsigned((threads + THREADS - 1) / THREADS); }

extern "C" void solve(const x_t* x, const bias_t* bias, z_t* z, int64_t rows, int64_t columns, float alpha,
                      cudaStream_t stream) {
    int64_t count = rows * columns;
    if (columns % WIDTH == 0) {
        packed<<<blocks_for(count / WIDTH), THREADS, 0, stream>>>(
            reinterpret_cast<const Pack<x_t>*>(x), reinterpret_cast<const Pack<bias_t>*>(bias),
            reinterpret_cast<Pack<z_t>*>(z), count / WIDTH, columns / WIDTH, alpha);
    } else {
        plain<<<blocks_for(count), THREADS, 0, stream>>>(x, bias, z, count, columns, alpha);
    }
}
