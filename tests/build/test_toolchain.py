"""Finding compilers where they are, and saying how to get them where they are not."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from cudahercules.build import toolchain
from cudahercules.errors import MachineError
from cudahercules.task.model import Target


@pytest.fixture
def real():
    return toolchain.find_toolchain()


@pytest.fixture
def only(tmp_path, monkeypatch):
    """A PATH with nothing but the named programs on it; no CUDA_HOME, no wheels."""

    def set_path(**programs: str | Path) -> Path:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        for name, target in programs.items():
            (folder / name.replace("gxx", "g++")).symlink_to(target)
        monkeypatch.setenv("PATH", str(folder))
        for variable in ("CUDA_HOME", "CUDA_PATH"):
            monkeypatch.delenv(variable, raising=False)
        monkeypatch.setattr(sys, "path", [p for p in sys.path if not (Path(p) / "nvidia").is_dir()])
        return folder

    return set_path


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def fake_nvcc(path: Path, major: int, minor: int, root: Path) -> Path:
    macros = f"-D__CUDACC_VER_MAJOR__={major} -D__CUDACC_VER_MINOR__={minor} -D__CUDACC_VER_BUILD__=7"
    return script(path, f"echo '#$ TOP={root}' >&2\necho '#$ gcc {macros}' >&2")


def test_what_is_found_here(real):
    assert real.version[0] == 13
    assert (real.root / "bin/ptxas").is_file()
    assert real.title.startswith("nvcc 13.")
    assert real.targets == ("80", "90a", "100a", "103a", "120a")
    assert str(real.root) not in real.identity


def test_no_compiler(only):
    only(gxx="/usr/bin/g++")
    with pytest.raises(MachineError) as error:
        toolchain.find_toolchain()
    assert toolchain.INSTALL_NVCC in str(error.value)


def test_no_host_compiler(only, real):
    only(nvcc=real.nvcc)
    with pytest.raises(MachineError) as error:
        toolchain.find_toolchain()
    assert toolchain.INSTALL_HOST_COMPILER in str(error.value)


def test_a_broken_host_compiler(only, real, tmp_path):
    only(nvcc=real.nvcc, gxx=script(tmp_path / "broken", "exit 1"))
    with pytest.raises(MachineError, match="does not run"):
        toolchain.find_toolchain()


def test_an_old_nvcc_is_named(only, tmp_path):
    only(gxx="/usr/bin/g++", nvcc=fake_nvcc(tmp_path / "old", 12, 9, tmp_path))
    with pytest.raises(MachineError, match=r"nvcc is version 12\.9"):
        toolchain.find_toolchain()


def test_an_nvcc_without_libcupp_headers_is_named(only, tmp_path):
    only(gxx="/usr/bin/g++", nvcc=fake_nvcc(tmp_path / "bare", 13, 1, tmp_path))
    with pytest.raises(MachineError, match=r"no libcu\+\+ headers"):
        toolchain.find_toolchain()


def test_cuda_home_is_taken_where_path_has_an_old_one(only, tmp_path, monkeypatch):
    home = tmp_path / "home"
    (home / "include/cccl/cuda/std").mkdir(parents=True)
    fake_nvcc(home / "bin/nvcc", 13, 2, home)
    only(gxx="/usr/bin/g++", nvcc=fake_nvcc(tmp_path / "old", 12, 8, tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(home))
    found = toolchain.find_toolchain()
    assert (found.origin, found.version, found.root) == ("CUDA_HOME", (13, 2, 7), home)


def test_wheels_are_taken_where_nothing_is_on_path(only, tmp_path, monkeypatch):
    site = tmp_path / "site-packages"
    root = site / "nvidia/cu13"
    (root / "include/cccl/cuda/std").mkdir(parents=True)
    fake_nvcc(root / "bin/nvcc", 13, 0, root)
    only(gxx="/usr/bin/g++")
    monkeypatch.setattr(sys, "path", [*sys.path, str(site)])
    found = toolchain.find_toolchain()
    assert (found.origin, found.nvcc) == ("wheels", root / "bin/nvcc")


def test_identity_follows_the_binaries_and_not_their_place(only, tmp_path, monkeypatch):
    def install(name: str, ptxas: str) -> str:
        home = tmp_path / name
        (home / "include/cuda/std").mkdir(parents=True)
        script(home / "bin/ptxas", ptxas)
        fake_nvcc(home / "bin/nvcc", 13, 0, Path("/same/length/a"))
        fake_nvcc(home / "bin/nvcc", 13, 0, home)
        monkeypatch.setenv("CUDA_HOME", str(home))
        return toolchain.find_toolchain().identity

    only(gxx="/usr/bin/g++")
    first = install("a1", "true")
    assert install("a2", "true") == first
    assert install("a3", "true # another") != first


def test_callers_variables_do_not_reach_the_compiler(real, tmp_path, monkeypatch):
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-use_fast_math")
    monkeypatch.setenv("CPATH", "/tmp")
    assert set(real.environment(tmp_path)) == {"PATH", "TMPDIR", "LC_ALL"}


def test_disassemblers_are_looked_for_in_the_wheels(only, tmp_path, monkeypatch):
    only()
    assert toolchain.find_disassembler("nvdisasm") is None
    tool = script(tmp_path / "site/nvidia/cu13/bin/nvdisasm", "true")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "site")])
    assert toolchain.find_disassembler("nvdisasm") == tool


def test_cutlass_is_found_in_its_wheel_or_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(MachineError, match="pip install"):
        toolchain.find_cutlass()
    include = tmp_path / "cutlass_library/source/include"
    (include / "cutlass").mkdir(parents=True)
    (include / "cutlass/cutlass.h").write_text("")
    assert toolchain.find_cutlass() == include


@pytest.mark.parametrize(
    ("target", "capability", "architecture"),
    [
        (Target.HOPPER, None, "90a"),
        (Target.HOPPER, (8, 0), "90a"),
        (Target.AMPERE, None, "80"),
        (Target.BLACKWELL, None, "100a"),
        (Target.BLACKWELL_SM103, None, "103a"),
        (Target.BLACKWELL_RTX, None, "120a"),
        (Target.GENERAL, None, "80"),
        (Target.GENERAL, (8, 0), "80"),
        (Target.GENERAL, (8, 9), "80"),
        (Target.GENERAL, (9, 0), "90a"),
        (Target.GENERAL, (10, 0), "100a"),
        (Target.GENERAL, (10, 3), "103a"),
        (Target.GENERAL, (12, 0), "120a"),
        (Target.GENERAL, (12, 1), "120a"),
    ],
)
def test_architecture_of_a_target(target, capability, architecture):
    assert toolchain.resolve_architecture(target, capability) == architecture


@pytest.mark.parametrize("capability", [(7, 5), (11, 0), (13, 0)])
def test_a_gpu_without_a_target(capability):
    with pytest.raises(MachineError, match="--device cpu"):
        toolchain.resolve_architecture(Target.GENERAL, capability)


def test_the_environment_has_a_path_for_the_host_compiler(real, tmp_path):
    path = real.environment(tmp_path)["PATH"].split(os.pathsep)
    assert path[0] == str(real.root / "bin")
    assert str(real.host_compiler.parent) in path


def test_whether_nvcc_takes_this_host_compiler_is_tried(real, tmp_path):
    assert toolchain.accepts_host_compiler(real)
    refusing = script(tmp_path / "nvcc", "exit 1")
    assert not toolchain.accepts_host_compiler(real.model_copy(update={"nvcc": refusing}))
