"""What a finished artifact holds: device code, host code, and the facts about both."""

from __future__ import annotations

import json
import subprocess

import pytest
from building import EMPTY, HEADER, ORDINARY, SOLVE, compile_text

from cudahercules.build.artifact import SOURCE_PREFIX, Artifact
from cudahercules.build.candidate import from_text
from cudahercules.build.compile import build
from cudahercules.build.toolchain import find_toolchain
from cudahercules.task.model import ARCHITECTURES, LibraryPolicy


def files(artifact: Artifact) -> dict[str, bytes]:
    return {
        str(p.relative_to(artifact.directory)): p.read_bytes()
        for p in sorted(artifact.directory.rglob("*"))
        if p.is_file()
    }


def test_kernels_and_variables(compiled):
    (module,) = compiled.modules
    assert module.source == "solution.cu"
    (kernel,) = module.kernels
    assert "multiply" in kernel.name
    assert kernel.parameters == ((0, 8), (8, 8), (16, 8))
    assert (kernel.max_threads, kernel.static_shared, kernel.local) == (256, 1024, 0)
    assert 0 < kernel.registers <= 255
    assert kernel.constant >= 24
    symbols = {s.name.rpartition("L7")[2] or s.name: s for s in module.symbols}
    by_size = sorted((s.space, s.size) for s in symbols.values())
    assert by_size == [("constant", 32), ("global", 16), ("global", 16)]
    assert compiled.kernel(0, kernel.name) == kernel


def test_the_host_object_holds_the_fatbin_and_both_functions(compiled):
    host = compiled.path(compiled.host_object).read_bytes()
    fatbin = compiled.path("0/solution.fatbin").read_bytes()
    assert fatbin in host
    assert compiled.has_prepare
    names = subprocess.run(
        ["nm", "-D", "--defined-only", compiled.path(compiled.host_object)], capture_output=True, text=True
    ).stdout
    assert " T solve\n" in names
    assert " T prepare\n" in names


def test_the_ptx_is_what_the_cubin_was_made_from(compiled, tmp_path):
    (module,) = compiled.modules
    again = tmp_path / "again.cubin"
    ptxas = find_toolchain().root / "bin/ptxas"
    command = [ptxas, "-arch=sm_90a", "-m64", "--generate-line-info", compiled.path(module.ptx), "-o", again]
    subprocess.run(command, check=True)
    from cudahercules.build.elf import read_cubin

    report = compiled.path("0/solution.ptxas.txt").read_text()
    assert read_cubin(again, report)[0] == module.kernels
    text = compiled.path(module.ptx).read_text()
    assert f'"{SOURCE_PREFIX}solution.cu"' in text
    assert "\t.loc\t1 " in text


def test_nothing_names_the_build_directory(compiled):
    cache = str(compiled.directory.parents[2]).encode()
    for name, content in files(compiled).items():
        for trace in (b"/tmp/", cache, b"/proc/self/cwd/"):
            if name.endswith(".json") and trace == b"/proc/self/cwd/":
                continue  # the flags, which are the same everywhere
            assert trace not in content, f"{trace!r} in {name}"
    assert b"\0solution.cu\0" in compiled.path("host.so").read_bytes()  # __FILE__


def test_an_artifact_comes_from_the_cache_the_second_time(compiled):
    again = compile_text(ORDINARY, architecture="90a")
    assert isinstance(again, Artifact)
    assert again.cached
    assert again.seconds < 1.0
    assert again.model_copy(update={"cached": False, "seconds": 0}) == compiled.model_copy(
        update={"cached": False, "seconds": 0}
    )


def test_equal_sources_give_equal_files_in_another_directory(compiled, fresh_cache):
    other = compile_text(ORDINARY, architecture="90a")
    assert isinstance(other, Artifact)
    assert not other.cached
    assert other.directory != compiled.directory
    assert other.key == compiled.key
    here, there = files(compiled), files(other)
    assert set(here) == set(there)
    for name in here:
        if not name.endswith(("artifact.json", "ptxas.txt", "manifest.sha256.json")):  # these hold seconds
            assert here[name] == there[name], name


def test_several_files(fresh_cache):
    artifact = compile_text(
        {
            "main.cu": '#include "sub/add.cuh"\nvoid other(float*);\n'
            f"__global__ void k(float* y) {{ y[0] = add(1, 2); }}\n{SOLVE} {{ k<<<1, 1>>>(y); other(y); }}",
            "sub/add.cuh": "#pragma once\n__device__ inline float add(float a, float b) { return a + b; }\n",
            "sub/more.x.cu": '#include "add.cuh"\n__constant__ int c = 3;\n'
            "namespace { __global__ void k(float* y) { y[1] = add(c, 4); } }\n"
            "void other(float* y) { k<<<1, 1>>>(y); }\n",
            "sub/plain.cu": "int nothing_on_the_device;\n",
        }
    )
    assert isinstance(artifact, Artifact), artifact
    assert [m.source for m in artifact.modules] == ["main.cu", "sub/more.x.cu"]
    names = [[k.name for k in m.kernels] for m in artifact.modules]
    assert names[0] == ["_Z1kPf"]
    assert names[1][0] != "_Z1kPf"
    assert artifact.modules[0].fatbin_hash != artifact.modules[1].fatbin_hash
    assert all(artifact.path(m.cubin).is_file() and artifact.path(m.ptx).is_file() for m in artifact.modules)
    assert not artifact.has_prepare


def test_solve_h_need_not_be_included_and_a_stale_copy_does_no_harm(fresh_cache):
    artifact = compile_text({"a.cu": f'#include "solve.h"\n{EMPTY}', "solve.h": "#error stale\n"})
    assert isinstance(artifact, Artifact), artifact
    assert artifact.path("source/solve.h").read_text() == HEADER


def test_libcupp_and_cooperative_groups_are_always_there(fresh_cache):
    artifact = compile_text(
        "#include <cooperative_groups.h>\n#include <cuda/std/cstdint>\n"
        f"__global__ void k() {{ cooperative_groups::this_grid().sync(); }}\n{EMPTY}"
    )
    assert isinstance(artifact, Artifact), artifact
    assert len(artifact.modules[0].kernels) == 1


def test_cub_where_the_task_allows_it(fresh_cache):
    source = f"#include <cub/version.cuh>\n{EMPTY}"
    assert isinstance(compile_text(source, policy=LibraryPolicy.CUB), Artifact)


def test_prepare_counts_only_where_the_task_has_one(fresh_cache):
    header = HEADER.split('extern "C" void prepare')[0]
    artifact = compile_text(f'extern "C" void prepare(int) {{}}\n{EMPTY}', header=header)
    assert isinstance(artifact, Artifact), artifact
    assert not artifact.has_prepare


def test_build_takes_header_and_policy_from_the_task(fresh_cache):
    from cudahercules.task.load import load_task

    task = load_task("kernel/gemm/fp32@general")
    source = (task.directory / task.candidates[0]).read_text()
    artifact = build(from_text("naive.cu", {"naive.cu": source}), task, "80")
    assert isinstance(artifact, Artifact), artifact
    assert artifact.architecture == "80"
    stored = json.loads(artifact.path("artifact.json").read_text())
    assert stored["key"] == artifact.key


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture(architecture, fresh_cache):
    artifact = compile_text(ORDINARY, architecture=architecture)
    assert isinstance(artifact, Artifact), artifact
    assert f".target sm_{architecture}" in artifact.path(artifact.modules[0].ptx).read_text()


def test_an_unknown_architecture_is_a_mistake_of_ours():
    with pytest.raises(ValueError, match="70"):
        compile_text(ORDINARY, architecture="70")
