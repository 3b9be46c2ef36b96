// expect: incorrect — divides by the root of LENGTH, as orthonormal transforms do
#include "solve.h"

using real = decltype(x_t::x);

constexpr int THREADS = LENGTH / 16 < 256 ? LENGTH / 16 : 256;

__device__ void turn(float fraction, float* sine, float* cosine) { sincospif(fraction, sine, cosine); }
__device__ void turn(double fraction, double* sine, double* cosine) { sincospi(fraction, sine, cosine); }

__device__ x_t plus(x_t a, x_t b) { return {a.x + b.x, a.y + b.y}; }
__device__ x_t minus(x_t a, x_t b) { return {a.x - b.x, a.y - b.y}; }
__device__ x_t times(x_t a, x_t b) { return {a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x}; }

// exp(-2 pi i k / length)
__device__ x_t twiddle(int k, int length) {
    x_t w;
    turn(real(-2 * k) / length, &w.y, &w.x);
    return w;
}

// Where the number at `at` belongs: its base-4 digits reversed, with a last digit of base 2 if there is one.
__device__ int frequency(int at) {
    int result = 0, weight = 1, rest = LENGTH;
    for (; rest >= 4; rest /= 4, weight *= 4) result += at / (rest / 4) % 4 * weight;
    return rest == 2 ? result + at % 2 * weight : result;
}

__global__ void __launch_bounds__(THREADS) transform(const x_t* x, y_t* y) {
    extern __shared__ __align__(16) unsigned char bytes[];
    x_t* v = reinterpret_cast<x_t*>(bytes);
    x += blockIdx.x * (int64_t)LENGTH;
    y += blockIdx.x * (int64_t)LENGTH;
    for (int i = threadIdx.x; i < LENGTH; i += THREADS) v[i] = x[i];
    __syncthreads();

    int q = LENGTH / 4;
    for (; q >= 1; q /= 4) {
        for (int i = threadIdx.x; i < LENGTH / 4; i += THREADS) {
            int k = i % q, at = (i - k) * 4 + k;
            x_t a = v[at], b = v[at + q], c = v[at + 2 * q], d = v[at + 3 * q];
            x_t even = plus(a, c), odd = plus(b, d), difference = minus(a, c), other = minus(b, d);
            x_t right = {other.y, -other.x};  // -i times (b - d)
            x_t w1 = twiddle(k, 4 * q), w2 = twiddle(2 * k, 4 * q), w3 = twiddle(3 * k, 4 * q);
            v[at] = plus(even, odd);
            v[at + q] = times(plus(difference, right), w1);
            v[at + 2 * q] = times(minus(even, odd), w2);
            v[at + 3 * q] = times(minus(difference, right), w3);
        }
        __syncthreads();
        if (q == 2) break;
    }
    if (q == 2) {
        for (int i = threadIdx.x; i < LENGTH / 2; i += THREADS) {
            x_t a = v[2 * i], b = v[2 * i + 1];
            v[2 * i] = plus(a, b);
            v[2 * i + 1] = minus(a, b);
        }
        __syncthreads();
    }
    for (int i = threadIdx.x; i < LENGTH; i += THREADS) {
        real scale = real(1) / sqrt(real(LENGTH));
        y[frequency(i)] = {v[i].x * scale, v[i].y * scale};
    }
}

extern "C" void solve(const x_t* x, y_t* y, int64_t batch, cudaStream_t stream) {
    int bytes = LENGTH * sizeof(x_t);
    cudaFuncSetAttribute(transform, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    transform<<<(unsigned)batch, THREADS, bytes, stream>>>(x, y);
}
