"""Compile a test kernel to PTX, build plan and artifact by hand, run them in the emulator."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import hardware_collect
import numpy as np

from cudahercules.build.artifact import Artifact, DeviceModule
from cudahercules.cache import digest, entry
from cudahercules.emulator.outcome import Completed, Fault, Outcome
from cudahercules.emulator.ptx.ir import Function, Variable
from cudahercules.emulator.ptx.parse import parse
from cudahercules.emulator.run import emulate
from cudahercules.process import Limits, run_limited
from cudahercules.record.plan import ARENA_BASE, Buffer, KernelLaunch, LaunchPlan, Relocation, Symbol

KERNELS = Path(__file__).parent / "kernels"
PAGE = 2 << 20
ARCHITECTURE = os.environ.get("HERCULES_TEST_ARCHITECTURE", "80")


def compile_ptx(source: Path, architecture: str = ARCHITECTURE) -> str:
    """PTX of ``source`` with line information; cached by content."""
    nvcc = shutil.which("nvcc")
    assert nvcc is not None
    flags = ["-ptx", "-lineinfo", "-std=c++17", f"-arch=sm_{architecture}"]
    key = digest("test-ptx", nvcc, *flags, source.read_text())

    def make(directory: Path) -> None:
        shutil.copy(source, directory / source.name)
        done = run_limited(
            [nvcc, *flags, source.name, "-o", "out.ptx"],
            Limits(wall_s=200),
            cwd=directory,
            env={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(directory)},
        )
        assert done.status == 0, done.stderr.decode()

    directory, _ = entry("test-ptx", key, make)
    return (directory / "out.ptx").read_text()


class Program:
    """Launches over named arrays, run as one plan.

    Arrays are given as (name, array, kind); ``launch`` takes kernel arguments in order: the name of
    an array, or a NumPy scalar, or bytes.
    """

    def __init__(self, ptx: str, tmp_path: Path):
        self.ptx = ptx
        self.module = parse(ptx)
        (tmp_path / "m.ptx").write_text(ptx)
        self.artifact = Artifact(
            key="test",
            architecture="80",
            directory=tmp_path,
            host_object="none",
            has_prepare=False,
            modules=(
                DeviceModule(
                    source="m.cu", cubin="none", ptx="m.ptx", fatbin_hash="0", kernels=(), symbols=()
                ),
            ),
            compiler="nvcc",
            flags=(),
            seconds=0,
        )
        self.arrays: dict[str, np.ndarray] = {}
        self.buffers: list[Buffer] = []
        self.operations: list = []
        self.symbols: list[Symbol] = []
        self.next = ARENA_BASE

    def array(self, name: str, values: np.ndarray, kind: str = "inout") -> np.ndarray:
        values = np.ascontiguousarray(values)
        room = -(-values.nbytes // 256) * 256
        pages = -(-max(room, 1) // PAGE)
        address = self.next + pages * PAGE - room
        self.next += (pages + 1) * PAGE
        self.buffers.append(Buffer(name=name, kind=kind, address=address, size=values.nbytes))
        self.arrays[name] = values
        return values

    def kernel(self, name: str) -> Function:
        """The kernel whose (mangled) name contains ``name`` as a whole identifier."""
        kernels = [f for f in self.module.functions.values() if f.is_kernel]
        found = [f for f in kernels if f.name == name or re.search(rf"\d{name}(?![a-z])", f.name)]
        assert len(found) == 1, (name, [k.name for k in kernels])
        return found[0]

    def launch(
        self,
        name: str,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        *arguments: object,
        shared: int = 0,
        cooperative: bool = False,
    ) -> None:
        kernel = self.kernel(name)
        data, relocations = self._pack(kernel.parameters, arguments)
        self.operations.append(
            KernelLaunch(
                stream=0,
                module=0,
                kernel=kernel.name,
                grid=_dim3(grid),
                block=_dim3(block),
                dynamic_shared=shared,
                cooperative=cooperative,
                parameters=data,
                relocations=relocations,
            )
        )

    def _pack(
        self, parameters: Sequence[Variable], arguments: Sequence[object]
    ) -> tuple[bytes, tuple[Relocation, ...]]:
        data, relocations = bytearray(), []
        names = [b.name for b in self.buffers]
        assert len(parameters) == len(arguments)
        for parameter, argument in zip(parameters, arguments, strict=True):
            data += bytes(-len(data) % parameter.alignment)
            if isinstance(argument, str):
                relocations.append(
                    Relocation(offset=len(data), kind="buffer", index=names.index(argument), addend=0)
                )
                data += bytes(8)
                continue
            value = argument if isinstance(argument, bytes) else np.asarray(argument).tobytes()
            assert len(value) == parameter.size, (parameter, argument)
            data += value
        return bytes(data), tuple(relocations)

    def plan(self) -> LaunchPlan:
        return LaunchPlan(
            task="test",
            workload="test",
            artifact="test",
            architecture="80",
            profile="none",
            arena_base=ARENA_BASE,
            buffers=tuple(self.buffers),
            symbols=tuple(self.symbols),
            solve=tuple(self.operations),
        )

    def contents(self) -> Mapping[str, np.ndarray]:
        return {name: array.reshape(-1).view(np.uint8) for name, array in self.arrays.items()}

    def run(self, **options: object) -> Outcome:
        before = self.bytes() if hardware_collect.wanted() else None
        outcome = self.emulated(**options)  # type: ignore[arg-type]
        if before is not None and isinstance(outcome, Completed):
            hardware_collect.keep_of_test(self.ptx, self.plan().canonical_json(), before, self.bytes())
        return outcome

    def emulated(
        self,
        wall_s: float = 20,
        threads: int | None = None,
        counting: bool = False,
        asynchrony: str = "late",
    ) -> Outcome:
        return emulate(
            self.plan(),
            self.artifact,
            self.contents(),
            wall_s,
            threads=threads,
            counting=counting,
            asynchrony=asynchrony,
        )

    def bytes(self) -> dict[str, bytes]:
        """A copy of what every array holds."""
        return {name: array.tobytes() for name, array in self.arrays.items()}

    def complete(self, **options: object) -> Completed:
        outcome = self.run(**options)
        assert isinstance(outcome, Completed), outcome
        return outcome

    def fault(self, **options: object) -> Fault:
        outcome = self.run(**options)
        assert isinstance(outcome, Fault), outcome
        return outcome


def _dim3(value: int | Sequence[int]) -> tuple[int, int, int]:
    values = (value,) if isinstance(value, int) else tuple(value)
    return (*values, *(1,) * (3 - len(values)))  # type: ignore[return-value]
