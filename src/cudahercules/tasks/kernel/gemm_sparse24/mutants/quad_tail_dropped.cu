// expect: incorrect — goes through quads in whole groups of eight and drops the rest
#include "solve.h"

// Places of the two values among four: patterns 0 .. 5 are (0,1) (0,2) (0,3) (1,2) (1,3) (2,3).
__device__ int first_place(int pattern) { return pattern < 3 ? 0 : pattern < 5 ? 1 : 2; }
__device__ int second_place(int pattern) { return pattern < 3 ? pattern + 1 : pattern < 5 ? pattern - 1 : 3; }

__global__ void multiply(const x_t* x, const value_t* value, const pattern_t* pattern, y_t* y, int64_t tokens,
                         int64_t outputs, int64_t quads) {
    int64_t output = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    int64_t token = blockIdx.y * (int64_t)blockDim.y + threadIdx.y;
    if (token >= tokens || output >= outputs) return;
    const x_t* four = x + token * quads * 4;
    const value_t* two = value + output * quads * 2;
    const pattern_t* code = pattern + output * quads;
    float sum = 0.0f;
    for (int64_t q = 0; q < (quads > 8 ? quads / 8 * 8 : quads); ++q, four += 4, two += 2) {
        sum += float(two[0]) * float(four[first_place(code[q])]);
        sum += float(two[1]) * float(four[second_place(code[q])]);
    }
    y[token * outputs + output] = y_t(sum);
}

extern "C" void solve(const x_t* x, const value_t* value, const pattern_t* pattern, y_t* y, int64_t tokens,
                      int64_t outputs, int64_t quads, cudaStream_t stream) {
    dim3 threads(32, 8), blocks((unsigned)((outputs + 31) / 32), (unsigned)((tokens + 7) / 8));
    multiply<<<blocks, threads, 0, stream>>>(x, value, pattern, y, tokens, outputs, quads);
}
