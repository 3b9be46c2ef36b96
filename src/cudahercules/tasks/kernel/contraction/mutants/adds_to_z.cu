// expect: incorrect — adds to what Z holds before, which is poison
#include "solve.h"

struct Modes {
    // Distances in elements: of rows in X and Z, of columns in Y and Z, of terms in X and Y.
    int64_t extent[3], first[3], second[3];

    __host__ __device__ int64_t count() const { return extent[0] * extent[1] * extent[2]; }

    // Where the index-th value of the group lies in its two tensors; the last mode runs fastest.
    __device__ void locate(uint32_t index, int64_t* at_first, int64_t* at_second) const {
        for (int i = 2; i >= 0; --i) {
            uint32_t digit = index % (uint32_t)extent[i];
            index /= (uint32_t)extent[i];
            *at_first += digit * first[i];
            *at_second += digit * second[i];
        }
    }
};

__global__ void multiply(const x_t* x, const y_t* y, z_t* z, Modes rows, Modes columns, Modes terms) {
    int64_t column = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    int64_t row = (blockIdx.z * (int64_t)gridDim.y + blockIdx.y) * blockDim.y + threadIdx.y;
    if (row >= rows.count() || column >= columns.count()) return;
    int64_t at_x = 0, at_y = 0, at_z = 0;
    rows.locate((uint32_t)row, &at_x, &at_z);
    columns.locate((uint32_t)column, &at_y, &at_z);

    float sum = 0.0f;
    for (int64_t p = 0; p < terms.extent[0]; ++p)
        for (int64_t q = 0; q < terms.extent[1]; ++q)
            sum += float(x[at_x + p * terms.first[0] + q * terms.first[1]]) *
                   float(y[at_y + p * terms.second[0] + q * terms.second[1]]);
    z[at_z] = z_t(float(z[at_z]) + sum);
}

static void contract(const x_t* x, const y_t* y, z_t* z, Modes rows, Modes columns, Modes terms, cudaStream_t stream) {
    int64_t high = (rows.count() + 7) / 8, layers = (high + 32767) / 32768;
    dim3 threads(32, 8);
    dim3 blocks((unsigned)((columns.count() + 31) / 32), (unsigned)(high < 32768 ? high : 32768), (unsigned)layers);
    multiply<<<blocks, threads, 0, stream>>>(x, y, z, rows, columns, terms);
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
