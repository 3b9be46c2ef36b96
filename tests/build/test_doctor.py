"""What `doctor` says about this machine and about machines that lack something."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from cudahercules import doctor
from cudahercules.build import sandbox, toolchain
from cudahercules.doctor import Check, Diagnosis, Driver, Gpu, diagnose, parse_nvidia_smi
from cudahercules.record.recorder import sandbox_level

H200 = Gpu(name="NVIDIA H200", compute_capability=(9, 0), memory=150 << 30, compute_mode="default")


def check(diagnosis: Diagnosis, name: str) -> Check:
    return next(c for c in diagnosis.checks if c.name == name)


@pytest.fixture
def bare(tmp_path, monkeypatch):
    """No compilers, no wheels, no driver."""
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "path", [p for p in sys.path if not (Path(p) / "nvidia").is_dir()])


@pytest.fixture
def gpu_of(monkeypatch):
    """Pretend that this driver answers."""
    return lambda driver: monkeypatch.setattr(doctor, "_look_for_driver", lambda: (driver, ""))


def test_this_machine_can_grade():
    diagnosis = diagnose()
    assert diagnosis.ok
    assert check(diagnosis, "CUDA compiler").detail.startswith("nvcc 13.")
    assert "sm_90a" in check(diagnosis, "CUDA compiler").detail
    assert check(diagnosis, "sandbox").detail == sandbox_level()
    assert "families importable" in check(diagnosis, "experts").detail
    assert Diagnosis.model_validate_json(diagnosis.model_dump_json()) == diagnosis
    assert len(diagnosis.rows()) == len(diagnosis.checks)


def test_everything_missing_has_a_remedy(bare):
    diagnosis = diagnose()
    assert not diagnosis.ok
    assert not diagnosis.gpu_ok
    assert check(diagnosis, "host compiler").remedy == toolchain.INSTALL_HOST_COMPILER
    assert check(diagnosis, "CUDA compiler").remedy == toolchain.INSTALL_NVCC
    assert check(diagnosis, "nvdisasm").remedy == toolchain.INSTALL_DISASSEMBLERS
    assert check(diagnosis, "GPU").state == "missing"
    assert diagnosis.architecture == "80"
    assert all(c.remedy for c in diagnosis.checks if c.state != "ok")


def test_without_a_host_compiler_an_nvcc_is_not_asked_for_again(bare, tmp_path):
    nvcc = tmp_path / "nvcc"
    nvcc.write_text("#!/bin/sh\n")
    nvcc.chmod(0o755)
    found = check(diagnose(), "CUDA compiler")
    assert (found.state, found.remedy) == ("missing", toolchain.INSTALL_HOST_COMPILER)
    assert str(nvcc) in found.detail


def test_a_kernel_without_landlock_is_said(monkeypatch):
    monkeypatch.setattr(sandbox, "features", lambda: "namespaces,capabilities,seccomp")
    found = check(diagnose(), "sandbox")
    assert found.state == "broken" and "no Landlock" in found.detail and found.remedy
    assert diagnose().ok


def test_a_level_that_is_not_reached_is_said(monkeypatch):
    monkeypatch.setattr(sandbox, "features", lambda: "landlock=7,capabilities,seccomp")
    monkeypatch.setenv("HERCULES_STRICT", "files")
    assert check(diagnose(), "sandbox").state == "ok"
    for wanted, says in (("full", "reaches level files"), ("fort-knox", "choose one of full")):
        monkeypatch.setenv("HERCULES_STRICT", wanted)
        found = check(diagnose(), "sandbox")
        assert found.state == "broken" and says in found.remedy
        assert not diagnose().ok


def test_an_extra_is_installed_from_where_this_came_from():
    clone = Path(__file__).parents[2]
    assert toolchain.install_extra("gpu") == f"pip install -e '{clone}[gpu]'"


def test_a_good_gpu(gpu_of, monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    gpu_of(Driver(version="580.1", cuda=(13, 0), gpus=(H200,), source="NVML"))
    diagnosis = diagnose()
    assert check(diagnosis, "GPU").detail == (
        "NVIDIA H200 (sm_90, 150 GiB); driver 580.1, CUDA 13.0, asked through NVML"
    )
    assert check(diagnosis, "GPU sharing").state == "ok"
    assert diagnosis.architecture == "90a"
    assert diagnosis.gpu_ok == all(check(diagnosis, name).state == "ok" for name, _ in doctor._GPU_PACKAGES)


def test_an_old_driver(gpu_of):
    gpu_of(Driver(version="550.1", cuda=(12, 4), gpus=(H200,), source="NVML"))
    found = check(diagnose(), "GPU")
    assert (found.state, found.remedy) == ("broken", "install a driver for CUDA 13 (580 or newer)")


def test_mps_and_exclusive_mode(gpu_of, monkeypatch, tmp_path):
    (tmp_path / "control").write_text("")
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    exclusive = H200.model_copy(update={"compute_mode": "exclusive_process"})
    gpu_of(Driver(version="580.1", cuda=(13, 0), gpus=(exclusive,), source="NVML"))
    found = check(diagnose(), "GPU sharing")
    assert found.state == "broken"
    assert found.remedy == "echo quit | nvidia-cuda-mps-control; nvidia-smi -c DEFAULT"


def test_a_gpu_that_no_target_covers(gpu_of):
    old = H200.model_copy(update={"compute_capability": (7, 5)})
    gpu_of(Driver(version="580.1", cuda=(13, 0), gpus=(old,), source="NVML"))
    assert diagnose().architecture == "80"


def test_nvidia_smi_output():
    driver = parse_nvidia_smi(
        "580.95.05, NVIDIA H200, 9.0, 143771, Default\n"
        "580.95.05, NVIDIA H200, 9.0, 143771, Exclusive_Process\n"
    )
    assert (driver.version, driver.cuda, len(driver.gpus)) == ("580.95.05", None, 2)
    assert driver.gpus[0].compute_capability == (9, 0)
    assert driver.gpus[0].memory == 143771 << 20
    assert driver.gpus[1].compute_mode == "exclusive_process"


def test_nvml_answers(monkeypatch):
    class NVMLError(Exception):
        pass

    fake = SimpleNamespace(
        NVMLError=NVMLError,
        NVML_ERROR_LIBRARY_NOT_FOUND=12,
        NVML_ERROR_DRIVER_NOT_LOADED=9,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlSystemGetCudaDriverVersion_v2=lambda: 13020,
        nvmlSystemGetDriverVersion=lambda: b"590.1",
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda i: i,
        nvmlDeviceGetName=lambda _h: "NVIDIA H200",
        nvmlDeviceGetCudaComputeCapability=lambda _h: (9, 0),
        nvmlDeviceGetMemoryInfo=lambda _h: SimpleNamespace(total=150 << 30),
        nvmlDeviceGetComputeMode=lambda _h: 0,
    )
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    driver, problem = doctor._look_for_driver()
    assert problem == ""
    assert driver == Driver(version="590.1", cuda=(13, 2), gpus=(H200,), source="NVML")

    def refuse():
        raise NVMLError("Insufficient Permissions")

    fake.nvmlInit = refuse
    monkeypatch.setenv("PATH", "")
    assert doctor._look_for_driver() == (None, "NVML: Insufficient Permissions")


def test_a_failing_nvidia_smi_is_quoted(bare, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    script = tmp_path / "nvidia-smi"
    script.write_text(
        "#!/bin/sh\necho 'Failed to initialize NVML: Driver/library version mismatch'\nexit 18\n"
    )
    script.chmod(0o755)
    driver, problem = doctor._look_for_driver()
    assert driver is None
    assert "Driver/library version mismatch" in problem


def test_cache_that_cannot_be_written(tmp_path, monkeypatch):
    blocker = tmp_path / "file"
    blocker.write_text("")
    monkeypatch.setenv("HERCULES_CACHE", str(blocker / "cache"))
    diagnosis = diagnose()
    assert check(diagnosis, "cache").state == "broken"
    assert "HERCULES_CACHE" in check(diagnosis, "cache").remedy
    assert not diagnosis.ok


def test_little_space(monkeypatch):
    usage = doctor.shutil.disk_usage("/")._replace(free=1 << 20)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _path: usage)
    assert check(diagnose(), "cache").state == "broken"


def test_packages(monkeypatch):
    versions = {"torch": "2.9.1+cu130", "scipy": "1.17.0", "cuda-bindings": "13.0.3"}
    monkeypatch.setattr(doctor, "_installed", versions.get)
    diagnosis = diagnose()
    assert (check(diagnosis, "torch").state, check(diagnosis, "torch").detail) == (
        "broken",
        "2.9.1+cu130, older than 2.11",
    )
    assert check(diagnosis, "cuda-bindings").state == "ok"
    assert check(diagnosis, "nvidia-ml-py").remedy.startswith("pip install -e '/")
    assert "numpy" in check(diagnosis, "Python packages").remedy
    experts = check(diagnosis, "experts")
    ready, total = (int(n) for n in experts.detail.split(" experts")[0].split(" of "))
    assert 0 < ready < total and "[experts]" in experts.remedy
    missing = experts.detail.split("not installed: ")[1].split(", ")
    assert "triton" in missing and "torch" not in missing


def test_a_broken_task_file_is_reported(tmp_path, monkeypatch):
    family = tmp_path / "kernel/broken"
    family.mkdir(parents=True)
    (family / "task.yaml").write_text("title: [")
    monkeypatch.setenv("HERCULES_TASKS", str(tmp_path))
    found = check(diagnose(), "tasks")
    assert found.state == "broken"
    assert "task.yaml" in found.detail
