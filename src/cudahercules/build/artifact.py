"""What ``build`` produces: the device code and the host code of one candidate."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from cudahercules.task.model import Model

SOURCE_PREFIX = "/candidate/"
"""What stands before a candidate's file name in PTX ``.file`` lines and in line tables: the same
for every machine and build directory, so that equal sources give equal device code."""


class KernelInfo(Model):
    """One ``__global__`` function, as the cubin and ptxas describe it.

    ``parameters`` holds (offset, size) in bytes of each parameter in order; sizes are bytes; a
    cluster of (0, 0, 0) means that the kernel fixes none at compile time, and so do
    ``required_threads`` (from ``__block_size__``). Where a kernel recurses, ``local`` is a lower bound.
    """

    name: str
    parameters: tuple[tuple[int, int], ...]
    registers: int
    static_shared: int
    local: int  # bytes of stack a thread
    spill_stores: int
    spill_loads: int
    constant: int
    max_threads: int  # from __launch_bounds__, else 1024
    required_cluster: tuple[int, int, int] = (0, 0, 0)
    required_threads: tuple[int, int, int] = (0, 0, 0)


class SymbolInfo(Model):
    """A module-scope variable: ``space`` is ``global`` or ``constant``; ``writable`` data is
    restored to its initial content before each sample. ``offset`` locates it in its section."""

    name: str
    space: str
    size: int
    offset: int


class DeviceModule(Model):
    """Device code of one translation unit. Paths are relative to the artifact's directory."""

    source: str
    cubin: str
    ptx: str
    fatbin_hash: str  # FNV-1a 64 of the embedded fatbin, which the recorder sees at registration
    kernels: tuple[KernelInfo, ...]
    symbols: tuple[SymbolInfo, ...]


class Artifact(Model):
    """Everything that a candidate is after compilation; content-addressed by ``key``."""

    key: str
    architecture: str  # 80, 90a, 100a, 103a, 120a
    directory: Path
    host_object: str  # shared object that defines solve (and prepare)
    has_prepare: bool
    modules: tuple[DeviceModule, ...]
    compiler: str
    flags: tuple[str, ...]
    seconds: float
    cached: bool = False

    def path(self, name: str) -> Path:
        return self.directory / name

    def kernel(self, module: int, name: str) -> KernelInfo | None:
        return next((k for k in self.modules[module].kernels if k.name == name), None)


class CompilerMessage(Model):
    """One diagnostic of the compiler, with the candidate's own file name."""

    severity: str  # error, warning
    file: str
    line: int
    text: str


class BuildFailure(Model):
    """Why there is no artifact.

    ``error``     the compiler or linker refused the source; ``diagnostics`` says where
    ``timeout``   compiling took longer than allowed
    ``contract``  it would compile, but uses what the task does not allow: a header outside the
                  library policy, or a runtime call that a plan cannot hold

    ``message`` is one or two sentences for a person, with the first error in them.
    """

    kind: Literal["error", "timeout", "contract"]
    message: str
    diagnostics: tuple[CompilerMessage, ...] = ()
    seconds: float
