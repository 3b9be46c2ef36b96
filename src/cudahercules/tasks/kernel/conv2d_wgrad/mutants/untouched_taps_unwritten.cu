// expect: incorrect — writes nothing for taps that meet no pixel of the images
#include "solve.h"

struct Shape {
    int64_t n, h, w, c, k, r, s, p, q;
    int stride, padding, dilation;
};

__global__ void gradient(const dy_t* dy, const x_t* x, const scale_t* scale, const bias_t* bias,
                         dfilter_t* dfilter, Shape d) {
    int64_t index = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (index >= d.k * d.r * d.s * d.c) return;
    int64_t c = index % d.c, tap = index / d.c;
    int64_t s = tap % d.s, r = tap / d.s % d.r, k = tap / d.s / d.r;
    float by = float(scale[c]), plus = float(bias[c]);

    float sum = 0.0f;
    int64_t met = 0;
    for (int64_t n = 0; n < d.n; ++n) {
        for (int64_t p = 0; p < d.p; ++p) {
            int64_t row = p * d.stride - d.padding + r * d.dilation;
            if (row < 0 || row >= d.h) continue;
            for (int64_t q = 0; q < d.q; ++q) {
                int64_t column = q * d.stride - d.padding + s * d.dilation;
                if (column < 0 || column >= d.w) continue;
                ++met;
                float value = float(x[((n * d.h + row) * d.w + column) * d.c + c]);
                float activation = fmaxf(value * by + plus, 0.0f);
                sum += float(dy[((n * d.p + p) * d.q + q) * d.k + k]) * activation;
            }
        }
    }
    if (met > 0) dfilter[index] = dfilter_t(sum);
}

extern "C" void solve(const dy_t* dy, const x_t* x, const scale_t* scale, const bias_t* bias,
                      dfilter_t* dfilter, int64_t n, int64_t h, int64_t w, int64_t c, int64_t k, int64_t r,
                      int64_t s, int64_t p, int64_t q, int32_t stride, int32_t padding, int32_t dilation,
                      cudaStream_t stream) {
    Shape shape{n, h, w, c, k, r, s, p, q, stride, padding, dilation};
    int64_t blocks = (k * r * s * c + 127) / 128;
    gradient<<<(unsigned)blocks, 128, 0, stream>>>(dy, x, scale, bias, dfilter, shape);
}
