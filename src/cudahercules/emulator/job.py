"""A plan as the text that the host program reads, and the memory file that goes with it."""

from __future__ import annotations

import mmap
import os
from collections.abc import Container, Mapping
from dataclasses import dataclass

import numpy as np

from cudahercules.build.artifact import Artifact
from cudahercules.emulator.asynchrony import LATE, parsed
from cudahercules.emulator.space import PAGE, Region, Space, page_runs
from cudahercules.emulator.tensor_map import encode
from cudahercules.errors import MachineError, PlanError
from cudahercules.record.plan import Copy, KernelLaunch, LaunchPlan, Memset, Upload

NOT_YET = 0xFF
"""Every byte of an input that does not exist yet: NaN as floating point, -1 as an integer."""


@dataclass
class Job:
    """``lines`` for the host's standard input; ``memory`` the descriptor of the shared file."""

    lines: list[str]
    memory: int
    mapped: mmap.mmap
    places: dict[str, tuple[int, int]]  # buffer name -> offset in the file, size

    def close(self) -> None:
        self.mapped.close()
        os.close(self.memory)

    def read(self, name: str) -> np.ndarray:
        offset, size = self.places[name]
        return np.frombuffer(self.mapped, np.uint8, size, offset).copy()


@dataclass(frozen=True, slots=True)
class Poison:
    """What memory holds that begins undefined: a byte of shared memory, two bytes of scratch."""

    shared: int = 0xFF
    scratch: int = 0x7FFF


POISON = Poison()


class _Blobs:
    """Bytes behind the buffers in the memory file."""

    def __init__(self, start: int):
        self.start = start
        self.parts: list[bytes] = []
        self.size = 0

    def add(self, data: bytes) -> int:
        offset = self.start + self.size
        self.parts.append(data)
        self.size += len(data)
        return offset


def write_job(
    plan: LaunchPlan,
    artifact: Artifact,
    space: Space,
    contents: Mapping[str, np.ndarray],
    result_fd: int,
    threads: int,
    seconds: float,
    asynchrony: str = LATE,
    poison: Poison = POISON,
    after_prepare: Container[str] = (),
) -> Job:
    """``asynchrony`` and ``after_prepare`` as in ``emulate``. Raises UsageError for another word, PlanError
    where an operation leaves its memory, MachineError if memory is short."""
    mode, seed = parsed(asynchrony)
    offset = 0
    places: dict[str, tuple[int, int]] = {}
    lines: list[str] = [f"poison {poison.shared} {poison.scratch}"]
    for region in space.buffers:
        if not region.size:
            continue
        if region.role in ("output", "scratch"):
            lines.append(f"track {region.address} {region.size}")
        start, pages = page_runs([region])[0]
        if region.name not in contents:
            lines.append(f"map {start} {pages} -1")
            continue
        given = contents[region.name].nbytes
        if given != region.size:
            raise PlanError(f"buffer {region.name!r} has {region.size} bytes in the plan and {given} given")
        lines.append(f"map {start} {pages} {offset}")
        places[region.name] = (offset + region.address - start, region.size)
        offset += pages
    blobs = _Blobs(offset)
    lines += _symbols(space, blobs)
    lines += [
        f"range {r.kind} {i} {r.address} {r.size} {int(r.writable)}"
        for i, r in enumerate(space.regions)
        if r.size
    ]
    lines.append("ready")
    late = [r for r in space.buffers if plan.prepare and r.name in places and r.name in after_prepare]
    for number, operation in enumerate((*plan.prepare, *plan.solve)):
        if number == len(plan.prepare):
            lines += [f"bytes {r.address} {blobs.add(contents[r.name].tobytes())} {r.size}" for r in late]
        if isinstance(operation, KernelLaunch):
            lines.append(_launch(plan, artifact, space, operation, number, blobs))
        elif isinstance(operation, Memset):
            lines.append(_memset(space, operation))
        elif isinstance(operation, Copy):
            lines.append(_copy(space, operation))
        elif isinstance(operation, Upload):
            data = _filled(plan, operation)
            _check(space, "upload", operation.destination, len(data), 1, 0)
            lines.append(f"bytes {operation.destination} {blobs.add(data)} {len(data)}")
    total = -(-(offset + blobs.size + 1) // PAGE) * PAGE
    memory, mapped = _memory_file(total)
    for name, (at, size) in places.items():
        absent = any(r.name == name for r in late)
        held = NOT_YET if absent else contents[name].view(np.uint8).reshape(-1)
        np.frombuffer(mapped, np.uint8, size, at)[:] = held
    mapped[blobs.start : blobs.start + blobs.size] = b"".join(blobs.parts)
    lines.insert(0, f"job {memory} {result_fd} {total} {threads} {seconds} {plan.stack_limit} {mode} {seed}")
    return Job(lines, memory, mapped, places)


def _memory_file(size: int) -> tuple[int, mmap.mmap]:
    memory = os.memfd_create("hercules-arena")
    try:
        os.ftruncate(memory, size)
        return memory, mmap.mmap(memory, size)
    except (OSError, ValueError) as error:
        os.close(memory)
        raise MachineError(f"no memory for the plan's buffers ({size} bytes): {error}") from error


def _symbols(space: Space, blobs: _Blobs) -> list[str]:
    lines = [f"map {start} {size} -2" for start, size in page_runs(list(space.symbols.values()))]
    lines += [f"module {module.library}" for module in space.modules]
    for number, module in enumerate(space.modules):
        for index, variable in enumerate(module.variables):
            address = space.symbol_address(number, variable.name)
            lines.append(f"symbol {number} {index} {address}")
            if data := space.initial_bytes(number, index):
                lines.append(f"bytes {address} {blobs.add(data)} {len(data)}")
    return lines


def _filled(plan: LaunchPlan, operation: KernelLaunch | Upload) -> bytes:
    """The operation's bytes with addresses and tensor maps in their places."""
    filled = bytearray(operation.parameters if isinstance(operation, KernelLaunch) else operation.data)
    for placed in operation.tensor_maps:
        encoded = encode(plan.tensor_maps[placed.index])
        filled[placed.offset : placed.offset + len(encoded)] = encoded
    for r in operation.relocations:
        base = plan.buffers[r.index].address if r.kind == "buffer" else plan.symbols[r.index].address
        filled[r.offset : r.offset + 8] = (base + r.addend).to_bytes(8, "little")
    return bytes(filled)


def _launch(
    plan: LaunchPlan, artifact: Artifact, space: Space, launch: KernelLaunch, number: int, blobs: _Blobs
) -> str:
    if launch.module >= len(space.modules):
        raise PlanError(f"launch of {launch.kernel} names module {launch.module}, which does not exist")
    data = _arranged(_filled(plan, launch), artifact, space, launch)
    words = (
        number,
        launch.module,
        *launch.grid,
        *launch.block,
        *launch.cluster,
        launch.dynamic_shared,
        int(launch.cooperative),
        blobs.add(data),
        len(data),
        launch.kernel,
    )
    return "launch " + " ".join(map(str, words))


def _arranged(data: bytes, artifact: Artifact, space: Space, launch: KernelLaunch) -> bytes:
    """The parameters where PTX has them. A plan has them where the cubin does, which aligns their addresses
    in its constant bank: a first parameter that is aligned to 128 bytes does not lie at offset 0 there."""
    kernels = artifact.modules[launch.module].kernels
    given = next((k.parameters for k in kernels if k.name == launch.kernel), ())
    wanted = space.modules[launch.module].parameters.get(launch.kernel, ())
    if given == wanted or [size for _, size in given] != [size for _, size in wanted]:
        return data
    out = bytearray(max((at + size for at, size in wanted), default=0))
    for (source, size), (target, _) in zip(given, wanted, strict=True):
        out[target : target + size] = data[source : source + size]
    return bytes(out)


def _memset(space: Space, m: Memset) -> str:
    pitch = m.pitch or m.width * m.element_size
    _check(space, "memset", m.address, m.width * m.element_size, m.height, pitch)
    return f"memset {m.address} {m.value} {m.element_size} {m.width} {m.height} {pitch}"


def _copy(space: Space, c: Copy) -> str:
    to, source = c.destination_pitch or c.width, c.source_pitch or c.width
    _check(space, "copy", c.destination, c.width, c.height, to)
    _check(space, "copy", c.source, c.width, c.height, source)
    return f"copy {c.destination} {c.source} {c.width} {c.height} {to} {source}"


def _check(space: Space, what: str, address: int, width: int, height: int, pitch: int) -> None:
    """Rows of a host operation stay in one region (the plan's parser has checked them already)."""
    if width and height and space.holding(address, (height - 1) * pitch + width) is None:
        raise PlanError(f"{what} of {width} bytes {space.describe(address, width)}")


def written_by_host(plan: LaunchPlan, region: Region) -> bool:
    """Whether a memset, copy or upload of the plan writes into ``region``."""
    for operation in (*plan.prepare, *plan.solve):
        address = getattr(operation, "destination", getattr(operation, "address", None))
        if address is not None and region.address <= address < region.end:
            return True
    return False
