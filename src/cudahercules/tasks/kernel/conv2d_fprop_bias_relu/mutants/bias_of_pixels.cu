// expect: incorrect — chooses the bias by the pixel's number instead of the filter's
#include "solve.h"

struct Shape {
    int64_t n, h, w, c, k, r, s, p, q;
    int stride, padding, dilation;
};

__global__ void convolve(const x_t* x, const filter_t* filter, const bias_t* bias, y_t* y, Shape d) {
    int64_t index = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (index >= d.n * d.p * d.q * d.k) return;
    int64_t k = index % d.k, pixel = index / d.k;
    int64_t q = pixel % d.q, p = pixel / d.q % d.p, n = pixel / d.q / d.p;

    float sum = 0.0f;
    for (int64_t r = 0; r < d.r; ++r) {
        int64_t row = p * d.stride - d.padding + r * d.dilation;
        if (row < 0 || row >= d.h) continue;
        for (int64_t s = 0; s < d.s; ++s) {
            int64_t column = q * d.stride - d.padding + s * d.dilation;
            if (column < 0 || column >= d.w) continue;
            const x_t* from = x + ((n * d.h + row) * d.w + column) * d.c;
            const filter_t* with = filter + ((k * d.r + r) * d.s + s) * d.c;
            for (int64_t c = 0; c < d.c; ++c) sum += float(from[c]) * float(with[c]);
        }
    }
    y[index] = y_t(fmaxf(sum + float(bias[pixel % d.k]), 0.0f));
}

extern "C" void solve(const x_t* x, const filter_t* filter, const bias_t* bias, y_t* y, int64_t n, int64_t h,
                      int64_t w, int64_t c, int64_t k, int64_t r, int64_t s, int64_t p, int64_t q,
                      int32_t stride, int32_t padding, int32_t dilation, cudaStream_t stream) {
    Shape shape{n, h, w, c, k, r, s, p, q, stride, padding, dilation};
    int64_t blocks = (n * p * q * k + 255) / 256;
    convolve<<<(unsigned)blocks, 256, 0, stream>>>(x, filter, bias, y, shape);
}
