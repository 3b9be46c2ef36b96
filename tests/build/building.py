"""Candidates for the tests of the build stage, and one call that compiles text."""

from __future__ import annotations

from cudahercules.build.artifact import Artifact, BuildFailure
from cudahercules.build.candidate import from_text
from cudahercules.build.compile import compile_candidate
from cudahercules.process import Limits
from cudahercules.task.model import LibraryPolicy

HEADER = """#pragma once
#include <cuda_runtime.h>
#include <cstdint>
using x_t = float;
extern "C" void solve(const x_t* x,
                      x_t* y, int64_t n, cudaStream_t stream);
extern "C" void prepare(const x_t* x, int64_t n, cudaStream_t stream);
"""

ORDINARY = """#include "solve.h"
static __device__ int counter[4];
__device__ double start[2] = {1.0, 2.0};
__constant__ float scale[8] = {2.0f};
namespace {
__global__ void __launch_bounds__(256) multiply(const float* x, float* y, int64_t n) {
  __shared__ float tile[256];
  int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  tile[threadIdx.x] = i < n ? x[i] : 0.0f;
  __syncthreads();
  if (i < n) y[i] = tile[threadIdx.x ^ 1] * scale[i & 7] + counter[i & 3] + start[i & 1];
}
}  // namespace
const char* where() { return __FILE__; }
void prepare(const x_t*, int64_t, cudaStream_t) {}
void solve(const x_t* x, x_t* y, int64_t n, cudaStream_t stream) {
  multiply<<<(n + 255) / 256, 256, 0, stream>>>(x, y, n);
}
"""

SOLVE = "void solve(const x_t* x, x_t* y, int64_t n, cudaStream_t stream)"
EMPTY = f"{SOLVE} {{}}\n"

BOMB = f"""
template <int N, int M> struct F {{
  static constexpr long v = F<N - 1, 2 * M>::v + F<N - 1, 2 * M + 1>::v;
}};
template <int M> struct F<0, M> {{ static constexpr long v = 1; }};
long v = F<24, 1>::v;
{EMPTY}"""
"""Millions of instantiations: the compiler needs minutes and gigabytes."""


def compile_text(
    source: str | dict[str, str],
    *,
    policy: LibraryPolicy = LibraryPolicy.RUNTIME,
    architecture: str = "80",
    limits: Limits | None = None,
    header: str = HEADER,
) -> Artifact | BuildFailure:
    files = {"solution.cu": source} if isinstance(source, str) else source
    return compile_candidate(from_text("solution.cu", files), header, policy, architecture, limits=limits)


def refused(source: str | dict[str, str], **options) -> BuildFailure:
    """The failure that ``source`` ends in."""
    failure = compile_text(source, **options)
    assert isinstance(failure, BuildFailure), failure
    return failure
