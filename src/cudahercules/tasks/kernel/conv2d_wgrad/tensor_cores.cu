// The gradient as a product, summed in pieces: dfilter (k by taps and channels) = dy^T times the windows of x.
//
// The sum goes over all output pixels and is long, the result is small; so blocks share the pixels as well as the
// result. Each block owns 32 filters, 64 columns (a tap and channel each) and one piece of the pixels, multiplies
// on tensor cores, 32 pixels at a time, and writes fp32 sums to scratch. A second kernel adds the pieces in a fixed
// order and rounds once. Windows are gathered into shared memory, activated on the way.
#include <mma.h>

#include "solve.h"

using namespace nvcuda;

constexpr int FILTERS = 32, COLUMNS = 64, SLICE = 32, THREADS = 128;
constexpr int PIECE = 512;  // pixels that a block sums, at least
constexpr int MOST_PIECES = 64;

struct Shape {
    int64_t h, w, c, k, r, s, p, q, pixels, piece;
    int stride, padding, dilation;
};

struct Window {
    int64_t image, row, column;
};

union Memory {
    struct {
        __half dy[SLICE][FILTERS + 8], t[SLICE][COLUMNS + 8];
    } in;
    float out[FILTERS][COLUMNS + 4];
};

__global__ void __launch_bounds__(THREADS)
    multiply(const dy_t* __restrict__ dy, const x_t* __restrict__ x, const scale_t* __restrict__ scale,
             const bias_t* __restrict__ bias, float* __restrict__ sums, Shape d) {
    __shared__ __align__(32) Memory memory;
    __shared__ Window windows[SLICE];
    int thread = threadIdx.x, warp = thread / 32;
    int64_t width = d.r * d.s * d.c;
    int64_t first_filter = (int64_t)blockIdx.x * FILTERS, first_column = (int64_t)blockIdx.y * COLUMNS;
    int64_t begin = blockIdx.z * d.piece, end = begin + d.piece < d.pixels ? begin + d.piece : d.pixels;

    // The column that this thread gathers, for the whole loop.
    int64_t at = first_column + thread % COLUMNS, c = at % d.c;
    int64_t row = at / d.c / d.s * d.dilation, column = at / d.c % d.s * d.dilation;
    float by = float(scale[c]), plus = float(bias[c]);

    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum[2];
    wmma::fill_fragment(sum[0], 0.0f);
    wmma::fill_fragment(sum[1], 0.0f);
    for (int64_t first = begin; first < end; first += SLICE) {
        __syncthreads();
        if (thread < SLICE) {
            int64_t pixel = first + thread, b = pixel % d.q, a = pixel / d.q % d.p, image = pixel / d.q / d.p;
            windows[thread] = {image * d.h, a * d.stride - d.padding, b * d.stride - d.padding};
        }
        for (int i = thread; i < SLICE * FILTERS; i += THREADS) {
            int64_t pixel = first + i / FILTERS, k = first_filter + i % FILTERS;
            memory.in.dy[i / FILTERS][i % FILTERS] = pixel < end && k < d.k ? dy[pixel * d.k + k] : __half(0.0f);
        }
        __syncthreads();
        for (int i = thread / COLUMNS; i < SLICE; i += THREADS / COLUMNS) {
            int64_t y0 = windows[i].row + row, x0 = windows[i].column + column;
            bool inside = first + i < end && at < width && y0 >= 0 && y0 < d.h && x0 >= 0 && x0 < d.w;
            float activation = 0.0f;
            if (inside) {
                float value = float(x[((windows[i].image + y0) * d.w + x0) * d.c + c]);
                activation = fmaxf(value * by + plus, 0.0f);
            }
            memory.in.t[i][thread % COLUMNS] = __half(activation);
        }
        __syncthreads();
        for (int part = 0; part < SLICE; part += 16) {
            wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> b;
            wmma::load_matrix_sync(b, &memory.in.t[part][warp * 16], COLUMNS + 8);
            for (int half = 0; half < 2; ++half) {
                wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::col_major> a;
                wmma::load_matrix_sync(a, &memory.in.dy[part][half * 16], FILTERS + 8);
                wmma::mma_sync(sum[half], a, b, sum[half]);
            }
        }
    }
    __syncthreads();  // the slices are read: their memory takes the sums
    for (int half = 0; half < 2; ++half)
        wmma::store_matrix_sync(&memory.out[half * 16][warp * 16], sum[half], COLUMNS + 4, wmma::mem_row_major);
    __syncthreads();
    for (int i = thread; i < FILTERS * COLUMNS; i += THREADS) {
        int64_t k = first_filter + i / COLUMNS, to = first_column + i % COLUMNS;
        if (k < d.k && to < width) sums[(blockIdx.z * d.k + k) * width + to] = memory.out[i / COLUMNS][i % COLUMNS];
    }
}

__global__ void add(const float* sums, dfilter_t* dfilter, int64_t size, int pieces) {
    int64_t index = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (index >= size) return;
    float total = 0.0f;
    for (int piece = 0; piece < pieces; ++piece) total += sums[piece * size + index];
    dfilter[index] = dfilter_t(total);
}

extern "C" void solve(const dy_t* dy, const x_t* x, const scale_t* scale, const bias_t* bias,
                      dfilter_t* dfilter, int64_t n, int64_t h, int64_t w, int64_t c, int64_t k, int64_t r,
                      int64_t s, int64_t p, int64_t q, int32_t stride, int32_t padding, int32_t dilation,
                      cudaStream_t stream) {
    int64_t pixels = n * p * q, size = k * r * s * c;
    int64_t pieces = (pixels + PIECE - 1) / PIECE;
    if (pieces > MOST_PIECES) pieces = MOST_PIECES;
    int64_t piece = ((pixels + pieces - 1) / pieces + SLICE - 1) / SLICE * SLICE;
    pieces = (pixels + piece - 1) / piece;
    Shape shape{h, w, c, k, r, s, p, q, pixels, piece, stride, padding, dilation};

    float* sums;
    cudaMallocAsync((void**)&sums, pieces * size * sizeof(float), stream);
    dim3 blocks((unsigned)((k + FILTERS - 1) / FILTERS), (unsigned)((r * s * c + COLUMNS - 1) / COLUMNS),
                (unsigned)pieces);
    multiply<<<blocks, THREADS, 0, stream>>>(dy, x, scale, bias, sums, shape);
    add<<<(unsigned)((size + 255) / 256), 256, 0, stream>>>(sums, dfilter, size, (int)pieces);
    cudaFreeAsync(sums, stream);
}
