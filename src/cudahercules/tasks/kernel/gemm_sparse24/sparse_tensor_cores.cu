// Sparse tensor cores: mma.sp takes the two values of each four and their places, two bits each.
//
// `prepare` turns patterns into those places once: a 32-bit word for every eight rows' pair of rows and every 16
// elements along k, in the order in which lanes want them. A warp computes 16 outputs by 8 tokens; fragments of
// values and activations are pairs of neighbours in memory and are loaded directly.
#include "solve.h"

constexpr int WARPS = 4;

static uint32_t* places;  // [tile of 16 outputs][step of 32 along k][row of 8][half of the step]

// Places of the two values as four bits, the first in the low two.
__device__ uint32_t place_bits(int pattern) { return 0xED9C84u >> pattern * 4 & 15; }

__global__ void make_places(const pattern_t* pattern, uint32_t* places, int64_t outputs, int64_t quads, int64_t steps,
                            int64_t count) {
    int64_t index = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (index >= count) return;
    int64_t half = index % 2, row = index / 2 % 8, step = index / 16 % steps, tile = index / 16 / steps;
    uint32_t word = 0;
    for (int i = 0; i < 8; ++i) {
        int64_t output = tile * 16 + row + i / 4 * 8, q = step * 8 + half * 4 + i % 4;
        bool inside = output < outputs && q < quads;
        word |= place_bits(inside ? pattern[output * quads + q] : 0) << i * 4;
    }
    places[index] = word;
}

__device__ uint32_t pair(const __half* from, bool inside) { return inside ? *(const uint32_t*)from : 0; }

__global__ void __launch_bounds__(WARPS * 32) multiply(const x_t* x, const value_t* value, const uint32_t* places,
                                                       y_t* y, int64_t tokens, int64_t outputs, int64_t quads,
                                                       int64_t steps) {
    int lane = threadIdx.x % 32, group = lane / 4, within = lane % 4;
    int64_t tile = blockIdx.x * (int64_t)WARPS + threadIdx.x / 32;
    int64_t output = tile * 16 + group, token = blockIdx.y * (int64_t)8 + group;
    if (tile * 16 >= outputs) return;
    bool upper = output < outputs, lower = output + 8 < outputs, real = token < tokens;
    const value_t* first = value + (upper ? output : 0) * quads * 2;
    const value_t* second = value + (lower ? output + 8 : 0) * quads * 2;
    const x_t* activations = x + (real ? token : 0) * quads * 4;

    float sum[4] = {};
    for (int64_t step = 0; step < steps; ++step) {
        uint32_t a[4], b[4], e = places[((tile * steps + step) * 8 + group) * 2 + within % 2];
        for (int i = 0; i < 2; ++i) {  // values of quad `q`, the step's quads 0 .. 3 and 4 .. 7
            int64_t q = step * 8 + i * 4 + within;
            a[i * 2] = pair(first + q * 2, upper && q < quads);
            a[i * 2 + 1] = pair(second + q * 2, lower && q < quads);
        }
        for (int i = 0; i < 4; ++i) {
            int64_t p = step * 32 + i * 8 + within * 2;
            b[i] = pair(activations + p, real && p < quads * 4);
        }
        asm volatile("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
                     "{%8,%9,%10,%11}, {%0,%1,%2,%3}, %12, 0x0;"
                     : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(e));
    }
    for (int i = 0; i < 4; ++i) {
        int64_t column = blockIdx.y * (int64_t)8 + within * 2 + i % 2;
        if ((i < 2 ? upper : lower) && column < tokens) y[column * outputs + output + i / 2 * 8] = y_t(sum[i]);
    }
}

extern "C" void prepare(const value_t* value, const pattern_t* pattern, int64_t tokens, int64_t outputs,
                        int64_t quads, cudaStream_t stream) {
    int64_t steps = (quads + 7) / 8, count = (outputs + 15) / 16 * steps * 16;
    cudaMalloc((void**)&places, count * sizeof(uint32_t));
    make_places<<<(unsigned)((count + 255) / 256), 256, 0, stream>>>(pattern, places, outputs, quads, steps, count);
}

extern "C" void solve(const x_t* x, const value_t* value, const pattern_t* pattern, y_t* y, int64_t tokens,
                      int64_t outputs, int64_t quads, cudaStream_t stream) {
    int64_t tiles = (outputs + 15) / 16, steps = (quads + 7) / 8;
    dim3 blocks((unsigned)((tiles + WARPS - 1) / WARPS), (unsigned)((tokens + 7) / 8));
    multiply<<<blocks, WARPS * 32, 0, stream>>>(x, value, places, y, tokens, outputs, quads, steps);
}
