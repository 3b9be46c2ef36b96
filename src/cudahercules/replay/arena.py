"""Device memory of a plan: one reserved range, every buffer in pages of its own.

Inputs are mapped twice: read-only at the address that kernels see, so that a store traps (error
700), and writable at an address of the driver's choice for the generator. Pages between buffers
stay unmapped: an overrun faults. What is left of a buffer's own pages is its *canary*: filled with
poison and looked at again after kept samples.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from cudahercules.record.plan import PAGE, Buffer
from cudahercules.replay.driver import api

SPACER_PAGES = 64
"""A spacer has fewer pages of 2 MiB than this: far more places than instances."""
SMALLEST_RESERVATION = 1 << 30
"""Reservations under 128 MiB ignore the wanted address (measured, driver 580): stay well above."""


@dataclass
class Mapping:
    """Physical memory of ``size`` bytes (whole pages) at ``address``; ``alias`` is the writable
    address of a read-only mapping, else equal to ``address``."""

    address: int
    alias: int
    size: int
    handle: Any


@dataclass(frozen=True)
class Placement:
    """Where a buffer lies on the device. ``writable`` is the alias for a read-only input.

    ``before`` and ``after`` are the canary ranges (address by the writable mapping, bytes)."""

    buffer: Buffer
    address: int
    writable: int
    before: tuple[int, int]
    after: tuple[int, int]

    @property
    def pages(self) -> tuple[int, int]:
        """Address (writable) and size of the whole mapping."""
        return self.before[0], self.before[1] + self.buffer.size + self.after[1]


def allocation_properties(device: int, exportable: bool = False) -> Any:
    """CUmemAllocationProp for pinned device memory, by default without a shareable handle."""
    properties = api.CUmemAllocationProp()
    properties.type = api.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = api.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = device
    if exportable:
        kinds = api.CUmemAllocationHandleType
        properties.requestedHandleTypes = kinds.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    return properties


def granularity(properties: Any) -> int:
    flags = api.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
    return int(api.cuMemGetAllocationGranularity(properties, flags))


def set_access(address: int, size: int, device: int, *, writable: bool) -> None:
    """Let ``device`` read (and write) ``[address, address + size)``."""
    flags = api.CUmemAccess_flags
    access = api.CUmemAccessDesc()
    access.location.type = api.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    access.location.id = device
    access.flags = (
        flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE if writable else flags.CU_MEM_ACCESS_FLAGS_PROT_READ
    )
    api.cuMemSetAccess(address, size, [access], 1)


class Spacer:
    """A random number of physical pages, taken before other memory is allocated and held beside it.

    The driver hands the pages that were freed last out again; without a spacer every instance of a
    measurement would lie where the one before lay, and placement (about 1 % of a short kernel's time)
    would never vary. The size says nothing about inputs, so an ordinary generator will do.
    """

    def __init__(self, device: int):
        pages = random.randrange(SPACER_PAGES)
        self._handle = api.cuMemCreate(pages * PAGE, allocation_properties(device), 0) if pages else None

    def close(self) -> None:
        if self._handle is not None:
            api.cuMemRelease(self._handle)
            self._handle = None


def whole_pages(address: int, size: int) -> tuple[int, int]:
    """Start and size of the pages that hold ``[address, address + size)``, at least one."""
    start = address // PAGE * PAGE
    end = -(-(address + max(size, 1)) // PAGE) * PAGE
    return start, end - start


class Arena:
    """Reserves, maps and (on :meth:`close`) gives back the memory of ``buffers``.

    ``base`` is the plan's arena base; ``offset`` is what must be added to a plan's addresses (0
    where the driver granted the base). Raises DriverError (code 2 if the device has too little
    memory) and leaves nothing mapped then.
    """

    def __init__(self, buffers: Iterable[Buffer], base: int, device: int):
        self.device = device
        self.placements: list[Placement] = []
        self.mappings: list[Mapping] = []
        buffers = tuple(buffers)
        end = max((b.address + b.size for b in buffers), default=base) + 2 * PAGE
        self.span = max(SMALLEST_RESERVATION, -(-(end - base) // PAGE) * PAGE)
        self.base = int(api.cuMemAddressReserve(self.span, PAGE, base, 0))
        self.offset = self.base - base
        self._properties = allocation_properties(device)
        try:
            for buffer in buffers:
                self.placements.append(self._place(buffer))
        except BaseException:
            self.close()
            raise

    @property
    def device_bytes(self) -> int:
        return sum(m.size for m in self.mappings)

    def _place(self, buffer: Buffer) -> Placement:
        start, size = whole_pages(buffer.address + self.offset, buffer.size)
        mapping = self._map(start, size, read_only=buffer.kind == "input")
        address = buffer.address + self.offset
        lead = address - start
        writable = mapping.alias + lead
        return Placement(
            buffer=buffer,
            address=address,
            writable=writable,
            before=(mapping.alias, lead),
            after=(writable + buffer.size, size - lead - buffer.size),
        )

    def _map(self, address: int, size: int, *, read_only: bool) -> Mapping:
        handle = api.cuMemCreate(size, self._properties, 0)
        mapping = Mapping(address, address, size, handle)
        api.cuMemMap(address, size, 0, handle, 0)
        self.mappings.append(mapping)
        set_access(address, size, self.device, writable=not read_only)
        if read_only:
            mapping.alias = int(api.cuMemAddressReserve(size, PAGE, 0, 0))
            api.cuMemMap(mapping.alias, size, 0, handle, 0)
            set_access(mapping.alias, size, self.device, writable=True)
        return mapping

    def translate(self, address: int) -> int:
        """A plan's arena address as an address on this device."""
        return address + self.offset

    def find(self, name: str) -> Placement:
        return next(p for p in self.placements if p.buffer.name == name)

    def close(self) -> None:
        """Unmap and release everything. The device must be idle."""
        for mapping in self.mappings:
            api.cuMemUnmap(mapping.address, mapping.size)
            if mapping.alias != mapping.address:
                api.cuMemUnmap(mapping.alias, mapping.size)
                api.cuMemAddressFree(mapping.alias, mapping.size)
            api.cuMemRelease(mapping.handle)
        self.mappings.clear()
        if self.span:
            api.cuMemAddressFree(self.base, self.span)
            self.span = 0
