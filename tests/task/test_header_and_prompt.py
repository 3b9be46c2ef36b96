"""solve.h and the prompt: right for every task, and nothing in them that must stay secret."""

import re
import shutil
import subprocess

import pytest

from cudahercules.task.header import solve_header
from cudahercules.task.load import all_tasks, load_task
from cudahercules.task.model import WorkloadRole
from cudahercules.task.prompt import prompt


def test_header_of_gemm():
    text = solve_header(load_task("gemm/fp32"))
    assert "#pragma once" in text
    assert "cuda_bf16.h" not in text
    declaration = " ".join(re.search(r'extern "C" void solve\((.*?)\);', text, re.S)[1].split())
    assert declaration == (
        "const a_t* a, const b_t* b, c_t* c, int64_t m, int64_t n, int64_t k, cudaStream_t stream"
    )
    assert "prepare" not in text


def test_header_of_layernorm():
    text = solve_header(load_task("layernorm_fwd/bf16_1024"))
    assert "#define HIDDEN 1024" in text
    assert "#include <cuda_bf16.h>" in text
    assert "using x_t = __nv_bfloat16;" in text
    assert "x       input, bf16[rows, HIDDEN], row-major" in text
    prepare = " ".join(re.search(r'extern "C" void prepare\((.*?)\);', text, re.S)[1].split())
    assert prepare == (
        "const weight_t* weight, const bias_t* bias, int64_t rows, float eps, cudaStream_t stream"
    )


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_header_compiles_without_a_warning_and_may_be_included_twice(tmp_path):
    (tmp_path / "solve.h").write_text(solve_header(load_task("rotary/hd64_halved@general")))
    (tmp_path / "unit.cu").write_text('#include "solve.h"\n#include "solve.h"\n')
    command = ["nvcc", "-std=c++17", "-arch=sm_80", "-Werror", "all-warnings", "-c", "unit.cu"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr


def test_prompt_says_what_a_model_must_know(each_task):
    text = prompt(each_task)
    assert solve_header(each_task) in text
    for phrase in ("CUDA 13.0", "sm_80", "read-only", "poison", "256-byte aligned"):
        assert phrase in text
    exact = all(bound.exact for bound in each_task.tolerance.values())
    assert ("every element must be equal" if exact else "relative L2 error") in text
    for workload in each_task.workloads_of(WorkloadRole.BENCH):
        assert workload.name in text
        assert all(str(v) in text for v in workload.dimensions.values())
    for output in each_task.outputs:
        assert f"{each_task.tolerance[output.name].l2:g}" in text
    assert "{" not in re.sub(r"`[^`]*`|```.*?```", "", text, flags=re.S)


def test_prompt_names_the_target():
    assert "H100/H200 (Hopper), built for sm_90a" in prompt(load_task("rotary/hd64_halved@hopper"))


@pytest.mark.parametrize("task", all_tasks(), ids=lambda t: t.id)
def test_prompt_leaks_nothing(task):
    text = prompt(task)
    secret = [w.name for w in task.workloads if w.role is not WorkloadRole.BENCH and len(w.name) > 6]
    secret += [e.name for e in task.experts] + [e.title for e in task.experts]
    secret += [m.reason for m in (*task.mutants, *task.hostile)]
    secret += ["float64", "numpy", "xp.", "seed", "mutant", task.provenance, str(task.directory)]
    for word in secret:
        assert word not in text, word
    family = (task.directory / "family.py").read_text()
    code = [line.strip() for line in family.splitlines() if line.startswith("    ") and "=" in line]
    assert not [line for line in code if line in text]


def test_the_prompt_states_the_part_of_a_bound_that_is_relative_to_an_element():
    assert "plus 0.009 times its own size." in prompt(load_task("kernel/softmax/bf16"))
    assert "times its own size" not in prompt(load_task("module/fft_c2c_1d/fp32_1024"))
