// Transpose, multiply, transpose: X and Y are copied into matrices, a plain tiled product makes a third, and that is
// copied into the order of Z.
//
// The product knows nothing of modes, and the copies nothing of products. Groups of modes are as in naive.cu.
#include "solve.h"

struct Modes {
    // Distances in elements: of rows in X and Z, of columns in Y and Z, of terms in X and Y.
    int64_t extent[3], first[3], second[3];

    __host__ __device__ int64_t count() const { return extent[0] * extent[1] * extent[2]; }

    // Where the index-th value of the group lies in one tensor; the last mode runs fastest.
    __device__ int64_t place(uint32_t index, const int64_t (&distance)[3]) const {
        int64_t at = 0;
        for (int i = 2; i >= 0; --i) {
            at += index % (uint32_t)extent[i] * distance[i];
            index /= (uint32_t)extent[i];
        }
        return at;
    }
};

__global__ void copy_x(const x_t* x, x_t* matrix, Modes rows, Modes terms) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x, width = terms.count();
    if (i >= rows.count() * width) return;
    matrix[i] = x[rows.place((uint32_t)(i / width), rows.first) + terms.place((uint32_t)(i % width), terms.first)];
}

__global__ void copy_y(const y_t* y, y_t* matrix, Modes terms, Modes columns) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x, width = columns.count();
    if (i >= terms.count() * width) return;
    matrix[i] =
        y[terms.place((uint32_t)(i / width), terms.second) + columns.place((uint32_t)(i % width), columns.first)];
}

constexpr int TILE = 32, STEP = 32, ROWS = 4, THREADS = TILE * TILE / ROWS;

__global__ void multiply(const x_t* left, const y_t* right, z_t* product, int64_t m, int64_t n, int64_t k) {
    __shared__ float a[TILE][STEP + 1], b[STEP][TILE];
    int64_t first_row = blockIdx.x * (int64_t)TILE, first_column = blockIdx.y * (int64_t)TILE;
    int thread = threadIdx.y * TILE + threadIdx.x;
    float sums[ROWS] = {};
    for (int64_t from = 0; from < k; from += STEP) {
        for (int i = thread; i < TILE * STEP; i += THREADS) {
            int64_t row = first_row + i / STEP, p = from + i % STEP;
            a[i / STEP][i % STEP] = row < m && p < k ? float(left[row * k + p]) : 0.0f;
            int64_t q = from + i / TILE, column = first_column + i % TILE;
            b[i / TILE][i % TILE] = q < k && column < n ? float(right[q * n + column]) : 0.0f;
        }
        __syncthreads();
        for (int p = 0; p < STEP; ++p)
            for (int i = 0; i < ROWS; ++i) sums[i] += a[threadIdx.y * ROWS + i][p] * b[p][threadIdx.x];
        __syncthreads();
    }
    int64_t column = first_column + threadIdx.x;
    for (int i = 0; i < ROWS; ++i) {
        int64_t row = first_row + threadIdx.y * ROWS + i;
        if (row < m && column < n) product[row * n + column] = z_t(sums[i]);
    }
}

__global__ void copy_z(const z_t* matrix, z_t* z, Modes rows, Modes columns) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x, width = columns.count();
    if (i >= rows.count() * width) return;
    int64_t at_row = rows.place((uint32_t)(i / width), rows.second);
    z[at_row + columns.place((uint32_t)(i % width), columns.second)] = matrix[i];
}

static unsigned blocks_for(int64_t elements) { return (unsigned)((elements + 255) / 256); }

static void contract(const x_t* x, const y_t* y, z_t* z, Modes rows, Modes columns, Modes terms, cudaStream_t stream) {
    int64_t m = rows.count(), n = columns.count(), k = terms.count();
    x_t* left;
    y_t* right;
    z_t* product;
    cudaMallocAsync((void**)&left, m * k * sizeof(x_t), stream);
    cudaMallocAsync((void**)&right, k * n * sizeof(y_t), stream);
    cudaMallocAsync((void**)&product, m * n * sizeof(z_t), stream);
    copy_x<<<blocks_for(m * k), 256, 0, stream>>>(x, left, rows, terms);
    copy_y<<<blocks_for(k * n), 256, 0, stream>>>(y, right, terms, columns);
    dim3 threads(TILE, TILE / ROWS), tiles((unsigned)((m + TILE - 1) / TILE), (unsigned)((n + TILE - 1) / TILE));
    multiply<<<tiles, threads, 0, stream>>>(left, right, product, m, n, k);
    copy_z<<<blocks_for(m * n), 256, 0, stream>>>(product, z, rows, columns);
    cudaFreeAsync(product, stream);
    cudaFreeAsync(right, stream);
    cudaFreeAsync(left, stream);
}

#if RANK == 3  // x[b][d][a] y[d][c] -> z[a][b][c]
extern "C" void solve(const x_t* x, const y_t* y, z_t* z, int64_t a, int64_t b, int64_t c, int64_t d,
                      cudaStream_t stream) {
    Modes rows = {{a, b, 1}, {1, d * a, 0}, {b * c, c, 0}};
    Modes columns = {{c, 1, 1}, {1, 0, 0}, {1, 0, 0}};
    Modes terms = {{d, 1, 1}, {a, 0, 0}, {c, 0, 0}};
    contract(x, y, z, rows, columns, terms, stream);
}
#elif RANK == 4  // x[a][e][b][f] y[d][f][c][e] -> z[a][b][c][d]
extern "C" void solve(const x_t* x, const y_t* y, z_t* z, int64_t a, int64_t b, int64_t c, int64_t d, int64_t e,
                      int64_t f, cudaStream_t stream) {
    Modes rows = {{a, b, 1}, {e * b * f, f, 0}, {b * c * d, c * d, 0}};
    Modes columns = {{c, d, 1}, {e, f * c * e, 0}, {d, 1, 0}};
    Modes terms = {{e, f, 1}, {b * f, 1, 0}, {1, c * e, 0}};
    contract(x, y, z, rows, columns, terms, stream);
}
#else  // x[d][e][g][a] y[g][f][b][c] -> z[a][b][c][d][e][f]
extern "C" void solve(const x_t* x, const y_t* y, z_t* z, int64_t a, int64_t b, int64_t c, int64_t d, int64_t e,
                      int64_t f, int64_t g, cudaStream_t stream) {
    Modes rows = {{a, d, e}, {1, e * g * a, g * a}, {b * c * d * e * f, e * f, f}};
    Modes columns = {{b, c, f}, {c, 1, b * c}, {c * d * e * f, d * e * f, 1}};
    Modes terms = {{g, 1, 1}, {a, 0, 0}, {f * b * c, 0, 0}};
    contract(x, y, z, rows, columns, terms, stream);
}
#endif
