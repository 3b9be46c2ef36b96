"""From an expert file to PTX that ptxas accepts, through the cache; failures are remembered, too."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from pathlib import Path

from cudahercules.build.toolchain import Toolchain, find_toolchain
from cudahercules.cache import cache_root, digest, entry
from cudahercules.emulator.corpus.manifest import ARCHITECTURE, OWN, TOOLKIT, ExpertFile, manifest
from cudahercules.emulator.corpus.wheels import include_directories, unpacked
from cudahercules.errors import MachineError
from cudahercules.process import Limits, run_limited
from cudahercules.task.header import solve_header
from cudahercules.task.load import load_task

_LIMITS = Limits(wall_s=1200, memory=12 << 30, output=1 << 18)
_FLAGS = ("-ptx", "-std=c++17", "-O3", "-w", "--expt-relaxed-constexpr", "--expt-extended-lambda")


@dataclass(frozen=True)
class Compiled:
    """``ptx`` is None where a compiler refused the file; ``message`` says which one and why.
    ``seconds`` is what nvcc took when the file was compiled, not what this call took."""

    ptx: Path | None
    message: str
    seconds: float
    key: str


def key_of(file: ExpertFile, target: str) -> str:
    """The cache's key: everything that decides what the PTX is. Nothing is fetched for it."""
    named = [manifest().wheels[w] for w in (file.origin, *file.uses) if w not in (TOOLKIT, OWN)]
    wheels = [part for w in named for part in (w.sha256, *w.keep, *w.include)]
    text = _own_text(file)
    header = solve_header(load_task(file.task)) if file.task else ""
    return digest(
        "corpus", find_toolchain().identity, ARCHITECTURE[target], *_FLAGS, *file.flags, file.path, *wheels,
        text, header,
    )  # fmt: skip


def at_hand(file: ExpertFile, target: str) -> bool:
    """Whether ``compiled`` would find the file in the cache."""
    key = key_of(file, target)
    return (cache_root() / "corpus" / key[:2] / key).is_dir()


def compiled(file: ExpertFile, target: str) -> Compiled:
    """Compile ``file``. Raises MachineError if a wheel or a compiler cannot be had."""
    key = key_of(file, target)
    directory, _ = entry("corpus", key, lambda private: _make(file, target, private))
    result = json.loads((directory / "result.json").read_text())
    ptx = directory / "out.ptx"
    return Compiled(ptx if ptx.is_file() else None, result["message"], result["seconds"], key)


def _own_text(file: ExpertFile) -> str:
    """The text of which we have a copy: glue code, or one of our own kernels; else nothing."""
    if file.task:
        return (load_task(file.task).directory / file.path).read_text()
    return file.code


def _make(file: ExpertFile, target: str, private: Path) -> None:
    toolchain = find_toolchain()
    source = private / "source.cu"
    if text := _own_text(file):
        source.write_text(text)
    else:
        source = unpacked(manifest().wheels[file.origin]) / file.path
        if not source.is_file():
            raise MachineError(f"{file.name}: {file.path} is not in the wheel of {file.origin}")
    if file.task:
        (private / "solve.h").write_text(solve_header(load_task(file.task)))
    start = time.monotonic()
    ptx = private / "out.ptx"
    arch = f"-arch=sm_{ARCHITECTURE[target]}"
    command: list[str | Path] = [toolchain.nvcc, *_FLAGS, arch, *file.flags]
    command += _includes(file, source, private)
    message = _failure(toolchain, [*command, source, "-o", ptx], private)
    seconds = time.monotonic() - start
    if not message:
        ptxas = toolchain.root / "bin/ptxas"
        message = _failure(toolchain, [ptxas, arch, "-O0", ptx, "-o", private / "out.cubin"], private)
        if message:
            ptx.unlink()
    for left in ("out.cubin", "source.cu", "solve.h"):
        (private / left).unlink(missing_ok=True)
    (private / "result.json").write_text(json.dumps({"message": message, "seconds": round(seconds, 1)}))


def _includes(file: ExpertFile, source: Path, private: Path) -> list[str]:
    folders = [private, source.parent]
    for name in (file.origin, *file.uses):
        if name not in (TOOLKIT, OWN):
            folders += include_directories(manifest().wheels[name])
    return [f"-I{folder}" for folder in folders]


def _failure(toolchain: Toolchain, argv: list[str | Path], directory: Path) -> str:
    """Run a compiler; its first complaint, or nothing if it was content."""
    done = run_limited(argv, _LIMITS, cwd=directory, env=toolchain.environment(directory))
    if done.timed_out:
        raise MachineError(
            f"{Path(argv[0]).name} took more than {_LIMITS.wall_s:.0f} s: try again on an idle machine"
        )
    if done.status == 0:
        return ""
    if done.status < 0 or b"bad_alloc" in done.stderr:
        raise MachineError(f"{Path(argv[0]).name} ended with status {done.status} (memory full?): try again")
    lines = (done.stdout + done.stderr).decode(errors="replace").splitlines()
    complaint = next(
        (line for line in lines if "error" in line or "fatal" in line), lines[0] if lines else "failed"
    )
    return f"{Path(argv[0]).name}: {re.sub(r'[^ ]*/(?:wheels|corpus)/../[^/ ]+/', '', complaint)}"[:300]
