// Pixels of dx with the same residues of row and column modulo the stride meet the same taps: one product a class.
//
// With stride 2 there are four classes, and each tap belongs to one of them, so that nothing is multiplied that
// does not count. A block owns 64 pixels of one class and 32 channels of dx. For each tap of the class it
// multiplies, on tensor cores, 32 channels of dy at a time: rows are gathered from dy, with zeros beyond its edges,
// and the filter is read as it lies. Classes without a tap are written as zeros by the same code.
#include <mma.h>

#include "solve.h"

using namespace nvcuda;

constexpr int PIXELS = 64, CHANNELS = 32, SLICE = 32, THREADS = 128;
constexpr int PITCH = SLICE + 8;  // halves; keeps fragments' rows out of each other's banks

struct Shape {
    int64_t n, h, w, c, k, r, s, p, q;
    int stride, padding, dilation;
};

union Memory {
    struct {
        __half dy[PIXELS][PITCH], filter[SLICE][CHANNELS + 8];
    } in;
    float out[PIXELS][CHANNELS + 4];
};

// A pixel of dx, with the first row of its image in dy and in dx; images are stacked.
struct Pixel {
    int64_t row, column, dy_image, dx_image;
};

__global__ void __launch_bounds__(THREADS)
    gradient(const dy_t* __restrict__ dy, const filter_t* __restrict__ filter, dx_t* __restrict__ dx, Shape d) {
    __shared__ __align__(32) Memory memory;
    __shared__ Pixel pixels[PIXELS];
    int thread = threadIdx.x, warp = thread / 32;
    int64_t row0 = blockIdx.z / d.stride, column0 = blockIdx.z % d.stride;  // the class
    int64_t rows = (d.h - row0 + d.stride - 1) / d.stride, columns = (d.w - column0 + d.stride - 1) / d.stride;
    int64_t first_pixel = (int64_t)blockIdx.x * PIXELS, first_channel = (int64_t)blockIdx.y * CHANNELS;
    int64_t count = row0 < d.h && column0 < d.w ? d.n * rows * columns : 0;
    if (first_pixel >= count) return;

    if (thread < PIXELS) {
        int64_t pixel = first_pixel + thread < count ? first_pixel + thread : count - 1;  // the last one again
        int64_t n = pixel / columns / rows;
        pixels[thread] = {row0 + pixel / columns % rows * d.stride, column0 + pixel % columns * d.stride,
                          n * d.p, n * d.h};
    }

    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum[2];
    wmma::fill_fragment(sum[0], 0.0f);
    wmma::fill_fragment(sum[1], 0.0f);
    for (int64_t tap = 0; tap < d.r * d.s; ++tap) {
        int64_t up = tap / d.s * d.dilation - d.padding, left = tap % d.s * d.dilation - d.padding;
        if ((row0 - up) % d.stride != 0 || (column0 - left) % d.stride != 0) continue;
        for (int64_t begin = 0; begin < d.k; begin += SLICE) {
            int64_t k = begin + thread % SLICE;
            __syncthreads();
            for (int i = thread / SLICE; i < PIXELS; i += THREADS / SLICE) {
                int64_t p = (pixels[i].row - up) / d.stride, q = (pixels[i].column - left) / d.stride;
                bool inside = k < d.k && p >= 0 && p < d.p && q >= 0 && q < d.q;
                memory.in.dy[i][thread % SLICE] =
                    inside ? dy[((pixels[i].dy_image + p) * d.q + q) * d.k + k] : __half(0.0f);
            }
            for (int i = thread; i < SLICE * CHANNELS; i += THREADS) {
                int64_t from = begin + i / CHANNELS, c = first_channel + i % CHANNELS;
                memory.in.filter[i / CHANNELS][i % CHANNELS] =
                    from < d.k && c < d.c ? filter[(from * d.r * d.s + tap) * d.c + c] : __half(0.0f);
            }
            __syncthreads();
            for (int part = 0; part < SLICE; part += 16) {
                wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> a;
                wmma::load_matrix_sync(a, &memory.in.dy[warp * 16][part], PITCH);
                for (int half = 0; half < 2; ++half) {
                    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> b;
                    wmma::load_matrix_sync(b, &memory.in.filter[part][half * 16], CHANNELS + 8);
                    wmma::mma_sync(sum[half], a, b, sum[half]);
                }
            }
        }
    }
    __syncthreads();  // the slices are read: their memory takes the sums
    for (int half = 0; half < 2; ++half)
        wmma::store_matrix_sync(&memory.out[warp * 16][half * 16], sum[half], CHANNELS + 4, wmma::mem_row_major);
    __syncthreads();
    for (int i = thread; i < PIXELS * CHANNELS; i += THREADS) {
        int64_t c = first_channel + i % CHANNELS;
        if (first_pixel + i / CHANNELS >= count || c >= d.c) continue;
        const Pixel& at = pixels[i / CHANNELS];
        dx[((at.dx_image + at.row) * d.w + at.column) * d.c + c] = dx_t(memory.out[i / CHANNELS][i % CHANNELS]);
    }
}

extern "C" void solve(const dy_t* dy, const filter_t* filter, dx_t* dx, int64_t n, int64_t h, int64_t w,
                      int64_t c, int64_t k, int64_t r, int64_t s, int64_t p, int64_t q, int32_t stride,
                      int32_t padding, int32_t dilation, cudaStream_t stream) {
    Shape shape{n, h, w, c, k, r, s, p, q, stride, padding, dilation};
    int64_t largest = n * ((h + stride - 1) / stride) * ((w + stride - 1) / stride);  // class
    dim3 blocks((unsigned)((largest + PIXELS - 1) / PIXELS), (unsigned)((c + CHANNELS - 1) / CHANNELS),
                (unsigned)(stride * stride));
    gradient<<<blocks, THREADS, 0, stream>>>(dy, filter, dx, shape);
}
