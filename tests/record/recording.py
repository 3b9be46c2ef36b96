"""One artifact with many small solves for the recorder's tests.

Each snippet becomes a case of one ``solve``; a workload's dimension ``which`` selects it. So all
features and refusals cost one compilation.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from cudahercules.build.artifact import Artifact
from cudahercules.build.candidate import from_text
from cudahercules.build.compile import compile_candidate
from cudahercules.measure.profiles import load_profile
from cudahercules.record.plan import LaunchPlan
from cudahercules.record.recorder import LIMITS, RecordFailure, record
from cudahercules.task.model import (
    DType,
    LibraryPolicy,
    Role,
    Scalar,
    Target,
    Task,
    TaskClass,
    Tensor,
    Workload,
    WorkloadRole,
)

HEADER = """#pragma once
#include <cuda_runtime.h>
#include <cuda.h>
#include <cstdint>
extern "C" void solve(const float* a, const float* w, float* c, float* d, int64_t n, int64_t which,
                      int32_t count, float alpha, double beta, cudaStream_t stream);
extern "C" void prepare(const float* w, int64_t n, int64_t which, int32_t count, float alpha, double beta,
                        cudaStream_t stream);
"""
SIGNATURE = (
    "const float* a, const float* w, float* c, float* d, int64_t n, int64_t which, int32_t count, float alpha, "
    "double beta, cudaStream_t stream"
)


def make_task(cases: tuple[str, ...]) -> Task:
    """A task with one workload a case; a, w inputs, c output, d inout, all of n floats."""

    def tensor(name: str, role: Role) -> Tensor:
        return Tensor(name=name, role=role, dtype=DType.FP32, shape=("n",))

    return Task(
        id="kernel/recorder/cases@hopper",
        family="kernel/recorder",
        member="cases",
        task_class=TaskClass.KERNEL,
        target=Target.HOPPER,
        title="",
        domain="",
        directory=Path("."),
        prompt_text="",
        constants={},
        dimensions=("n", "which"),
        tensors=(
            tensor("a", Role.IN),
            tensor("w", Role.WEIGHT),
            tensor("c", Role.OUT),
            tensor("d", Role.INOUT),
        ),
        scalars=(
            Scalar(name="count", type="int32"),
            Scalar(name="alpha", type="float"),
            Scalar(name="beta", type="double"),
        ),
        workloads=tuple(
            Workload(
                name=name,
                role=WorkloadRole.SMOKE,
                dimensions={"n": 1000, "which": number},
                scalars={"count": -7, "alpha": 1.5, "beta": 0.25},
            )
            for number, name in enumerate(cases, 1)
        ),
        tolerance={},
        release="0",
    )


def source_of(common: str, cases: dict[str, str], prepare: str = "") -> str:
    """One translation unit: ``common`` text, a function a case, and the ``solve`` that selects."""
    functions = "\n".join(f"static void case_{name}({SIGNATURE}) {{\n{code}\n}}" for name, code in cases.items())
    selected = "\n".join(
        f"  case {number}: return case_{name}(a, w, c, d, n, which, count, alpha, beta, stream);"
        for number, name in enumerate(cases, 1)
    )
    text = f'#include "solve.h"\n{common}\n{functions}\nvoid solve({SIGNATURE}) {{\n  switch (which) {{\n{selected}\n  }}\n}}\n'
    if prepare:
        text += (
            "void prepare(const float* w, int64_t n, int64_t which, int32_t count, float alpha, double beta,\n"
            f"             cudaStream_t stream) {{\n{prepare}\n}}\n"
        )
    return text


class Bench:
    """The compiled cases and their recordings."""

    def __init__(
        self,
        common: str,
        cases: dict[str, str],
        prepare: str = "",
        architecture: str = "90a",
        policy: LibraryPolicy = LibraryPolicy.RUNTIME,
    ):
        self.task = make_task(tuple(cases))
        candidate = from_text("cases.cu", {"cases.cu": source_of(common, cases, prepare)})
        built = compile_candidate(candidate, HEADER, policy, architecture)
        assert isinstance(built, Artifact), built
        self.artifact: Artifact = built
        self.profile = load_profile(architecture)
        self._plans: dict[str, LaunchPlan | RecordFailure] = {}

    def record(self, name: str, **changes) -> LaunchPlan | RecordFailure:
        """A fresh recording of case ``name``; ``changes`` replace fields of the limits."""
        from dataclasses import replace

        workload = next(w for w in self.task.workloads if w.name == name)
        return record(self.artifact, self.task, workload, self.profile, replace(LIMITS, **changes))

    def plan(self, name: str) -> LaunchPlan:
        if name not in self._plans:
            self._plans[name] = self.record(name)
        plan = self._plans[name]
        assert isinstance(plan, LaunchPlan), plan
        return plan

    def failure(self, name: str, **changes) -> RecordFailure:
        failure = self.record(name, **changes)
        assert isinstance(failure, RecordFailure), failure
        return failure


@cache
def bench(common: str, cases: tuple[tuple[str, str], ...], prepare: str = "", architecture: str = "90a") -> Bench:
    return Bench(common, dict(cases), prepare, architecture)


COMMON = r"""
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <csignal>
#include <unistd.h>
#include <dlfcn.h>
__device__ float table[64];
__constant__ float fixed[32];
__device__ const float* pointers[4];
struct Mixed { char tag; const float* in; float factor; };
__global__ void add(const float* x, float* y, int64_t n) {
  int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
  if (i < n) y[i] += x[i] + table[i & 63] + fixed[i & 31] + *pointers[i & 3];
}
__global__ void mixed(Mixed m, char c, double* out) { *out = m.factor + m.tag + c + *m.in; }
__global__ void __launch_bounds__(128) bounded(float* y) { y[threadIdx.x] = 1; }
__global__ void dynamic(float* y) { extern __shared__ float s[]; s[threadIdx.x] = 1; __syncthreads(); y[threadIdx.x] = s[threadIdx.x ^ 1]; }
__global__ void nothing() {}
__global__ void __cluster_dims__(2, 1, 1) fixed_cluster(float* y) { y[blockIdx.x] = 1; }
__global__ void scalars(float* y, int32_t count, float alpha, double beta) { *y = count + alpha + beta; }
__global__ void mapped(const __grid_constant__ CUtensorMap m, float* y) { *y = (float)(size_t)&m; }
__constant__ CUtensorMap constant_map;
static void ok(cudaError_t e) { if (e != cudaSuccess) { fprintf(stderr, "%s\n", cudaGetErrorName(e)); abort(); } }
static cudaLaunchConfig_t config(dim3 grid, dim3 block, cudaStream_t s, cudaLaunchAttribute* attrs, int count, size_t shared = 0) {
  cudaLaunchConfig_t c = {};
  c.gridDim = grid; c.blockDim = block; c.stream = s; c.attrs = attrs; c.numAttrs = count; c.dynamicSmemBytes = shared;
  return c;
}
typedef CUresult (*Encode)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*,
  const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
static CUresult encode(CUtensorMap* m, const float* base, cuuint32_t box) {
  void* f = nullptr;
  cudaDriverEntryPointQueryResult r;
  ok(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &f, 12000, cudaEnableDefault, &r));
  cuuint64_t dims[2] = {32, 30}, strides[1] = {128};
  cuuint32_t boxes[2] = {box, 8}, steps[2] = {1, 1};
  return ((Encode)f)(m, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, (void*)base, dims, strides, boxes, steps,
    CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}
"""
