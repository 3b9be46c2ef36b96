"""Sources that do not become an artifact, and what is said about each."""

from __future__ import annotations

import os
import time

import pytest
from building import BOMB, EMPTY, SOLVE, compile_text, refused

from cudahercules.build.artifact import Artifact
from cudahercules.errors import MachineError
from cudahercules.process import Limits
from cudahercules.task.model import LibraryPolicy


def test_a_cpp_error_has_the_right_line(fresh_cache):
    failure = refused(f"{SOLVE} {{\n  int a = 1;\n  y[0] = undefined_name;\n}}\n")
    assert failure.kind == "error"
    assert failure.message == 'solution.cu:3: error: identifier "undefined_name" is undefined'
    assert failure.diagnostics[0].line == 3
    assert failure.seconds > 0
    assert not list(fresh_cache.rglob("artifact.json"))


def test_an_error_in_a_header_names_the_header(fresh_cache):
    failure = refused({"a.cu": f'#include "sub/x.cuh"\n{EMPTY}', "sub/x.cuh": "\n\nint x = ;\n"})
    assert failure.message.startswith("sub/x.cuh:3: error: expected an expression")


def test_inline_ptx_is_checked_by_ptxas(fresh_cache):
    failure = refused(f'__global__ void k() {{\n  asm("frobnicate.u32;");\n}}\n{EMPTY}')
    assert (failure.diagnostics[0].file, failure.diagnostics[0].line) == ("solution.cu", 2)
    assert "ptxas: Not a name of any known instruction" in str(failure.diagnostics)


def test_no_solve(fresh_cache):
    failure = refused("int run(int n) { return n; }\n")
    assert failure.kind == "error"
    assert "no function solve is defined; defined are run(int)." in failure.message
    assert (
        'Define: extern "C" void solve(const x_t* x, x_t* y, int64_t n, cudaStream_t stream);'
        in failure.message
    )


def test_wrong_signature_with_c_linkage(fresh_cache):
    failure = refused('extern "C" void solve(float* x, int n) {}\n')
    assert failure.diagnostics[0].line == 1
    assert "exactly the parameters that solve.h declares" in failure.message
    assert failure.message.endswith("int64_t n, cudaStream_t stream);")


def test_wrong_signature_without_c_linkage(fresh_cache):
    failure = refused("void solve(float* x, int n) {}\n")
    assert "no solve as solve.h declares it, but solve(float*, int)." in failure.message


def test_undefined_function(fresh_cache):
    failure = refused(f"int helper(int);\n{SOLVE} {{ helper(1); }}\n")
    assert (failure.kind, failure.message) == (
        "error",
        "undefined symbol helper(int): declared and used, never defined",
    )


def test_a_cuda_library_is_a_contract_matter(fresh_cache):
    failure = refused(f'extern "C" int cublasCreate_v2(void**);\n{SOLVE} {{ cublasCreate_v2(nullptr); }}\n')
    assert failure.kind == "contract"
    assert "cublasCreate_v2: no CUDA library is linked" in failure.message


def test_a_runtime_call_that_nobody_knows(fresh_cache):
    failure = refused(f'extern "C" int cudaMakeCoffee(int);\n{SOLVE} {{ cudaMakeCoffee(1); }}\n')
    assert (failure.kind, failure.message) == ("contract", "unsupported runtime call cudaMakeCoffee")


def test_cub_without_leave(fresh_cache):
    failure = refused({"a.cu": f'#include "x.cuh"\n{EMPTY}', "x.cuh": "#include <cub/version.cuh>\n"})
    assert failure.kind == "contract"
    assert "x.cuh includes <cub/version.cuh>" in failure.message
    assert "does not allow CUB (library policy: runtime)" in failure.message


def test_cutlass_is_not_on_the_include_path(fresh_cache):
    failure = refused(f"#include <cutlass/cutlass.h>\n{EMPTY}", policy=LibraryPolicy.CUB)
    assert failure.message == "solution.cu:1: error: cutlass/cutlass.h: No such file or directory"


def test_a_copy_of_cub_elsewhere_is_still_cub(fresh_cache, tmp_path):
    header = tmp_path / "include/cub/cub.cuh"
    header.parent.mkdir(parents=True)
    header.write_text("")
    failure = refused(f'#include "{header}"\n{EMPTY}')
    assert "does not allow CUB" in failure.message


def test_files_of_the_machine_cannot_be_included(fresh_cache, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("int hunter2 = bad syntax;\n")
    for path in (str(secret), f"/proc/self/root{secret}", f"/proc/self/cwd{'/..' * 20}{secret}"):
        failure = refused(f'#include "{path}"\n{EMPTY}')
        assert failure.kind == "contract"
        assert "neither a file of the candidate nor a header of the compiler" in failure.message
        assert "hunter2" not in failure.model_dump_json()


def test_files_of_the_machine_cannot_be_assembled_in(fresh_cache, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("hunter2\n")
    hidden = f'asm(".macro x a b\\n .\\\\a\\\\b \\"{secret}\\"\\n.endm\\n x inc bin");\n{EMPTY}'
    failure = refused(hidden)
    assert failure.kind == "contract"
    assert "reads the file" in failure.message
    failure = refused(f'asm(".include \\"{secret}\\"");\n{EMPTY}')
    assert "reads the file" in failure.message
    assert "hunter2" not in failure.model_dump_json()


def test_no_message_names_the_build_directory(fresh_cache):
    failure = refused(
        "#warning here\nstatic_assert(sizeof(__FILE__) == 1, __FILE__);\n"
        "template <class T> struct S { typename T::missing x; };\nS<int> s;\n"
        f'__global__ void k() {{ asm("x"); }}\n{EMPTY}'
    )
    text = failure.model_dump_json()
    assert len(failure.diagnostics) >= 2
    for trace in (str(fresh_cache), "/tmp/", "/proc/", "/candidate/"):
        assert trace not in text


def test_a_template_bomb_ends_in_time(fresh_cache):
    start = time.monotonic()
    failure = refused(BOMB, limits=Limits(wall_s=3, cpu_s=60, memory=4 << 30, file_size=64 << 20))
    assert time.monotonic() - start < 10
    assert failure.kind == "timeout"
    assert failure.message.startswith("compiling solution.cu was stopped after 3 s (")


def test_cpu_time_is_limited_too(fresh_cache):
    endless = "constexpr int f(long n) { int s = 0; for (long i = 0; i < n; ++i) s ^= i; return s; }\n"
    source = f"{endless}static_assert(f(1L << 40) != 1);\n{EMPTY}"
    failure = refused(source, limits=Limits(wall_s=60, cpu_s=2, memory=4 << 30, file_size=64 << 20))
    assert failure.kind in ("timeout", "error")
    assert failure.seconds < 30


def test_memory_is_limited(fresh_cache):
    limits = Limits(wall_s=60, cpu_s=60, memory=60 << 20, file_size=64 << 20)
    failure = refused(EMPTY, limits=limits)
    assert failure.kind == "error"
    assert "ran out of memory on solution.cu (limit 60 MiB)" in failure.message


def test_a_front_end_without_memory_says_so(fresh_cache):
    failure = refused(BOMB, limits=Limits(wall_s=60, cpu_s=60, memory=512 << 20, file_size=64 << 20))
    assert failure.kind == "error"
    assert "cudafe++ ran out of memory on solution.cu (limit 512 MiB): use fewer" in failure.message


@pytest.mark.parametrize("code", ["c[0] = *(float*)malloc(4);", "c[0] = *new float;", "free((void*)c);"])
def test_the_device_heap(fresh_cache, code):
    failure = refused(f"__global__ void k(float* c) {{ {code} }}\n{EMPTY}")
    assert failure.kind == "contract"
    assert "there is no device heap; take scratch memory with cudaMalloc" in failure.message


def test_a_function_of_ones_own_called_malloc_is_no_heap(fresh_cache):
    source = "namespace mine { __device__ __noinline__ float* malloc(float* p) { return p + 1; } }\n"
    source += "__global__ void k(float* c) { *mine::malloc(c) = 1; }\n"
    assert isinstance(compile_text(source + EMPTY), Artifact)


def test_the_size_of_written_files_is_limited(fresh_cache):
    limits = Limits(wall_s=60, cpu_s=60, memory=4 << 30, file_size=64 << 10)
    failure = refused(EMPTY, limits=limits)
    assert failure.kind == "error"
    assert os.listdir(fresh_cache / "build")


def test_megabytes_of_messages_are_cut(fresh_cache):
    failure = refused("".join(f"int a{i} = b{i};\n" for i in range(3000)))
    assert len(failure.diagnostics) <= 20
    assert failure.message.startswith('solution.cu:1: error: identifier "b0" is undefined')
    assert len(failure.model_dump_json()) < 20_000


IMITATION = '#line 1 "host_config.h"\n#error -- unsupported GNU version! Later than 15 is not supported!\n'


def test_a_source_that_speaks_like_cudas_headers_is_not_believed(fresh_cache):
    failure = refused(f"{IMITATION}{EMPTY}")
    assert failure.kind == "error"
    assert "unsupported GNU version" in failure.message


def test_a_host_compiler_that_nvcc_refuses_is_the_machines_fault(fresh_cache, monkeypatch):
    monkeypatch.setattr("cudahercules.build.steps.accepts_host_compiler", lambda _: False)
    with pytest.raises(MachineError, match="put an older g\\+\\+ first on PATH"):
        compile_text(f"{IMITATION}{EMPTY}")
