"""The C++ side: how translations and the host program are compiled, and where they are kept."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from pathlib import Path

from cudahercules.build import sandbox
from cudahercules.build.toolchain import find_host_compiler
from cudahercules.cache import digest, entry
from cudahercules.errors import MachineError
from cudahercules.process import Confinement, Limits, run_limited

ROOT = Path(__file__).parent
RUNTIME = ROOT / "runtime"
PLAIN, CHECKING = "plain", "checking"
"""The two builds: folders of the runtime with a ``watch.hpp`` each."""
SCALAR = ROOT / "scalar"

_COMPILE_LIMITS = Limits(wall_s=300, memory=8 << 30, output=1 << 16)
_FLAGS = (
    "-std=c++20",
    "-w",
    "-mcx16",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-stack-protector",
    "-fno-strict-aliasing",
    "-fno-math-errno",
    "-ffp-contract=off",
)
_LARGE_SOURCE = 1 << 19
"""Bytes of C++ above which -O1 replaces -O2: a fifth less speed in a GEMM, but half of the time to compile
(a module of 26,000 instructions: 11 s)."""
_KERNEL_FLAGS = (
    "-shared",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-asynchronous-unwind-tables",
    f"-I{RUNTIME}",
    f"-I{SCALAR}",
    "-DPTX_CANONICAL_NAN=1",  # a NaN that was computed differs from poison, as on a GPU
)
_HOST_FLAGS = (
    "-O2",
    "-std=c++20",
    "-w",
    "-mcx16",
    "-ffp-contract=off",
    "-fno-exceptions",
    "-fno-rtti",
    "-pthread",
)


class TooLarge(MachineError):
    """A translation takes g++ more time than it may have, which is no fault of this machine."""


@lru_cache(maxsize=1)
def machine_flags() -> tuple[str, ...]:
    """Code for the oldest x86-64 level that has FMA, F16C and AVX2. Raises MachineError elsewhere."""
    if platform.machine() not in ("x86_64", "AMD64"):
        raise MachineError(f"the CPU judge needs an x86-64 processor, this one is {platform.machine()}")
    features = set()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            features = set(line.split())
            break
    missing = {"avx2", "fma", "f16c", "bmi2", "cx16"} - features
    if missing:
        raise MachineError(f"the CPU judge needs a processor with {', '.join(sorted(missing))}")
    return ("-march=x86-64-v3",)


@lru_cache(maxsize=1)
def sources_digest() -> str:
    """SHA-256 over every source file that decides what a translation is."""
    files = [ROOT / "translation.py", ROOT / "native.py"]
    return _digest_of(files, ("ptx", "emit", "scalar", "runtime"), (".py", ".hpp"))


@lru_cache(maxsize=1)
def _host_digest() -> str:
    """The same for the host program."""
    return _digest_of([ROOT / "native.py"], ("scalar", "runtime"), (".hpp", ".cpp"))


def _digest_of(files: list[Path], folders: tuple[str, ...], suffixes: tuple[str, ...]) -> str:
    files = files + sorted(p for f in folders for p in (ROOT / f).rglob("*") if p.suffix in suffixes)
    return digest(*(part for p in files for part in (p.name, p.read_bytes())))


@lru_cache(maxsize=1)
def _compiler() -> tuple[Path, str]:
    path, version = find_host_compiler()
    return path, version


def toolchain_digest() -> str:
    path, version = _compiler()
    return digest(str(path), version, *machine_flags(), *_FLAGS, sources_digest())


def compile_kernels(source: Path, target: Path, build: str = PLAIN) -> None:
    """g++ for one translation. Raises TooLarge, MachineError with the compiler's words (an error of ours)."""
    level = "-O1" if source.stat().st_size > _LARGE_SOURCE else "-O2"
    source, target = source.absolute(), target.absolute()
    flags = (level, *_FLAGS, *_KERNEL_FLAGS, f"-I{RUNTIME / build}", *machine_flags())
    # The text was made from a candidate's PTX, so it is compiled like a candidate's own.
    confined = sandbox.compiler_confinement(
        _compiler()[0], read=(source, RUNTIME, SCALAR), write=(target.parent,)
    )
    _run([*flags, source, "-o", target], confined)


def host_program(build: str = PLAIN) -> Path:
    """The executable that runs plans; built once for this version and compiler."""
    path, version = _compiler()
    key = digest(build, str(path), version, *_HOST_FLAGS, _host_digest())
    directory, _ = entry("emulator-host", key, partial(_build_host, build))
    return directory / "host"


def _build_host(build: str, directory: Path) -> None:
    # Two translation units for two cores: matrix products, whose many variants take half of the time,
    # and all the rest as one, since reading the headers once matters more than a third core.
    flags = (*_HOST_FLAGS, *machine_flags(), f"-I{SCALAR}", f"-I{RUNTIME}", f"-I{RUNTIME / build}")
    matrices = [*sorted(RUNTIME.glob("mma*.cpp")), RUNTIME / "wgmma_compute.cpp"]
    sources = [*sorted(RUNTIME.glob("*.cpp")), *sorted((RUNTIME / build).glob("*.cpp"))]
    rest = [source for source in sources if source not in matrices]
    units = {"matrices": matrices, "rest": rest}

    def compiled(name: str) -> Path:
        unit, target = directory / f"{name}.cpp", directory / f"{name}.o"
        unit.write_text("".join(f'#include "{source}"\n' for source in units[name]))
        _run([*flags, "-c", unit, "-o", target])
        unit.unlink()
        return target

    with ThreadPoolExecutor(len(units)) as pool:
        objects = list(pool.map(compiled, units))
    _run([*flags, *objects, "-rdynamic", "-ldl", "-o", directory / "host"])
    for target in objects:
        target.unlink()


def _run(arguments: Sequence[str | Path], confined: Confinement | None = None) -> None:
    path, _ = _compiler()
    environment = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}
    if confined is not None:
        environment["TMPDIR"] = str(confined.write[-1])
    finished = run_limited([path, *arguments], _COMPILE_LIMITS, env=environment, confined=confined)
    if finished.timed_out:
        kind = TooLarge if confined else MachineError
        raise kind(f"{path} did not end within {_COMPILE_LIMITS.wall_s:.0f} s")
    if finished.status != 0:
        text = finished.stderr.decode(errors="replace")[:2000]
        raise MachineError(f"{path} failed with status {finished.status} on a translation: {text}")
