"""Small candidates for ``kernel/gemm``, as text."""

from __future__ import annotations

TASK = "kernel/gemm/fp32@general"

SIGNATURE = """extern "C" void solve(const a_t* a, const b_t* b, c_t* c, int64_t m, int64_t n, int64_t k,
                      cudaStream_t stream)"""


def candidate(kernel: str, host: str, before: str = "") -> str:
    """Source of a candidate: ``kernel`` is the body of ``multiply(a, b, c, m, n, k)``, one thread an
    element of C in blocks of 128; ``host`` is the body of ``solve``."""
    return f"""#include "solve.h"
{before}
__global__ void multiply(const a_t* a, const b_t* b, c_t* c, int64_t m, int64_t n, int64_t k) {{
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    {kernel}
}}

{SIGNATURE} {{
    {host}
}}
"""


LAUNCH = "multiply<<<(m * n + 127) / 128, 128, 0, stream>>>(a, b, c, m, n, k);"
PRODUCT = """if (i >= m * n) return;
    float sum = 0;
    for (int64_t p = 0; p < k; ++p) sum += a[i / n * k + p] * b[p * n + i % n];
    c[i] = sum;"""
