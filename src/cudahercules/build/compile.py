"""Compile a candidate: device code, the PTX it was made from, and the host object.

What is built is kept in the cache under a key over everything that it depends on; the steps
themselves are in :mod:`cudahercules.build.steps`.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from cudahercules.build import elf, sandbox
from cudahercules.build.artifact import Artifact, BuildFailure, DeviceModule
from cudahercules.build.candidate import GENERATED_HEADER, Candidate
from cudahercules.build.diagnostics import Refused
from cudahercules.build.hostcheck import check_host_object, declaration, exported_names
from cudahercules.build.steps import LINK_FLAGS, Workshop, compiler_flags
from cudahercules.build.toolchain import Toolchain, find_cutlass, find_toolchain
from cudahercules.cache import digest, entry
from cudahercules.errors import MachineError
from cudahercules.process import Limits
from cudahercules.task.model import ARCHITECTURES, LibraryPolicy, Task

BUILD_VERSION = 5
"""Raised whenever the same inputs would give another artifact; it is part of the cache's key."""

LIMITS = Limits(wall_s=120, cpu_s=120, memory=4 << 30, file_size=512 << 20, output=1 << 20)
"""Runaway templates were measured to use up 8 GiB in 88 s and 4 GiB in 27 s."""
CUB_LIMITS = Limits(wall_s=120, cpu_s=120, memory=8 << 30, file_size=512 << 20, output=1 << 20)
CUTLASS_LIMITS = Limits(wall_s=600, cpu_s=600, memory=12 << 30, file_size=512 << 20, output=1 << 20)
"""A CUTLASS attention kernel with its backward pass was measured at 310 s and 10.8 GB."""

_LIMITS_OF = {
    LibraryPolicy.RUNTIME: LIMITS,
    LibraryPolicy.CUB: CUB_LIMITS,
    LibraryPolicy.CUTLASS: CUTLASS_LIMITS,
}

_DRIVER_FUNCTIONS = frozenset({"vprintf", "__assertfail"})
"""Of the functions that the driver supplies to device code, those that keep nothing and launch nothing."""
_DEVICE_HEAP = frozenset({"malloc", "free"})
"""What the heap hands out keeps its contents between launches, so an answer could be kept there."""

LOW_DISK = 32 << 20
"""Less free space than this beside a failed build: the disk is to blame, not the candidate."""


def build(candidate: Candidate, task: Task, architecture: str) -> Artifact | BuildFailure:
    """Compile ``candidate`` for ``task``, or take the finished artifact from the cache.

    ``architecture`` is one of ARCHITECTURES (see ``resolve_architecture``). Failures are not
    cached. Raises MachineError if this machine lacks a compiler or disk space.
    """
    from cudahercules.task.header import solve_header

    return compile_candidate(candidate, solve_header(task), task.library_policy, architecture)


def compile_candidate(
    candidate: Candidate,
    header: str,
    policy: LibraryPolicy,
    architecture: str,
    *,
    toolchain: Toolchain | None = None,
    limits: Limits | None = None,
) -> Artifact | BuildFailure:
    """:func:`build` from the header's text; ``limits`` hold for each file and for all together."""
    if architecture not in ARCHITECTURES:
        raise ValueError(f"unknown architecture {architecture!r}: expected one of {ARCHITECTURES}")
    start = time.monotonic()
    chosen = limits or _LIMITS_OF[policy]
    job = _Job(candidate, header, policy, architecture, toolchain or find_toolchain(), chosen)
    key = job.key()
    place = digest(key, sandbox.features())  # a verdict's sandbox is true of its build, too
    try:
        directory, cached = entry("build", place, lambda private: _make(job, key, private))
    except Refused as failed:
        return BuildFailure(
            kind=failed.kind,
            message=_with_declaration(failed.message, header),
            diagnostics=failed.messages,
            seconds=time.monotonic() - start,
        )
    stored = json.loads((directory / "artifact.json").read_text())
    return Artifact.model_validate(
        {**stored, "directory": directory, "seconds": time.monotonic() - start, "cached": cached}
    )


def _with_declaration(message: str, header: str) -> str:
    """A complaint about the linkage of ``solve`` or ``prepare``, with what solve.h declares."""
    match = re.search(r'"(solve|prepare)" has "C" linkage', message)
    wanted = declaration(header, match[1]) if match else None
    return f"{message}: {wanted}" if wanted else message


@dataclass(frozen=True)
class _Job:
    candidate: Candidate
    header: str
    policy: LibraryPolicy
    architecture: str
    toolchain: Toolchain
    limits: Limits

    def key(self) -> str:
        return digest(
            str(BUILD_VERSION),
            self.toolchain.identity,
            self.architecture,
            " ".join((*compiler_flags(self.architecture), *LINK_FLAGS)),
            self.policy.value,
            self.header,
            " ".join(sorted(exported_names())),
            self.candidate.sha256,
        )


def _make(job: _Job, key: str, private: Path) -> None:
    """Fill the cache entry: sources, one directory a unit, the host object, artifact.json."""
    workshop = Workshop(
        directory=private.resolve(),
        toolchain=job.toolchain,
        architecture=job.architecture,
        policy=job.policy,
        library_directories=(find_cutlass(),) if job.policy is LibraryPolicy.CUTLASS else (),
        limits=job.limits,
    )
    try:
        modules, has_prepare = _compile(job, workshop)
    except Refused as failure:
        if shutil.disk_usage(private).free < LOW_DISK:
            raise MachineError(
                f"no space left for building in {private.parent}: free some, "
                "or set HERCULES_CACHE to another disk"
            ) from failure
        raise
    artifact = Artifact(
        key=key,
        architecture=job.architecture,
        directory=Path("."),
        host_object="host.so",
        has_prepare=has_prepare,
        modules=modules,
        compiler=job.toolchain.title,
        flags=compiler_flags(job.architecture),
        seconds=time.monotonic() - workshop.started,
    )
    (private / "artifact.json").write_text(artifact.model_dump_json(indent=1))
    shutil.rmtree(workshop.temporary)
    for number in range(len(job.candidate.units)):
        (private / str(number) / "unit.o").unlink()


def _compile(job: _Job, workshop: Workshop) -> tuple[tuple[DeviceModule, ...], bool]:
    """All device modules, and whether the host object defines ``prepare``. Raises Refused."""
    workshop.temporary.mkdir()
    for file in job.candidate.files:
        target = workshop.sources / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.text.encode())
    (workshop.sources / GENERATED_HEADER).write_text(job.header)
    units = [unit.name for unit in job.candidate.units]
    modules: list[DeviceModule] = []
    for number, unit in enumerate(units):
        report = workshop.compile_unit(number, unit)
        modules += _device_module(workshop.directory, number, unit, report)
    workshop.link([f"{number}/unit.o" for number in range(len(units))], units[0])
    return tuple(modules), check_host_object(workshop.directory / "host.so", job.header)


def _device_module(directory: Path, number: int, unit: str, report: str) -> list[DeviceModule]:
    """The device module of a compiled unit; none where the unit has neither kernels nor variables."""
    stem = f"{number}/{Path(unit).stem}"
    try:
        kernels, symbols = elf.read_cubin(directory / f"{stem}.cubin", report)
        fatbin_hash = elf.fatbin_hash((directory / f"{stem}.fatbin").read_bytes())
        refused = [n for n in elf.driver_functions(directory / f"{stem}.cubin") if n not in _DRIVER_FUNCTIONS]
    except elf.BadDeviceCode as error:
        raise Refused("error", f"{unit}: {error}") from error
    if heap := [name for name in refused if name in _DEVICE_HEAP]:
        raise Refused(
            "contract",
            f"{unit}: device code calls {heap[0]} (new and delete do, too): there is no device heap; take "
            "scratch memory with cudaMalloc or cudaMallocAsync in solve and pass its address",
        )
    if refused:
        raise Refused(
            "contract",
            f"{unit}: device code calls {', '.join(refused[:4])[:300]}, which the driver would have to "
            "supply: only printf and assert are available",
        )
    if not kernels and not symbols:
        return []
    (directory / f"{stem}.ptxas.txt").write_text(report)
    return [
        DeviceModule(
            source=unit,
            cubin=f"{stem}.cubin",
            ptx=f"{stem}.ptx",
            fatbin_hash=fatbin_hash,
            kernels=kernels,
            symbols=symbols,
        )
    ]
