// Three kernels: copy the gathered rows, multiply in tiles through shared memory, add the products to their rows.
//
// The plain way with libraries, here by hand. The middle step knows nothing of tables.
#include "solve.h"

constexpr int TILE = 32, STEP = 32, ROWS = 4, THREADS = TILE * TILE / ROWS;

__global__ void copy_rows(const a_t* a, const gather_t* gather, a_t* rows, int64_t pairs, int64_t k) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < pairs * k) rows[i] = a[gather[i / k] * k + i % k];
}

__global__ void multiply(const a_t* rows, const b_t* b, float* products, int64_t pairs, int64_t n, int64_t k) {
    __shared__ float left[TILE][STEP + 1], right[STEP][TILE];
    int64_t first_row = blockIdx.x * (int64_t)TILE, first_column = blockIdx.y * (int64_t)TILE;
    int thread = threadIdx.y * TILE + threadIdx.x;
    float sums[ROWS] = {};
    for (int64_t from = 0; from < k; from += STEP) {
        for (int i = thread; i < TILE * STEP; i += THREADS) {
            int64_t row = first_row + i / STEP, p = from + i % STEP;
            left[i / STEP][i % STEP] = row < pairs && p < k ? float(rows[row * k + p]) : 0.0f;
            int64_t q = from + i / TILE, column = first_column + i % TILE;
            right[i / TILE][i % TILE] = q < k && column < n ? float(b[q * n + column]) : 0.0f;
        }
        __syncthreads();
        for (int p = 0; p < STEP; ++p) {
            float other = right[p][threadIdx.x];
            for (int i = 0; i < ROWS; ++i) sums[i] += left[threadIdx.y * ROWS + i][p] * other;
        }
        __syncthreads();
    }
    int64_t column = first_column + threadIdx.x;
    for (int i = 0; i < ROWS; ++i) {
        int64_t row = first_row + threadIdx.y * ROWS + i;
        if (row < pairs && column < n) products[row * n + column] = sums[i];
    }
}

__global__ void add_rows(const float* products, const scatter_t* scatter, d_t* d, int64_t pairs, int64_t n) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < pairs * n) atomicAdd(d + scatter[i / n] * n + i % n, products[i]);
}

extern "C" void solve(const a_t* a, const b_t* b, const gather_t* gather, const scatter_t* scatter, d_t* d,
                      int64_t pairs, int64_t rows_a, int64_t rows_d, int64_t n, int64_t k, cudaStream_t stream) {
    a_t* rows;
    float* products;
    cudaMallocAsync((void**)&rows, pairs * k * sizeof(a_t), stream);
    cudaMallocAsync((void**)&products, pairs * n * sizeof(float), stream);
    copy_rows<<<(unsigned)((pairs * k + 255) / 256), 256, 0, stream>>>(a, gather, rows, pairs, k);
    dim3 threads(TILE, TILE / ROWS), blocks((unsigned)((pairs + TILE - 1) / TILE), (unsigned)((n + TILE - 1) / TILE));
    multiply<<<blocks, threads, 0, stream>>>(rows, b, products, pairs, n, k);
    add_rows<<<(unsigned)((pairs * n + 255) / 256), 256, 0, stream>>>(products, scatter, d, pairs, n);
    cudaFreeAsync(products, stream);
    cudaFreeAsync(rows, stream);
}
