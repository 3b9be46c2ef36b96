"""Read a cubin: kernels, their parameters and resources, and the variables of the module.

A cubin is an ELF file. What a kernel takes and needs stands in ``.nv.info`` (for all functions) and
``.nv.info.<kernel>``: records of one byte format, one byte attribute, two bytes value or size, then
the payload if the format says so. The numbers below were read off cubins beside ``cuobjdump -elf``.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cudahercules.build.artifact import KernelInfo, SymbolInfo

if TYPE_CHECKING:  # pyelftools is imported when a cubin is read: a cached build never needs it
    from elftools.elf.elffile import ELFFile

_PAYLOAD = 4  # format: the 16 bits are the size of what follows

_MAX_THREADS = 0x05
_REQUIRED_THREADS = 0x10
_FRAME_SIZE = 0x11
_MIN_STACK_SIZE = 0x12
_PARAMETER = 0x17
_REGISTERS = 0x2F
_CLUSTER = 0x3D
_PARAMETER_V2 = 0x45  # kernels with more than 4 KB of parameters

_ST_OTHER = 5  # offset of st_other in an Elf64_Sym
_ENTRY = 0x10

_GLOBAL_SECTIONS = (".nv.global", ".nv.global.init")
_CONSTANT_SECTION = ".nv.constant3"
_SOFTWARE_SYMBOL = re.compile(r"^(\.|\$|__nv_reserved|__nv_module_id)")

FATBIN_MAGIC = 0xBA55ED50
DEFAULT_MAX_THREADS = 1024


class BadDeviceCode(ValueError):
    """The bytes are not what nvcc writes."""


@dataclass
class Usage:
    """One function's line in the ptxas report; callees are summed into their kernel."""

    stack: int = 0
    spill_stores: int = 0
    spill_loads: int = 0
    static_shared: int = 0


@dataclass
class _Attributes:
    parameters: dict[int, tuple[int, int]] = field(default_factory=dict)
    max_threads: tuple[int, int, int] | None = None
    required_threads: tuple[int, int, int] = (0, 0, 0)
    cluster: tuple[int, int, int] = (0, 0, 0)


def read_cubin(path: Path, report: str) -> tuple[tuple[KernelInfo, ...], tuple[SymbolInfo, ...]]:
    """Kernels and variables of the cubin at ``path``, in the order of its symbol table.

    ``report`` is what ``ptxas -v`` printed for it: spills and static shared memory stand only
    there (the ELF section adds the KB that the system reserves on sm_90 and later).
    """
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        with path.open("rb") as file:
            elf = ELFFile(file)
            return _kernels(elf, parse_report(report)), _symbols(elf)
    except (ELFError, struct.error, UnicodeDecodeError) as error:
        raise BadDeviceCode(f"{path.name} is not a readable cubin: {error}") from error


def driver_functions(path: Path) -> tuple[str, ...]:
    """Functions that the cubin calls and does not hold: the driver would supply them when it is loaded.
    Raises BadDeviceCode."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        with path.open("rb") as file:
            symbols = _symbol_list(ELFFile(file))
            return tuple(
                s.name
                for s in symbols
                if s["st_shndx"] == "SHN_UNDEF" and s["st_info"]["type"] != "STT_OBJECT" and s.name
            )
    except (ELFError, UnicodeDecodeError) as error:
        raise BadDeviceCode(f"{path.name} is not a readable cubin: {error}") from error


def _symbol_list(elf: ELFFile) -> list[Any]:
    from elftools.elf.sections import SymbolTableSection

    table = elf.get_section_by_name(".symtab")
    return list(table.iter_symbols()) if isinstance(table, SymbolTableSection) else []


def _kernels(elf: ELFFile, usage: dict[str, Usage]) -> tuple[KernelInfo, ...]:
    names = [s.name for s in _symbol_list(elf)]
    registers: dict[str, int] = {}
    stack: dict[str, int] = {}
    shared_info = elf.get_section_by_name(".nv.info")
    for attribute, payload in _records(shared_info.data() if shared_info is not None else b""):
        if attribute in (_REGISTERS, _FRAME_SIZE, _MIN_STACK_SIZE):
            symbol, value = struct.unpack("<II", payload)
            name = names[symbol] if symbol < len(names) else ""
            book = registers if attribute == _REGISTERS else stack
            book[name] = max(book.get(name, 0), value)
    kernels = []
    for name in _entry_names(elf, names):
        info = elf.get_section_by_name(f".nv.info.{name}")
        attributes = _attributes(info.data() if info is not None else b"")
        constant = elf.get_section_by_name(f".nv.constant0.{name}")
        used = usage.get(name, Usage())
        kernels.append(
            KernelInfo(
                name=name,
                parameters=tuple(attributes.parameters[i] for i in sorted(attributes.parameters)),
                registers=registers.get(name, 0),
                static_shared=used.static_shared,
                local=max(stack.get(name, 0), used.stack),
                spill_stores=used.spill_stores,
                spill_loads=used.spill_loads,
                constant=constant.data_size if constant is not None else 0,
                max_threads=_max_threads(attributes),
                required_cluster=attributes.cluster,
                required_threads=attributes.required_threads,
            )
        )
    return tuple(kernels)


def _entry_names(elf: ELFFile, names: list[str]) -> list[str]:
    """Names of ``__global__`` functions: those whose ``st_other`` says that they are entries."""
    table = elf.get_section_by_name(".symtab")
    if table is None:
        return []
    data, size = table.data(), table["sh_entsize"]
    return [name for i, name in enumerate(names) if data[i * size + _ST_OTHER] & _ENTRY]


def _max_threads(attributes: _Attributes) -> int:
    if math.prod(attributes.required_threads):
        return math.prod(attributes.required_threads)
    return math.prod(attributes.max_threads) if attributes.max_threads else DEFAULT_MAX_THREADS


def _attributes(data: bytes) -> _Attributes:
    found = _Attributes()
    for attribute, payload in _records(data):
        if attribute == _PARAMETER:
            _, ordinal, offset, flags = struct.unpack("<IHHI", payload)
            found.parameters[ordinal] = (offset, flags >> 18)
        elif attribute == _PARAMETER_V2:
            _, ordinal, offset, size = struct.unpack("<IHHI", payload)
            found.parameters[ordinal] = (offset, size)
        elif attribute == _MAX_THREADS:
            found.max_threads = struct.unpack("<III", payload)
        elif attribute == _REQUIRED_THREADS:
            found.required_threads = struct.unpack("<III", payload)
        elif attribute == _CLUSTER:
            found.cluster = struct.unpack("<III", payload)
    return found


def _records(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(attribute, payload) of the records that have a payload."""
    at = 0
    while at + 4 <= len(data):
        form, attribute, size = struct.unpack_from("<BBH", data, at)
        at += 4
        if form == _PAYLOAD:
            yield attribute, data[at : at + size]
            at += size


def _symbols(elf: ELFFile) -> tuple[SymbolInfo, ...]:
    """Variables in global and constant memory, ``static`` and function-local ones included."""
    space = {}
    for index, section in enumerate(elf.iter_sections()):
        if section.name in _GLOBAL_SECTIONS:
            space[index] = "global"
        elif section.name == _CONSTANT_SECTION:
            space[index] = "constant"
    return tuple(
        SymbolInfo(name=s.name, space=space[s["st_shndx"]], size=s["st_size"], offset=s["st_value"])
        for s in _symbol_list(elf)
        if s["st_shndx"] in space and s["st_size"] and not _SOFTWARE_SYMBOL.match(s.name)
    )


def parse_report(text: str) -> dict[str, Usage]:
    """``ptxas -v`` by kernel. Stack frames and spills of the device functions that are listed after a
    kernel are added to it."""
    found: dict[str, Usage] = {}
    current: Usage | None = None
    for line in text.splitlines():
        if match := re.search(r"Compiling entry function '([^']+)'", line):
            current = found.setdefault(match[1], Usage())
        elif current is None:
            continue
        elif match := re.search(
            r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line
        ):
            current.stack += int(match[1])
            current.spill_stores += int(match[2])
            current.spill_loads += int(match[3])
        elif match := re.search(r"Used \d+ registers.*?(\d+) bytes smem", line):
            current.static_shared = int(match[1])
    return found


def fatbin_hash(data: bytes) -> str:
    """FNV-1a, 64 bits, as 16 hex digits, over the fatbin's header and payload.

    The header is magic (u32), version (u16), header size (u16), payload size (u64). The recorder
    computes the same over the bytes that the host object registers.
    """
    if len(data) < 16:
        raise BadDeviceCode("a fatbin is at least 16 bytes long")
    magic, _, header, payload = struct.unpack_from("<IHHQ", data)
    if magic != FATBIN_MAGIC or header + payload > len(data):
        raise BadDeviceCode("not a fatbin: wrong magic or size")
    value = 0xCBF29CE484222325
    for byte in memoryview(data)[: header + payload]:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


@dataclass(frozen=True)
class HostSymbols:
    """The dynamic symbols of a host object. ``unresolved`` are names that no system library took."""

    defined: tuple[str, ...]
    unresolved: tuple[str, ...]


def read_host_object(path: Path) -> HostSymbols:
    """Functions that the shared object defines, and names that it expects from somebody else.

    A name that the linker found in libc, libm, libstdc++ or libgcc carries that library's symbol
    version; one without a version was found nowhere.
    """
    from elftools.elf.elffile import ELFFile
    from elftools.elf.gnuversions import GNUVerSymSection
    from elftools.elf.sections import SymbolTableSection

    with path.open("rb") as file:
        elf = ELFFile(file)
        table = elf.get_section_by_name(".dynsym")
        versions = elf.get_section_by_name(".gnu.version")
        defined, unresolved = [], []
        symbols = table.iter_symbols() if isinstance(table, SymbolTableSection) else ()
        for index, symbol in enumerate(symbols):
            binding, kind = symbol["st_info"]["bind"], symbol["st_info"]["type"]
            if symbol["st_shndx"] != "SHN_UNDEF":
                if kind == "STT_FUNC":
                    defined.append(symbol.name)
                continue
            version = versions.get_symbol(index)["ndx"] if isinstance(versions, GNUVerSymSection) else 0
            if binding == "STB_GLOBAL" and not (isinstance(version, int) and version > 1):
                unresolved.append(symbol.name)
    return HostSymbols(tuple(defined), tuple(n for n in unresolved if n))
