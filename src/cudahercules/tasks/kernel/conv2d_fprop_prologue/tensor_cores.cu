// The convolution as a matrix product that is never written out (implicit GEMM), on tensor cores.
//
// A row of the left matrix is an output pixel, a column a tap and channel of the filter; its element is the
// element of x under that tap, or 0 in the padding. The right matrix is the filter as it lies in memory. A block
// owns 64 pixels and 32 filters; slices of 32 columns are gathered into shared memory, and each of four
// warps multiplies 16 pixels with all 32 filters. Sums stay in fp32 and leave through the same memory.
//
// A gathered element is scaled, shifted, rectified and rounded to fp16 on its way into shared memory; the padding is
// filled in after that, with 0.
#include <mma.h>

#include "solve.h"

using namespace nvcuda;

constexpr int PIXELS = 64, FILTERS = 32, SLICE = 32, THREADS = 128;
constexpr int PITCH = SLICE + 8;  // halves; keeps fragments' rows out of each other's banks

struct Shape {
    int64_t h, w, c, k, r, s, p, q, pixels;
    int stride, padding, dilation;
};

union Memory {
    struct {
        __half x[PIXELS][PITCH], filter[FILTERS][PITCH];
    } in;
    float out[PIXELS][FILTERS + 4];
};

// Where the window of an output pixel begins in x; images are stacked, so that `image` is its first row.
struct Window {
    int64_t image, row, column;
};

__global__ void __launch_bounds__(THREADS)
    convolve(const x_t* __restrict__ x, const scale_t* __restrict__ scale, const bias_t* __restrict__ bias,
             const filter_t* __restrict__ filter, y_t* __restrict__ y, Shape d) {
    __shared__ __align__(32) Memory memory;
    __shared__ Window windows[PIXELS];
    int thread = threadIdx.x, warp = thread / 32;
    int64_t first_pixel = (int64_t)blockIdx.x * PIXELS, first_filter = (int64_t)blockIdx.y * FILTERS;

    if (thread < PIXELS) {
        int64_t pixel = first_pixel + thread;
        int64_t column = pixel % d.q, row = pixel / d.q % d.p, image = pixel / d.q / d.p;
        bool inside = pixel < d.pixels;
        // A pixel past the end gets a window that lies outside the image altogether.
        windows[thread] = {image * d.h, inside ? row * d.stride - d.padding : d.h,
                           column * d.stride - d.padding};
    }

    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum[2];
    wmma::fill_fragment(sum[0], 0.0f);
    wmma::fill_fragment(sum[1], 0.0f);
    int64_t depth = d.r * d.s * d.c;
    int lane = thread % SLICE;  // the column of the slice that this thread gathers
    for (int64_t begin = 0; begin < depth; begin += SLICE) {
        int64_t at = begin + lane;
        int64_t c = at % d.c, row = at / d.c / d.s * d.dilation, column = at / d.c % d.s * d.dilation;
        float scale_here = float(scale[c]), bias_here = float(bias[c]);
        __syncthreads();
        for (int i = thread / SLICE; i < PIXELS; i += THREADS / SLICE) {
            int64_t y0 = windows[i].row + row, x0 = windows[i].column + column;
            bool inside = at < depth && y0 >= 0 && y0 < d.h && x0 >= 0 && x0 < d.w;
            float activation = 0.0f;
            if (inside) {
                float value = float(x[((windows[i].image + y0) * d.w + x0) * d.c + c]);
                activation = fmaxf(value * scale_here + bias_here, 0.0f);
            }
            memory.in.x[i][lane] = __half(activation);
        }
        for (int i = thread / SLICE; i < FILTERS; i += THREADS / SLICE) {
            bool inside = at < depth && first_filter + i < d.k;
            memory.in.filter[i][lane] = inside ? filter[(first_filter + i) * depth + at] : __half(0.0f);
        }
        __syncthreads();
        for (int part = 0; part < SLICE; part += 16) {
            wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> a;
            wmma::load_matrix_sync(a, &memory.in.x[warp * 16][part], PITCH);
            for (int half = 0; half < 2; ++half) {
                wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::col_major> b;
                wmma::load_matrix_sync(b, &memory.in.filter[half * 16][part], PITCH);
                wmma::mma_sync(sum[half], a, b, sum[half]);
            }
        }
    }
    __syncthreads();  // the slices are read: their memory takes the sums
    for (int half = 0; half < 2; ++half)
        wmma::store_matrix_sync(&memory.out[warp * 16][half * 16], sum[half], FILTERS + 4, wmma::mem_row_major);
    __syncthreads();
    for (int i = thread; i < PIXELS * FILTERS; i += THREADS) {
        int64_t pixel = first_pixel + i / FILTERS, k = first_filter + i % FILTERS;
        if (pixel < d.pixels && k < d.k) y[pixel * d.k + k] = y_t(memory.out[i / FILTERS][i % FILTERS]);
    }
}

extern "C" void solve(const x_t* x, const scale_t* scale, const bias_t* bias, const filter_t* filter, y_t* y,
                      int64_t n, int64_t h, int64_t w, int64_t c, int64_t k, int64_t r, int64_t s, int64_t p,
                      int64_t q, int32_t stride, int32_t padding, int32_t dilation, cudaStream_t stream) {
    Shape shape{h, w, c, k, r, s, p, q, n * p * q, stride, padding, dilation};
    dim3 blocks((unsigned)((shape.pixels + PIXELS - 1) / PIXELS), (unsigned)((k + FILTERS - 1) / FILTERS));
    convolve<<<blocks, THREADS, 0, stream>>>(x, scale, bias, filter, y, shape);
}
