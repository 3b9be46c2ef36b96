"""What this machine can do, and for each thing missing the command that brings it.

Nothing here needs a GPU or changes anything, except that the cache directory is created and one
byte is written there to see whether that works.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from cudahercules import __version__
from cudahercules.build import sandbox, toolchain
from cudahercules.cache import cache_root
from cudahercules.errors import HerculesError, MachineError
from cudahercules.task.model import Model

State = Literal["ok", "missing", "broken"]

MINIMUM_CUDA = (13, 0)
LOW_DISK = 2 << 30

_GPU_PACKAGES = (
    ("cuda-bindings", (13, 0)),
    ("nvidia-ml-py", (12, 560)),
    ("torch", (2, 11)),
    ("scipy", (1, 11)),
)
_CORE_PACKAGES = (
    "numpy",
    "ml-dtypes",
    "array-api-compat",
    "pydantic",
    "pyelftools",
    "pyyaml",
    "rich",
    "typer",
)


class Check(Model):
    """One thing looked at. ``missing`` limits what can be done, ``broken`` is there but unusable.

    ``needed_for`` is ``grading`` (without it nothing works), ``gpu`` (the GPU judge), ``experts`` (a
    fuller panel) or ``evidence`` (a richer verdict). ``remedy`` is a command or one short sentence,
    empty where all is well.
    """

    name: str
    state: State
    detail: str
    remedy: str = ""
    needed_for: Literal["grading", "gpu", "experts", "evidence"] = "grading"


class Gpu(Model):
    """A GPU as NVML or nvidia-smi describes it. ``compute_mode`` is ``default``, ``exclusive_process``
    or ``prohibited``; ``memory`` in bytes."""

    name: str
    compute_capability: tuple[int, int]
    memory: int
    compute_mode: str


class Driver(Model):
    """``cuda`` is the newest CUDA version that the driver runs; ``source`` says who told."""

    version: str
    cuda: tuple[int, int] | None
    gpus: tuple[Gpu, ...]
    source: str


class Diagnosis(Model):
    """Everything that ``hercules doctor`` prints."""

    version: Literal[1] = 1
    cudahercules: str
    python: str
    platform: str
    cpus: int
    driver: Driver | None
    architecture: str  # what a `general` task is built for here
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether candidates can be graded here at all (on the CPU judge)."""
        return all(c.state == "ok" for c in self.checks if c.needed_for == "grading")

    @property
    def gpu_ok(self) -> bool:
        """Whether the GPU judge can run here."""
        return self.ok and all(c.state == "ok" for c in self.checks if c.needed_for == "gpu")

    def rows(self) -> list[tuple[str, str, str, str]]:
        """(what, state, found, command that brings it) for a table."""
        return [(c.name, c.state, c.detail, c.remedy) for c in self.checks]


def diagnose() -> Diagnosis:
    """Look at compilers, disassemblers, packages, GPU, sandbox, cache and experts. Never raises for
    something that is missing: that is what the checks are for."""
    driver, driver_problem = _look_for_driver()
    checks = [
        *_compilers(),
        *_disassemblers(),
        _packages(),
        _cache(),
        _sandbox(),
        *_gpu(driver, driver_problem),
        *_gpu_packages(),
        *_experts(),
    ]
    return Diagnosis(
        cudahercules=__version__,
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.release()} {platform.machine()}",
        cpus=len(os.sched_getaffinity(0)),
        driver=driver,
        architecture=_architecture(driver),
        checks=tuple(checks),
    )


def _architecture(driver: Driver | None) -> str:
    capability = driver.gpus[0].compute_capability if driver and driver.gpus else None
    try:
        return toolchain.resolve_architecture(toolchain.Target.GENERAL, capability)
    except MachineError:
        return "80"


# --- compilers -----------------------------------------------------------------------------------


def _compilers() -> Iterator[Check]:
    try:
        path, version = toolchain.find_host_compiler()
        yield Check(name="host compiler", state="ok", detail=f"g++ {version} ({path})")
    except MachineError as error:
        yield Check(
            name="host compiler",
            state="missing",
            detail=str(error).split(". ")[0],
            remedy=toolchain.INSTALL_HOST_COMPILER,
        )
        nvcc = toolchain.nvcc_at_hand()
        yield Check(
            name="CUDA compiler",
            state="missing",
            detail=f"{nvcc} cannot be asked without a host compiler" if nvcc else "no nvcc",
            remedy=toolchain.INSTALL_HOST_COMPILER if nvcc else toolchain.INSTALL_NVCC,
        )
        return
    try:
        found = toolchain.find_toolchain()
    except MachineError as error:
        detail = str(error).removesuffix(f" Install one with: {toolchain.INSTALL_NVCC}")
        yield Check(name="CUDA compiler", state="missing", detail=detail, remedy=toolchain.INSTALL_NVCC)
        return
    number = ".".join(map(str, found.version))
    targets = ", ".join(f"sm_{t}" for t in found.targets)
    detail = f"nvcc {number} from {found.origin} ({found.nvcc}); {targets}"
    yield Check(name="CUDA compiler", state="ok", detail=detail)


def _disassemblers() -> Iterator[Check]:
    for tool in ("nvdisasm", "cuobjdump"):
        path = toolchain.find_disassembler(tool)
        yield Check(
            name=tool,
            state="ok" if path else "missing",
            detail=str(path) if path else "no instruction mix in verdicts",
            remedy="" if path else toolchain.INSTALL_DISASSEMBLERS,
            needed_for="evidence",
        )


# --- Python packages -----------------------------------------------------------------------------


def _installed(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("+")[0].split(".")[:2] if part.isdigit())


def _packages() -> Check:
    missing = [p for p in _CORE_PACKAGES if _installed(p) is None]
    python = f"Python {platform.python_version()} ({sys.prefix})"
    if missing:
        return Check(
            name="Python packages",
            state="missing",
            detail=f"{python}; missing: {', '.join(missing)}",
            remedy=f"pip install {' '.join(missing)}",
        )
    return Check(name="Python packages", state="ok", detail=python)


def _gpu_packages() -> Iterator[Check]:
    for package, minimum in _GPU_PACKAGES:
        version = _installed(package)
        needed = ".".join(map(str, minimum))
        if version is None:
            state, detail = "missing", "not installed"
        elif _numbers(version) < minimum:
            state, detail = "broken", f"{version}, older than {needed}"
        else:
            state, detail = "ok", version
        remedy = "" if state == "ok" else f"{toolchain.install_extra('gpu')} (brings {package} >= {needed})"
        yield Check.model_validate(
            {"name": package, "state": state, "detail": detail, "remedy": remedy, "needed_for": "gpu"}
        )


def _experts() -> Iterator[Check]:
    """How many of all experts could be imported here; ``hercules experts`` lists their packages."""
    from cudahercules.task.load import all_tasks

    try:
        tasks = all_tasks()
    except HerculesError as error:
        yield Check(name="tasks", state="broken", detail=str(error), remedy="correct that file")
        return
    panel = {(task.family, expert.name): expert.packages for task in tasks for expert in task.experts}
    needed = {package for packages in panel.values() for package in packages}
    missing = {package for package in needed if _installed(_bare(package)) is None}
    ready = sum(not missing.intersection(packages) for packages in panel.values())
    yield Check(
        name="experts",
        state="missing" if missing else "ok",
        detail=f"{ready} of {len(panel)} experts in {len({f for f, _ in panel})} families importable"
        + (f"; not installed: {', '.join(sorted(map(_bare, missing)))}" if missing else ""),
        remedy=f"hercules experts lists packages; {toolchain.install_extra('experts')}" if missing else "",
        needed_for="experts",
    )


def _bare(requirement: str) -> str:
    """``flash-attn-4==4.0.0b36`` -> ``flash-attn-4``."""
    end = next((i for i, c in enumerate(requirement) if c in "<>=!~[; "), len(requirement))
    return requirement[:end]


# --- disk and sandbox ----------------------------------------------------------------------------


def _cache() -> Check:
    root = cache_root()
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=root) as probe:
            probe.write(b"x")
        free = shutil.disk_usage(root).free
    except OSError as error:
        return Check(
            name="cache",
            state="broken",
            detail=f"cannot write {root}: {error.strerror}",
            remedy="set HERCULES_CACHE to a directory that you own",
        )
    detail = f"{root} ({free / (1 << 30):.1f} GiB free)"
    if free < LOW_DISK:
        return Check(
            name="cache",
            state="broken",
            detail=f"{detail}: builds may fail",
            remedy="free some space, or set HERCULES_CACHE to another disk",
        )
    return Check(name="cache", state="ok", detail=detail)


def _sandbox() -> Check:
    """What candidates' code runs under; a part of it that the kernel does not offer is no reason to stop."""
    try:
        reached = sandbox.features()
    except MachineError as error:
        return Check(
            name="sandbox",
            state="missing",
            detail=f"cannot be built: {str(error).split('. ')[0]}",
            remedy=toolchain.INSTALL_HOST_COMPILER,
        )
    enough = sandbox.level_of(reached) in ("full", "files")
    wanted = os.environ.get(sandbox.STRICT)
    remedy = "" if enough else "grade only code that you would run yourself, or use Linux 5.13 or newer"
    try:
        if wanted:
            sandbox.require(wanted)
    except HerculesError as error:
        enough, remedy = False, f"{sandbox.STRICT}={wanted} refuses to grade here: {error}"
    return Check(
        name="sandbox",
        state="ok" if enough else "broken",
        detail=sandbox.phrase(reached),
        remedy=remedy,
        needed_for="grading" if wanted else "evidence",
    )


# --- GPU -----------------------------------------------------------------------------------------


def _look_for_driver() -> tuple[Driver | None, str]:
    """The driver and its GPUs, from NVML or else nvidia-smi; None and why not if neither answers."""
    problem = "no NVIDIA driver answers"
    sources: tuple[Callable[[], Driver], ...] = (_ask_nvml, _ask_nvidia_smi)
    for ask in sources:
        try:
            return ask(), ""
        except _NoAnswer as reason:
            if str(reason):
                problem = str(reason)
    return None, problem


class _NoAnswer(Exception):
    """This source does not know; the text says why, if that is worth telling."""


def _ask_nvml() -> Driver:
    try:
        import pynvml
    except ImportError as error:
        raise _NoAnswer("") from error
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        absent = getattr(error, "value", None) in (
            pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
            pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        )
        raise _NoAnswer("" if absent else f"NVML: {error}") from error
    try:
        cuda = pynvml.nvmlSystemGetCudaDriverVersion_v2()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        return Driver(
            version=_text(pynvml.nvmlSystemGetDriverVersion()),
            cuda=(cuda // 1000, cuda % 1000 // 10),
            gpus=tuple(_nvml_gpu(pynvml, handle) for handle in handles),
            source="NVML",
        )
    except pynvml.NVMLError as error:
        raise _NoAnswer(f"NVML: {error}") from error
    finally:
        pynvml.nvmlShutdown()


def _nvml_gpu(nvml, handle) -> Gpu:
    modes = {0: "default", 2: "prohibited", 3: "exclusive_process"}
    return Gpu(
        name=_text(nvml.nvmlDeviceGetName(handle)),
        compute_capability=tuple(nvml.nvmlDeviceGetCudaComputeCapability(handle)),
        memory=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
        compute_mode=modes.get(nvml.nvmlDeviceGetComputeMode(handle), "unknown"),
    )


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _ask_nvidia_smi() -> Driver:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        raise _NoAnswer("")
    query = "--query-gpu=driver_version,name,compute_cap,memory.total,compute_mode"
    try:
        done = subprocess.run(
            [tool, query, "--format=csv,noheader,nounits"], capture_output=True, text=True, timeout=30
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _NoAnswer(f"nvidia-smi: {error}") from error
    if done.returncode != 0:
        raise _NoAnswer(f"nvidia-smi: {(done.stdout + done.stderr).strip()[-200:]}")
    return parse_nvidia_smi(done.stdout)


def parse_nvidia_smi(text: str) -> Driver:
    """Driver and GPUs from lines of ``driver_version, name, compute_cap, memory.total, compute_mode``."""
    gpus, version = [], ""
    for line in text.strip().splitlines():
        version, name, capability, memory, mode = (field.strip() for field in line.split(","))
        major, _, minor = capability.partition(".")
        gpus.append(
            Gpu(
                name=name,
                compute_capability=(int(major), int(minor or 0)),
                memory=int(memory) << 20,
                compute_mode=mode.lower().replace(" ", "_"),
            )
        )
    return Driver(version=version, cuda=None, gpus=tuple(gpus), source="nvidia-smi")


def _gpu(driver: Driver | None, problem: str) -> Iterator[Check]:
    if driver is None or not driver.gpus:
        detail = problem or f"driver {driver.version if driver else ''} shows no GPU"
        remedy = "use --device cpu, or a machine with an NVIDIA GPU and a driver for CUDA 13"
        yield Check(name="GPU", state="missing", detail=detail, remedy=remedy, needed_for="gpu")
        return
    names = ", ".join(
        f"{g.name} (sm_{g.compute_capability[0]}{g.compute_capability[1]}, {g.memory >> 30} GiB)"
        for g in driver.gpus
    )
    cuda = f", CUDA {driver.cuda[0]}.{driver.cuda[1]}" if driver.cuda else ""
    old = driver.cuda is not None and driver.cuda < MINIMUM_CUDA
    yield Check(
        name="GPU",
        state="broken" if old else "ok",
        detail=f"{names}; driver {driver.version}{cuda}, asked through {driver.source}",
        remedy="install a driver for CUDA 13 (580 or newer)" if old else "",
        needed_for="gpu",
    )
    yield _sharing(driver)


def _sharing(driver: Driver) -> Check:
    """MPS and exclusive modes: the judge needs several processes of its own, alone on the GPU."""
    pipe = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))
    problems, remedies = [], []
    if (pipe / "control").exists():
        problems.append(f"an MPS server listens in {pipe}")
        remedies.append("echo quit | nvidia-cuda-mps-control")
    if modes := sorted({g.compute_mode for g in driver.gpus} - {"default"}):
        problems.append(f"compute mode {', '.join(modes)}")
        remedies.append("nvidia-smi -c DEFAULT")
    return Check(
        name="GPU sharing",
        state="broken" if problems else "ok",
        detail="; ".join(problems) or "no MPS, default compute mode",
        remedy="; ".join(remedies),
        needed_for="gpu",
    )
