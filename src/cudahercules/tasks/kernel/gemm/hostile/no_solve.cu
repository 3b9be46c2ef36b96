// expect: build_error — includes solve.h but defines no function called solve
#include "solve.h"

__global__ void multiply(c_t* c) { c[0] = c_t(1.0f); }
