"""Loaded modules and the state that their variables hold.

A candidate could keep results in module variables: ``__device__`` and ``__constant__`` ones, static
ones, function statics. Every byte of these sections is put back to what it was right after loading,
before each sample. The sections are found in the cubin's symbol table; their addresses on the
device follow from any symbol in them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from elftools.elf.elffile import ELFFile

from cudahercules.errors import PlanError
from cudahercules.replay.driver import LOST, DriverError, api

STATEFUL = (".nv.global", ".nv.constant3")
"""Name prefixes of the sections that hold module variables (.nv.global.init belongs to the first)."""


@dataclass(frozen=True)
class Variable:
    """A module variable as the cubin's symbol table has it: bytes from its section's start."""

    name: str
    offset: int
    size: int


@dataclass(frozen=True)
class Section:
    """A section of variables. ``zero`` says that it starts as zeros (takes no room in the file)."""

    name: str
    size: int
    zero: bool
    variables: tuple[Variable, ...]


def variable_sections(cubin: Path) -> tuple[Section, ...]:
    """The sections of module variables in ``cubin``. Raises PlanError if it is no ELF file."""
    with cubin.open("rb") as file:
        try:
            elf = ELFFile(file)
            table: Any = elf.get_section_by_name(".symtab")
            symbols = list(table.iter_symbols())
            found = []
            for index, section in enumerate(elf.iter_sections()):
                if not section.name.startswith(STATEFUL) or not section["sh_size"]:
                    continue
                variables = tuple(
                    Variable(s.name, s["st_value"], s["st_size"])
                    for s in symbols
                    if s["st_shndx"] == index and s["st_info"]["type"] == "STT_OBJECT" and s["st_size"]
                )
                zero = section["sh_type"] == "SHT_NOBITS"
                found.append(Section(section.name, section["sh_size"], zero, variables))
        except Exception as error:  # pyelftools raises many kinds on damaged files
            raise PlanError(f"{cubin.name} is not a readable cubin: {error}") from error
    return tuple(found)


@dataclass
class _Range:
    """Device memory to restore: from ``content``, or to zeros where that is None."""

    address: int
    size: int
    content: np.ndarray | None


class LoadedModule:
    """One cubin on the device, with a copy (in host memory) of its variables' first values.

    ``unrestorable`` names variables whose address the driver would not tell: the judge must refuse
    the plan then, since these could keep state.
    """

    def __init__(self, cubin: Path):
        self.cubin = cubin
        try:
            self.handle = api.cuModuleLoadData(cubin.read_bytes())
        except DriverError as error:
            if error.code in LOST:
                raise
            raise PlanError(f"this GPU's driver refuses {cubin.name}: {error}") from error
        self.functions: dict[str, Any] = {}
        self.unrestorable: list[str] = []
        self.ranges: list[_Range] = []
        for section in variable_sections(cubin):
            self._remember(section)

    def function(self, name: str) -> Any:
        """The kernel ``name``. Raises PlanError if the cubin has none of that name."""
        if name not in self.functions:
            try:
                self.functions[name] = api.cuModuleGetFunction(self.handle, name.encode())
            except DriverError as error:
                raise PlanError(f"{self.cubin.name} has no kernel {name!r}: {error}") from error
        return self.functions[name]

    def variable(self, name: str) -> tuple[int, int]:
        """Device address and size of a variable. Raises DriverError if the driver knows none."""
        address, size = api.cuModuleGetGlobal(self.handle, name.encode())
        return int(address), int(size)

    def _remember(self, section: Section) -> None:
        bases, unknown = set(), []
        for variable in section.variables:
            try:
                bases.add(self.variable(variable.name)[0] - variable.offset)
            except DriverError:
                unknown.append(variable.name)
        if len(bases) == 1:  # one run of memory: restore it whole, padding included
            self._add(bases.pop(), section.size, section.zero)
            return
        self.unrestorable += unknown
        for variable in section.variables:
            if variable.name not in unknown:
                self._add(*self.variable(variable.name), section.zero)

    def _add(self, address: int, size: int, zero: bool) -> None:
        content = None
        if not zero:
            content = np.empty(size, np.uint8)
            api.cuMemcpyDtoH(content.ctypes.data, address, size)
        self.ranges.append(_Range(address, size, content))

    def restore(self, stream: Any) -> None:
        """Enqueue writes that give every variable its first value."""
        for r in self.ranges:
            if r.content is None:
                api.cuMemsetD8Async(r.address, 0, r.size, stream)
            else:
                api.cuMemcpyHtoDAsync(r.address, r.content.ctypes.data, r.size, stream)

    def close(self) -> None:
        api.cuModuleUnload(self.handle)
