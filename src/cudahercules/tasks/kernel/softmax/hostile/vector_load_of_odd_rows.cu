// expect: crash — reads rows in 16-byte vectors although rows of odd length do not begin at one
#include "solve.h"

#include <math_constants.h>

constexpr int VECTOR = 16 / sizeof(x_t);

struct alignas(16) Vector {
    x_t element[VECTOR];
};

__global__ void softmax(const x_t* x, y_t* y, int64_t rows, int64_t columns) {
    int64_t row = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (row >= rows) return;
    x += row * columns;
    y += row * columns;

    float largest = -CUDART_INF_F, sum = 0.0f;
    for (int64_t j = 0; j < columns; j += VECTOR) {
        Vector v = *reinterpret_cast<const Vector*>(x + j);
        for (int i = 0; i < VECTOR && j + i < columns; ++i) largest = fmaxf(largest, float(v.element[i]));
    }
    for (int64_t j = 0; j < columns; ++j) sum += expf(float(x[j]) - largest);
    for (int64_t j = 0; j < columns; ++j) y[j] = y_t(expf(float(x[j]) - largest) / sum);
}

extern "C" void solve(const x_t* x, y_t* y, int64_t rows, int64_t columns, cudaStream_t stream) {
    softmax<<<(unsigned)((rows + 127) / 128), 128, 0, stream>>>(x, y, rows, columns);
}
