"""Compile a candidate: device code, the PTX it was made from, and the host object.

nvcc is asked for its steps (``--dryrun``) and these are run as it would run them, with two
differences. Preprocessing comes first, so that the headers can be checked before any other stage
prints a file's content; and the source path that nvcc hashes into the names of ``static`` kernels
is replaced by a fixed one, so that equal sources give equal cubins wherever they are built.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cudahercules.build import diagnostics, elf
from cudahercules.build.artifact import SOURCE_PREFIX, Artifact, BuildFailure, DeviceModule
from cudahercules.build.candidate import GENERATED_HEADER, Candidate
from cudahercules.build.diagnostics import WORKING_DIRECTORY
from cudahercules.build.hostcheck import HostObjectRefused, check_host_object, exported_names
from cudahercules.build.includes import refused_include
from cudahercules.build.toolchain import Toolchain, find_cutlass, find_toolchain
from cudahercules.cache import digest, entry
from cudahercules.errors import MachineError
from cudahercules.process import Finished, Limits, run_limited
from cudahercules.task.model import ARCHITECTURES, LibraryPolicy, Task

BUILD_VERSION = 1
"""Raised whenever the same inputs would give another artifact; it is part of the cache's key."""

LIMITS = Limits(wall_s=120, cpu_s=120, memory=8 << 30, file_size=512 << 20, output=1 << 20)
CUTLASS_LIMITS = Limits(wall_s=600, cpu_s=600, memory=12 << 30, file_size=512 << 20, output=1 << 20)
"""A CUTLASS attention kernel with its backward pass was measured at 310 s and 10.8 GB."""

LOW_DISK = 32 << 20
"""Less free space than this beside a failed build: the disk is to blame, not the candidate."""


def compiler_flags(architecture: str) -> tuple[str, ...]:
    """What every candidate is compiled with; tasks and candidates cannot add to it."""
    return (
        "-std=c++17",
        "-O3",
        "-lineinfo",
        "-gencode",
        f"arch=compute_{architecture},code=sm_{architecture}",
        "-Xptxas",
        "-v",
        "-Xcompiler",
        f"-fPIC,-fmacro-prefix-map={WORKING_DIRECTORY}=",
    )


LINK_FLAGS = ("-shared", "-Wl,--build-id=none", "-Wl,-z,noexecstack")


class _Failed(Exception):
    """Carries a failure out of the cache's ``make``, which then keeps nothing."""

    def __init__(self, kind: Literal["error", "timeout", "contract"], message: str, messages: tuple = ()):
        super().__init__(message)
        self.kind, self.message, self.messages = kind, message, messages


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
    chosen = limits or (CUTLASS_LIMITS if policy is LibraryPolicy.CUTLASS else LIMITS)
    job = _Job(candidate, header, policy, architecture, toolchain or find_toolchain(), chosen)
    key = job.key()
    try:
        directory, cached = entry("build", key, lambda private: _make(job, key, private))
    except _Failed as failed:
        return BuildFailure(
            kind=failed.kind,
            message=failed.message,
            diagnostics=failed.messages,
            seconds=time.monotonic() - start,
        )
    stored = json.loads((directory / "artifact.json").read_text())
    return Artifact.model_validate(
        {**stored, "directory": directory, "seconds": time.monotonic() - start, "cached": cached}
    )


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

    def library_directories(self) -> tuple[Path, ...]:
        return (find_cutlass(),) if self.policy is LibraryPolicy.CUTLASS else ()


def _make(job: _Job, key: str, private: Path) -> None:
    """Fill the cache entry: sources, one directory a unit, the host object, artifact.json."""
    started = time.monotonic()
    try:
        sources = private / "source"
        for file in job.candidate.files:
            target = sources / file.name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.text.encode())
        (sources / GENERATED_HEADER).write_text(job.header)
        (private / "tmp").mkdir()
        modules, objects = [], []
        for number, unit in enumerate(job.candidate.units):
            modules += _compile_unit(job, private, number, unit.name, started)
            objects.append(f"{number}/unit.o")
        _link(job, private, objects, started)
        try:
            has_prepare = check_host_object(private / "host.so", job.header)
        except HostObjectRefused as refused:
            raise _Failed(refused.kind, refused.message) from refused
    except (_Failed, elf.BadDeviceCode) as failure:
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
        modules=tuple(modules),
        compiler=job.toolchain.title,
        flags=compiler_flags(job.architecture),
        seconds=time.monotonic() - started,
    )
    (private / "artifact.json").write_text(artifact.model_dump_json(indent=1))
    for leftover in (private / "tmp", *(private / str(n) / "unit.o" for n in range(len(objects)))):
        shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()


def _compile_unit(job: _Job, private: Path, number: int, unit: str, started: float) -> list[DeviceModule]:
    """Compile one ``.cu`` file into ``private/<number>/``."""
    output = private / str(number)
    output.mkdir()
    commands, environment = _steps(job, private, number, unit)
    preprocess = [c for c in commands if " -E " in c]
    _run_steps(job, private, unit, preprocess, environment, started)
    preprocessed = sorted(output.glob("*.ii"))
    for text in preprocessed:
        content = text.read_bytes()
        refusal = refused_include(
            content, private / "source", job.toolchain, job.policy, job.library_directories()
        )
        if refusal is not None:
            raise _Failed("contract", refusal)
        text.write_bytes(_with_fixed_paths(content))
    rest = [c for c in commands if " -E " not in c]
    report = _run_steps(job, private, unit, rest, environment, started)
    _check_assembler_reads(output / "assembler.d", private / "source")
    module = _collect(private, output, unit, report)
    for left in output.iterdir():
        if left.suffix not in (".cubin", ".ptx", ".fatbin", ".o", ".txt"):
            left.unlink()
    return module


def _steps(job: _Job, private: Path, number: int, unit: str) -> tuple[list[str], dict[str, str]]:
    """nvcc's own commands for one file, and the environment that it gives them."""
    stem = f"../{number}"
    includes = ["-I", WORKING_DIRECTORY.rstrip("/")]
    for directory in job.library_directories():
        includes += ["-isystem", str(directory)]
    argv = [
        str(job.toolchain.nvcc),
        "--dryrun",
        *compiler_flags(job.architecture),
        "-Xcompiler",
        f"-Xassembler,--MD,-Xassembler,{stem}/assembler.d",
        "-frandom-seed",
        unit,
        "-ccbin",
        str(job.toolchain.host_compiler),
        "--keep",
        "--keep-dir",
        stem,
        "-include",
        f"{WORKING_DIRECTORY}{GENERATED_HEADER}",
        *includes,
        "-c",
        f"{WORKING_DIRECTORY}{unit}",
        "-o",
        f"{stem}/unit.o",
    ]
    environment = job.toolchain.environment(private / "tmp")
    dry = run_limited(argv, Limits(wall_s=60, cpu_s=60), cwd=private / "source", env=environment)
    lines = [line[3:] for line in dry.stderr.decode(errors="replace").splitlines() if line.startswith("#$ ")]
    commands = []
    for line in lines:
        if match := re.match(r"([A-Z_]+)=(.*)", line):
            if match[1] in ("CICC_PATH", "NVVMIR_LIBRARY_DIR"):
                environment[match[1]] = match[2]
        elif not line.startswith("rm "):
            commands.append(re.sub(r'(--orig_src_path_name) "[^"]*"', rf'\1 "{SOURCE_PREFIX}{unit}"', line))
    if dry.status != 0 or not any(" -E " in c for c in commands):
        text = dry.stderr.decode(errors="replace").strip().splitlines()
        raise MachineError(f"{job.toolchain.nvcc} --dryrun failed: {text[-1] if text else dry.status}")
    return commands, environment


def _with_fixed_paths(preprocessed: bytes) -> bytes:
    """Line markers of the candidate's files with the prefix that ends in PTX and line tables."""
    pattern = rb'^(# \d+ ")' + re.escape(WORKING_DIRECTORY.encode())
    return re.sub(pattern, rb"\g<1>" + SOURCE_PREFIX.encode(), preprocessed, flags=re.MULTILINE)


def _run_steps(
    job: _Job, private: Path, unit: str, commands: Sequence[str], environment: dict[str, str], started: float
) -> str:
    """Run ``commands`` one after the other up to the first that fails; what they printed."""
    stage = private / "tmp/stage"
    lines = []
    for command in commands:
        tool = Path(command.split()[0].strip('"')).name
        lines.append(f'{command}\ns=$?; [ $s = 0 ] || {{ echo "{tool} $s" > ../tmp/stage; exit 1; }}')
    done = _run(job, ["/bin/sh", "-c", "\n".join(lines)], private / "source", environment, started)
    text = (done.stdout + done.stderr).decode(errors="replace")
    if done.status == 0 and not done.timed_out:
        return text
    tool, status = stage.read_text().split() if stage.exists() else ("nvcc", str(done.status))
    raise _explain(job, done, text, unit, tool, int(status), private)


def _run(job: _Job, argv: Sequence[str], cwd: Path, environment: dict[str, str], started: float) -> Finished:
    left = max(0.1, job.limits.wall_s - (time.monotonic() - started))
    limits = Limits(
        wall_s=left,
        cpu_s=job.limits.cpu_s,
        memory=job.limits.memory,
        file_size=job.limits.file_size,
        processes=job.limits.processes,
        output=job.limits.output,
    )
    return run_limited(argv, limits, cwd=cwd, env=environment)


_MEMORY = re.compile(r"bad_alloc|out of memory|virtual memory exhausted|[Cc]annot allocate memory")


def _explain(
    job: _Job, done: Finished, text: str, unit: str, tool: str, status: int, private: Path
) -> _Failed:
    """The failure of one stage as a person would put it."""
    output = next((p for p in private.iterdir() if p.name.isdigit() and not (p / "unit.o").exists()), None)
    messages = diagnostics.parse(text, unit, output)
    errors = [m for m in messages if m.severity == "error"]
    died = -status if status < 0 else status - 128
    out_of_time = died == signal.SIGXCPU or (
        died == signal.SIGKILL and done.seconds >= (job.limits.cpu_s or 0)
    )
    if done.timed_out or out_of_time:
        return _Failed(
            "timeout",
            f"compiling {unit} was stopped after {job.limits.wall_s:g} s ({tool} was running): "
            "use fewer or smaller template instantiations or less unrolling",
            messages,
        )
    if "unsupported GNU version" in text and any(m.file.endswith("host_config.h") for m in errors):
        raise MachineError(
            f"nvcc {job.toolchain.title.split()[1].rstrip(',')} does not support "
            f"g++ {job.toolchain.host_version}; put an older g++ first on PATH"
        )
    if errors:
        return _Failed("error", diagnostics.summary(messages), messages)
    if _MEMORY.search(text):
        limit = (job.limits.memory or 0) >> 20
        return _Failed("error", f"{tool} ran out of memory on {unit} (limit {limit} MiB)")
    if died == signal.SIGXFSZ:
        return _Failed("error", f"{tool} wrote more than {(job.limits.file_size or 0) >> 20} MiB for {unit}")
    if died > 0:
        return _Failed("error", f"{tool} crashed on {unit} ({signal.Signals(died).name})")
    last = diagnostics.without_paths(
        text.strip().splitlines()[-1] if text.strip() else f"exit status {status}"
    )
    return _Failed("error", f"{tool} failed on {unit}: {last[: diagnostics.MAX_TEXT]}")


def _check_assembler_reads(dependencies: Path, sources: Path) -> None:
    """Refuse host assembly that reads files (``.incbin``), except the candidate's own."""
    own = str(sources.resolve()) + "/"
    text = dependencies.read_text().replace("\\\n", " ")
    for name in text.partition(":")[2].split():
        read = (sources / name).resolve()
        generated = name.endswith((".s", ".cudafe1.cpp"))
        if not generated and not str(read).startswith(own):
            raise _Failed("contract", f"inline assembly of the host code reads the file {name}")


def _collect(private: Path, output: Path, unit: str, report: str) -> list[DeviceModule]:
    """The device module of a compiled unit; none where the unit has neither kernels nor variables."""
    stem = Path(unit).stem
    cubin, ptx, fatbin = (output / f"{stem}.{kind}" for kind in ("cubin", "ptx", "fatbin"))
    kernels, symbols = elf.read_cubin(cubin, report)
    if not kernels and not symbols:
        return []
    (output / "ptxas.txt").write_text(report)
    relative = output.relative_to(private)
    return [
        DeviceModule(
            source=unit,
            cubin=str(relative / cubin.name),
            ptx=str(relative / ptx.name),
            fatbin_hash=elf.fatbin_hash(fatbin.read_bytes()),
            kernels=kernels,
            symbols=symbols,
        )
    ]


def _link(job: _Job, private: Path, objects: Sequence[str], started: float) -> None:
    argv = [str(job.toolchain.host_compiler), *LINK_FLAGS, "-o", "host.so", *objects]
    done = _run(job, argv, private, job.toolchain.environment(private / "tmp"), started)
    if done.status != 0 or done.timed_out:
        text = (done.stdout + done.stderr).decode(errors="replace")
        raise _explain(job, done, text, job.candidate.units[0].name, "the linker", done.status, private)
