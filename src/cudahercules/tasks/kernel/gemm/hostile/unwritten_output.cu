// expect: incorrect — launches nothing and hopes that the output already holds the answer
#include "solve.h"

extern "C" void solve(const a_t* a, const b_t* b, c_t* c, int64_t m, int64_t n, int64_t k,
                      cudaStream_t stream) {}
