// expect: contract_error — asks for 100 KB of dynamic shared memory without the attribute that allows it
#include "solve.h"

__global__ void multiply(c_t* c) {
    extern __shared__ float tile[];
    tile[threadIdx.x] = 0.0f;
    c[threadIdx.x] = c_t(tile[threadIdx.x]);
}

extern "C" void solve(const a_t* a, const b_t* b, c_t* c, int64_t m, int64_t n, int64_t k,
                      cudaStream_t stream) {
    multiply<<<1, 32, 100 << 10, stream>>>(c);
}
