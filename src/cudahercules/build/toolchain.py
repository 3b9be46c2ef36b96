"""Find the compilers: nvcc on PATH, in CUDA_HOME or in NVIDIA's wheels; g++; disassemblers.

Nothing here compiles anything. What is found is described by :class:`Toolchain`, whose ``identity``
enters the key of everything that is built.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from cudahercules.cache import digest
from cudahercules.errors import MachineError
from cudahercules.process import Finished, Limits, run_limited
from cudahercules.task.model import ARCHITECTURES, Model, Target

CUDA_MAJOR = 13
"""The stand-in runtime has the ABI of CUDA 13; an older toolkit's host code would not fit it."""

INSTALL_NVCC = 'pip install "cuda-toolkit[nvcc,cccl]==13.0.3.0"'
INSTALL_HOST_COMPILER = "apt-get install g++"
INSTALL_DISASSEMBLERS = 'pip install "nvidia-cuda-cuobjdump>=13.2.51" "nvidia-cuda-nvdisasm>=13.2.51"'
INSTALL_CUTLASS = 'pip install "nvidia-cutlass==4.2.0.0"'


def install_extra(extra: str) -> str:
    """The command that brings an optional part of this installation, be it a clone or a package."""
    clone = Path(__file__).parents[3]
    if (clone / "pyproject.toml").is_file() and (clone / "src/cudahercules").is_dir():
        return f"pip install -e '{clone}[{extra}]'"
    return f"pip install 'cudahercules[{extra}]'"


_PROBE = Limits(wall_s=30, cpu_s=30, output=1 << 18)
_QUESTION = ("--dryrun", "-E", "-x", "cu", "/dev/null")
"""Makes nvcc print its toolkit's directory and its version without running anything. The toolkit
is asked for because ``nvcc`` on PATH may be a wrapper script that lies elsewhere."""
_VERSION_MACROS = (b"MAJOR", b"MINOR", b"BUILD")
TOOLKIT_BINARIES = ("bin/nvcc", "bin/cudafe++", "bin/ptxas", "bin/fatbinary", "nvvm/bin/cicc")


class Toolchain(Model):
    """A compiler that :mod:`cudahercules.build.compile` can use.

    ``root`` is the toolkit's directory (above ``bin``, without links), ``origin`` how it was found: ``PATH``,
    ``CUDA_HOME`` or ``wheels``. ``identity`` depends on versions and on the sizes of the binaries,
    not on where they lie, so that equal installations give equal keys.
    """

    nvcc: Path
    root: Path
    origin: str
    version: tuple[int, int, int]
    host_compiler: Path
    host_version: str
    identity: str

    @property
    def title(self) -> str:
        """For a person: ``nvcc 13.0.88, g++ 12.2.0``."""
        return f"nvcc {'.'.join(map(str, self.version))}, g++ {self.host_version}"

    @property
    def include(self) -> Path:
        return self.root / "include"

    @property
    def targets(self) -> tuple[str, ...]:
        """Architectures that this compiler builds for: all of ours since CUDA 12.9."""
        return ARCHITECTURES

    def environment(self, temporary: Path) -> dict[str, str]:
        """The whole environment of a compiler process: no variable of the caller's gets in."""
        path = [self.root / "bin", self.host_compiler.parent, "/usr/bin", "/bin"]
        unique = dict.fromkeys(str(p) for p in path)
        return {"PATH": ":".join(unique), "TMPDIR": str(temporary), "LC_ALL": "C"}


def find_toolchain() -> Toolchain:
    """The first nvcc of CUDA 13 on PATH, in CUDA_HOME or CUDA_PATH, or in the wheels, and g++.

    Raises MachineError with the command that installs what is missing.
    """
    return _find(
        os.environ.get("PATH", ""),
        os.environ.get("CUDA_HOME", ""),
        os.environ.get("CUDA_PATH", ""),
        tuple(sys.path),
    )


@lru_cache(maxsize=4)
def _find(path: str, cuda_home: str, cuda_path: str, python_path: tuple[str, ...]) -> Toolchain:
    rejected: list[str] = []
    places = list(_nvcc_places(path, cuda_home, cuda_path))
    host, host_version = find_host_compiler() if places else (Path(), "")
    for origin, nvcc in places:
        probe = run_limited([nvcc, *_QUESTION], _PROBE, env={"PATH": f"{host.parent}:/usr/bin:/bin"})
        top = re.search(rb"^#\$ TOP=(.+)$", probe.stderr, re.MULTILINE)
        numbers = [re.search(rb"-D__CUDACC_VER_%s__=(\d+)" % n, probe.stderr) for n in _VERSION_MACROS]
        if probe.status != 0 or top is None or None in numbers:
            rejected.append(f"{nvcc} does not run: {_last_line(probe)}")
            continue
        major, minor, patch = (int(n.group(1)) for n in numbers if n)
        if major != CUDA_MAJOR:
            rejected.append(f"{nvcc} is version {major}.{minor}")
            continue
        root = Path(os.path.realpath(top.group(1).decode()))
        if not any((root / d / "cuda/std").is_dir() for d in ("include/cccl", "include")):
            rejected.append(f"{nvcc} has no libcu++ headers (cuda/std) beside it")
            continue
        inner = root / "bin/nvcc"  # run by this path, it names no place outside the root
        return Toolchain(
            nvcc=inner if inner.is_file() else nvcc,
            root=root,
            origin=origin,
            version=(major, minor, patch),
            host_compiler=host,
            host_version=host_version,
            identity=_identity(root, (major, minor, patch), host, host_version),
        )
    found_but = f" Found, but not usable: {'; '.join(rejected)}." if rejected else ""
    raise MachineError(
        f"no nvcc of CUDA {CUDA_MAJOR} on PATH, in CUDA_HOME or among Python's packages.{found_but} "
        f"Install one with: {INSTALL_NVCC}"
    )


@lru_cache(maxsize=4)
def accepts_host_compiler(toolchain: Toolchain) -> bool:
    """Whether nvcc takes this g++, tried on an empty source: a candidate can make compilers say anything."""
    empty = ("-E", "-x", "cu", "/dev/null")
    environment = toolchain.environment(Path(tempfile.gettempdir()))
    done = run_limited([toolchain.nvcc, "-ccbin", toolchain.host_compiler, *empty], _PROBE, env=environment)
    return done.status == 0


def _nvcc_places(path: str, cuda_home: str, cuda_path: str) -> Iterator[tuple[str, Path]]:
    seen = set()
    for origin, candidate in (
        ("PATH", shutil.which("nvcc", path=path)),
        ("CUDA_HOME", shutil.which("nvcc", path=f"{cuda_home}/bin") if cuda_home else None),
        ("CUDA_HOME", shutil.which("nvcc", path=f"{cuda_path}/bin") if cuda_path else None),
        *(("wheels", shutil.which("nvcc", path=str(d))) for d in _wheel_binaries()),
    ):
        if candidate and candidate not in seen:
            seen.add(candidate)
            yield origin, Path(candidate)


def nvcc_at_hand() -> Path | None:
    """The first nvcc on PATH, in CUDA_HOME or among the wheels, of whatever version; nothing is run."""
    environment = (os.environ.get(name, "") for name in ("PATH", "CUDA_HOME", "CUDA_PATH"))
    return next((nvcc for _, nvcc in _nvcc_places(*environment)), None)


def _wheel_binaries() -> list[Path]:
    """``bin`` directories of NVIDIA's CUDA 13 wheels in the running environment."""
    return [d for entry in sys.path if (d := Path(entry or ".") / f"nvidia/cu{CUDA_MAJOR}/bin").is_dir()]


def find_host_compiler() -> tuple[Path, str]:
    """g++ on PATH and its version. Raises MachineError with the command that installs it."""
    found = shutil.which("g++")
    if found is None:
        raise MachineError(f"no g++ on PATH; nvcc needs it. Install it with: {INSTALL_HOST_COMPILER}")
    probe = run_limited([found, "-dumpfullversion"], _PROBE, env={"PATH": os.environ.get("PATH", "")})
    version = probe.stdout.decode(errors="replace").strip()
    if probe.status != 0 or not re.fullmatch(r"\d+(\.\d+)*", version):
        raise MachineError(
            f"{found} does not run ({_last_line(probe)}). Install it with: {INSTALL_HOST_COMPILER}"
        )
    return Path(found), version


def _identity(root: Path, version: tuple[int, int, int], host: Path, host_version: str) -> str:
    sizes = []
    for name in TOOLKIT_BINARIES:
        try:
            sizes.append(f"{name} {(root / name).stat().st_size}")
        except OSError:
            sizes.append(f"{name} absent")
    return digest(str(version), *sizes, host_version, str(Path(os.path.realpath(host)).stat().st_size))


def _last_line(finished: Finished) -> str:
    lines = (finished.stderr or finished.stdout).decode(errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else f"exit status {finished.status}"


def find_disassembler(name: str) -> Path | None:
    """``cuobjdump`` or ``nvdisasm`` on PATH, in the toolkit or in the wheels; None if absent."""
    places = [os.environ.get("PATH", "")]
    places += [f"{home}/bin" for v in ("CUDA_HOME", "CUDA_PATH") if (home := os.environ.get(v))]
    places += [str(d) for d in _wheel_binaries()]
    with contextlib.suppress(MachineError):  # without a compiler the other places are still worth a look
        places.append(str(find_toolchain().root / "bin"))
    return next((Path(f) for p in places if p and (f := shutil.which(name, path=p))), None)


def find_cutlass() -> Path:
    """The include directory of CUTLASS and CuTe (with ``cutlass/cutlass.h``), from its wheel.

    Raises MachineError with the command that installs it.
    """
    for entry in sys.path:
        include = Path(entry or ".") / "cutlass_library/source/include"
        if (include / "cutlass/cutlass.h").is_file():
            return include
    raise MachineError(
        f"this task allows CUTLASS, which is not installed. Install it with: {INSTALL_CUTLASS}"
    )


def resolve_architecture(target: Target, device_cc: tuple[int, int] | None = None) -> str:
    """What to build for: the target's architecture, or for ``general`` that of the GPU at hand.

    ``device_cc`` is the compute capability of that GPU, None where there is none (then ``80``, the
    oldest PTX, which the emulator runs). Raises MachineError for a GPU that no target covers.
    """
    if target.architecture is not None:
        return target.architecture
    if device_cc is None:
        return "80"
    major, minor = device_cc
    if major == 8:
        return "80"
    if major == 12:
        return "120a"
    known = {(9, 0): "90a", (10, 0): "100a", (10, 3): "103a"}
    if device_cc not in known:
        raise MachineError(
            f"no target for a GPU of compute capability {major}.{minor}; "
            "supported are 8.x, 9.0, 10.0, 10.3 and 12.x. Use --device cpu"
        )
    return known[device_cc]
