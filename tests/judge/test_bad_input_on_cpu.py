"""Candidates that want to break the judge, source to verdict: each gets one that names what went wrong."""

from __future__ import annotations

import pytest

from cudahercules.judge.grade import grade
from cudahercules.judge.verdict import Verdict
from cudahercules.task.model import WorkloadRole

TASK = "kernel/softmax/fp32@general"

CODE = """#include "solve.h"
{device}
__global__ void attack(const x_t* x, y_t* y, int64_t n) {{ {body} }}
extern "C" void solve(const x_t* x, y_t* y, int64_t rows, int64_t columns, cudaStream_t stream) {{
    {launch}
}}
"""
LAUNCH = "attack<<<2, 64, 0, stream>>>(x, y, columns);"


def verdict_on(tmp_path, device: str = "", body: str = "y[0] = 0;", launch: str = LAUNCH) -> Verdict:
    source = tmp_path / "solution.cu"
    source.write_text(CODE.format(device=device, body=body, launch=launch))
    return grade(TASK, source, "cpu", roles=(WorkloadRole.SMOKE,), limit_s=2.0)


def test_endless_recursion(tmp_path):
    verdict = verdict_on(
        tmp_path,
        "__device__ __noinline__ float f(int n, volatile float* y) { return n < 0 ? 0 : f(n + 2, y) + *y; }",
        "y[threadIdx.x] = f(1, y);",
    )
    assert verdict.kind == "crash"
    assert "stack_overflow" in str(verdict) and "solution.cu:2" in str(verdict)


def test_two_to_the_forty_iterations(tmp_path):
    verdict = verdict_on(
        tmp_path,
        body="""unsigned long long h = n;
    for (unsigned long long i = 0; i < 1ull << 40; i++)
        h = h * 6364136223846793005ull + i;
    y[0] = h;""",
    )
    assert verdict.kind == "timeout"
    assert "did not end within 2 s at solution.cu:" in str(verdict)


def test_gigabytes_of_local_memory(tmp_path):
    verdict = verdict_on(tmp_path, body="volatile char mine[1u << 30]; mine[n] = 1; y[0] = mine[n + 1];")
    assert verdict.kind == "unsupported_on_cpu"
    assert "bytes of local memory in a thread, where 524288 is the most" in str(verdict)


@pytest.mark.parametrize("pointer", ["0x1234567", "(unsigned long long)y"])
def test_wild_function_pointers(tmp_path, pointer):
    verdict = verdict_on(tmp_path, "typedef float (*F)(float);", f"y[0] = ((F)({pointer}))(1.0f);")
    assert verdict.kind == "crash"
    assert "no device function" in str(verdict)


def test_a_block_of_too_many_threads(tmp_path):
    """All other shapes that no device takes: tests/record/contract.cases."""
    verdict = verdict_on(tmp_path, launch="attack<<<1, 1025, 0, stream>>>(x, y, columns);")
    assert verdict.kind == "contract_error"
    assert "attack" in str(verdict) and "1025" in str(verdict)


def test_gigabytes_of_scratch(tmp_path):
    launch = "void* p; cudaMallocAsync(&p, 20ull << 30, stream); attack<<<1, 1, 0, stream>>>(x, (y_t*)p, 1);"
    verdict = verdict_on(tmp_path, launch=launch)
    assert verdict.kind == "unsupported_on_cpu"
    assert "GiB of device memory" in str(verdict)
