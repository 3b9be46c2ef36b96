"""Programs for Hopper's asynchronous instructions: tensor maps, clusters, modes of asynchrony."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from emulated import KERNELS, PAGE, Program, compile_ptx

from cudahercules.emulator.outcome import Completed, Fault, Outcome
from cudahercules.emulator.ptx.ir import Variable
from cudahercules.emulator.run import emulate
from cudahercules.record.plan import (
    SYMBOL_BASE,
    KernelLaunch,
    LaunchPlan,
    Placed,
    Relocation,
    Symbol,
    TensorMap,
    Upload,
)

ARCHITECTURE = "90a"
MODES = ("eager", "late", "random:1", "random:2")
TYPES = {
    np.dtype(name): number
    for name, number in {
        "uint8": 0,
        "uint16": 1,
        "uint32": 2,
        "int32": 3,
        "uint64": 4,
        "int64": 5,
        "float16": 6,
        "float32": 7,
        "float64": 8,
    }.items()
}


@dataclass(frozen=True)
class Map:
    """An argument that is tensor map number ``index`` of the program."""

    index: int


class HopperProgram(Program):
    """A Program with tensor maps, clusters and a choice of asynchrony."""

    def __init__(self, source: str, tmp_path: Path):
        super().__init__(compile_ptx(KERNELS / source, ARCHITECTURE), tmp_path)
        self.maps: list[TensorMap] = []
        self.asynchrony = "late"

    def tensor_map(
        self,
        name: str,
        box: Sequence[int],
        *,
        shape: Sequence[int] | None = None,
        swizzle: int = 0,
        fill: int = 0,
        steps: Sequence[int] | None = None,
        data_type: int | None = None,
        offset: int = 0,
        kind: str = "tiled",
        **changes: object,
    ) -> Map:
        """A map of array ``name`` (C order; ``shape`` cuts it down); ``box`` innermost first."""
        array = self.arrays[name]
        (buffer,) = [b for b in self.buffers if b.name == name]
        extents = tuple(reversed(shape if shape is not None else array.shape))
        strides = tuple(reversed(array.strides))[1:]
        rank = array.ndim
        self.maps.append(
            TensorMap(
                **{
                    "kind": kind,
                    "data_type": TYPES[array.dtype] if data_type is None else data_type,
                    "rank": rank,
                    "address": buffer.address + offset,
                    "dimensions": extents,
                    "strides": strides,
                    "box": tuple(box),
                    "element_strides": tuple(steps or (1,) * rank),
                    "interleave": 0,
                    "swizzle": swizzle,
                    "l2_promotion": 0,
                    "oob_fill": fill,
                }
                | changes
            )
        )
        return Map(len(self.maps) - 1)

    def launch(  # type: ignore[override]
        self,
        name: str,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        *arguments: object,
        shared: int = 0,
        cluster: tuple[int, int, int] = (0, 0, 0),
    ) -> None:
        kernel = self.kernel(name)
        data, relocations = self._pack(kernel.parameters, arguments)
        placed = [
            Placed(offset=offset, index=argument.index)
            for offset, argument in zip(_offsets(kernel.parameters), arguments, strict=True)
            if isinstance(argument, Map)
        ]
        dims = [(v, 1, 1) if isinstance(v, int) else (*v, *(1,) * (3 - len(v))) for v in (grid, block)]
        self.operations.append(
            KernelLaunch(
                stream=0,
                module=0,
                kernel=kernel.name,
                grid=dims[0],  # type: ignore[arg-type]
                block=dims[1],  # type: ignore[arg-type]
                cluster=cluster,
                dynamic_shared=shared,
                parameters=data,
                relocations=relocations,
                tensor_maps=tuple(placed),
            )
        )

    def _pack(
        self, parameters: Sequence[Variable], arguments: Sequence[object]
    ) -> tuple[bytes, tuple[Relocation, ...]]:
        return super()._pack(parameters, [bytes(128) if isinstance(a, Map) else a for a in arguments])

    def upload_map(self, destination: int, map_: Map) -> None:
        """A tensor map that host code copied into global or constant memory."""
        self.operations.append(
            Upload(
                stream=0,
                destination=destination,
                data=bytes(128),
                tensor_maps=(Placed(offset=0, index=map_.index),),
            )
        )

    def symbol(self, name: str, space: str, size: int) -> None:
        """A module variable that the host code knows by address."""
        address = SYMBOL_BASE + (len(self.symbols) << 20)
        self.symbols.append(Symbol(module=0, name=name, space=space, address=address, size=size))

    def plan(self) -> LaunchPlan:
        return super().plan().model_copy(update={"tensor_maps": tuple(self.maps)})

    def emulated(  # type: ignore[override]
        self, wall_s: float = 20, threads: int | None = None, counting: bool = False
    ) -> Outcome:
        return emulate(
            self.plan(),
            self.artifact,
            self.contents(),
            wall_s,
            threads=threads,
            counting=counting,
            asynchrony=self.asynchrony,
        )

    def complete(self, asynchrony: str | None = None, **options: object) -> Completed:
        self.asynchrony = asynchrony or self.asynchrony
        return super().complete(**options)

    def fault(self, asynchrony: str | None = None, **options: object) -> Fault:
        self.asynchrony = asynchrony or self.asynchrony
        return super().fault(**options)


def _offsets(parameters: Sequence[Variable]) -> list[int]:
    offsets, position = [], 0
    for parameter in parameters:
        position += -position % parameter.alignment
        offsets.append(position)
        position += parameter.size
    return offsets


def line_of(source: str, text: str) -> int:
    """The number of the only line of a kernel file that contains ``text``."""
    found = [i for i, line in enumerate((KERNELS / source).read_text().splitlines(), 1) if text in line]
    assert len(found) == 1, (text, found)
    return found[0]


__all__ = ["ARCHITECTURE", "MODES", "PAGE", "HopperProgram", "Map", "line_of"]
