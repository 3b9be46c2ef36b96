// expect: incorrect — subtracts the padding where it must be added
#include "solve.h"

struct Shape {
    int64_t n, h, w, c, k, r, s, p, q;
    int stride, padding, dilation;
};

__global__ void gradient(const dy_t* dy, const filter_t* filter, dx_t* dx, Shape d) {
    int64_t index = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (index >= d.n * d.h * d.w * d.c) return;
    int64_t c = index % d.c, pixel = index / d.c;
    int64_t column = pixel % d.w, row = pixel / d.w % d.h, n = pixel / d.w / d.h;

    float sum = 0.0f;
    for (int64_t r = 0; r < d.r; ++r) {
        int64_t p = row - d.padding - r * d.dilation;
        if (p < 0 || p % d.stride != 0) continue;
        p /= d.stride;
        if (p >= d.p) continue;
        for (int64_t s = 0; s < d.s; ++s) {
            int64_t q = column - d.padding - s * d.dilation;
            if (q < 0 || q % d.stride != 0) continue;
            q /= d.stride;
            if (q >= d.q) continue;
            const dy_t* from = dy + ((n * d.p + p) * d.q + q) * d.k;
            const filter_t* with = filter + (r * d.s + s) * d.c + c;
            for (int64_t k = 0; k < d.k; ++k) sum += float(from[k]) * float(with[k * d.r * d.s * d.c]);
        }
    }
    dx[index] = dx_t(sum);
}

extern "C" void solve(const dy_t* dy, const filter_t* filter, dx_t* dx, int64_t n, int64_t h, int64_t w,
                      int64_t c, int64_t k, int64_t r, int64_t s, int64_t p, int64_t q, int32_t stride,
                      int32_t padding, int32_t dilation, cudaStream_t stream) {
    Shape shape{n, h, w, c, k, r, s, p, q, stride, padding, dilation};
    int64_t blocks = (n * h * w * c + 255) / 256;
    gradient<<<(unsigned)blocks, 256, 0, stream>>>(dy, filter, dx, shape);
}
