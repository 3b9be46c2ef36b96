"""Outputs of kept samples on their way from a GPU process to the judge.

The contestant's process copies them into an allocation of their own, unmaps it (so that no later
launch can reach it) and passes a handle. Where the driver cannot export one, the bytes travel in a
memory file instead. The judge maps what it gets.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cudahercules.record.plan import ALIGNMENT, PAGE
from cudahercules.replay.arena import allocation_properties, set_access
from cudahercules.replay.driver import DriverError, api
from cudahercules.replay.interface import DeviceArray
from cudahercules.replay.messages import Handed, Piece
from cudahercules.task.model import Task, Workload


def _layout(outputs: Mapping[str, tuple[int, int]]) -> tuple[tuple[Piece, ...], int]:
    pieces, end = [], 0
    for name, (_, size) in outputs.items():
        pieces.append(Piece(name=name, offset=end, size=size))
        end += -(-size // ALIGNMENT) * ALIGNMENT
    return tuple(pieces), max(PAGE, -(-end // PAGE) * PAGE)


@dataclass
class _Slot:
    handed: Handed
    descriptor: int


class Keeper:
    """In the contestant's process: copies outputs aside and holds the handles until released."""

    def __init__(self, device: int):
        self.device = device
        self.slots: dict[int, _Slot] = {}
        self.next = 0
        self.exportable = True

    def keep(self, outputs: Mapping[str, tuple[int, int]], stream: Any) -> int:
        """Put aside ``{name: (device pointer, bytes)}``; returns the number of the kept sample.

        Raises DriverError (code 2) if there is no memory for it."""
        pieces, size = _layout(outputs)
        slot = None
        if self.exportable:
            try:
                slot = self._on_device(outputs, pieces, size, stream)
            except DriverError as error:
                if error.code == 2 or error.sticky:
                    raise
                self.exportable = False  # no shareable handles on this system
        if slot is None:
            slot = self._on_host(outputs, pieces, size, stream)
        self.next += 1
        self.slots[self.next] = slot
        return self.next

    def _on_device(
        self, outputs: Mapping[str, tuple[int, int]], pieces: tuple[Piece, ...], size: int, stream: Any
    ) -> _Slot:
        handle = api.cuMemCreate(size, allocation_properties(self.device, exportable=True), 0)
        try:
            kind = api.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
            descriptor = int(api.cuMemExportToShareableHandle(handle, kind, 0))
            address = int(api.cuMemAddressReserve(size, PAGE, 0, 0))
            api.cuMemMap(address, size, 0, handle, 0)
            set_access(address, size, self.device, writable=True)
            for piece in pieces:
                api.cuMemcpyDtoDAsync(address + piece.offset, outputs[piece.name][0], piece.size, stream)
            api.cuStreamSynchronize(stream)
            api.cuMemUnmap(address, size)
            api.cuMemAddressFree(address, size)
        finally:
            api.cuMemRelease(handle)  # the descriptor keeps the memory
        return _Slot(Handed(kind="device", size=size, pieces=pieces), descriptor)

    @staticmethod
    def _on_host(
        outputs: Mapping[str, tuple[int, int]], pieces: tuple[Piece, ...], size: int, stream: Any
    ) -> _Slot:
        descriptor = os.memfd_create("outputs")
        os.ftruncate(descriptor, size)
        api.cuStreamSynchronize(stream)
        with mmap.mmap(descriptor, size) as memory:
            target = np.frombuffer(memory, np.uint8)
            for piece in pieces:
                api.cuMemcpyDtoH(int(target.ctypes.data) + piece.offset, outputs[piece.name][0], piece.size)
            del target
        return _Slot(Handed(kind="host", size=size, pieces=pieces), descriptor)

    def release(self, number: int) -> None:
        slot = self.slots.pop(number, None)
        if slot is not None:
            os.close(slot.descriptor)

    def close(self) -> None:
        for number in list(self.slots):
            self.release(number)


class Received:
    """In the judge's process: one kept sample's outputs (see :class:`interface.KeptOutputs`).

    Takes over ``descriptor``. :meth:`close` unmaps; arrays from :meth:`device` are invalid then."""

    def __init__(self, handed: Handed, descriptor: int, task: Task, workload: Workload, device: int):
        self.task, self.workload, self.device_number = task, workload, device
        self.pieces = {p.name: p for p in handed.pieces}
        self.size = handed.size
        self._pointer = 0
        self._memory: mmap.mmap | None = None
        self._uploaded = 0
        try:
            if handed.kind == "device":
                self._import(descriptor)
            else:
                self._memory = mmap.mmap(descriptor, handed.size, prot=mmap.PROT_READ)
        finally:
            os.close(descriptor)

    def _import(self, descriptor: int) -> None:
        _own_context(self.device_number)
        kind = api.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        handle = api.cuMemImportFromShareableHandle(descriptor, kind)
        try:
            self._pointer = int(api.cuMemAddressReserve(self.size, PAGE, 0, 0))
            api.cuMemMap(self._pointer, self.size, 0, handle, 0)
            set_access(self._pointer, self.size, self.device_number, writable=False)
        finally:
            api.cuMemRelease(handle)

    def host(self, name: str) -> np.ndarray:
        """Output ``name`` in storage dtype and logical shape, copied to the host."""
        piece = self.pieces[name]
        raw = np.empty(piece.size, np.uint8)
        if self._memory is not None:
            raw[:] = np.frombuffer(self._memory, np.uint8, piece.size, piece.offset)
        elif piece.size:
            _own_context(self.device_number)
            api.cuMemcpyDtoH(int(raw.ctypes.data), self._pointer + piece.offset, piece.size)
        tensor = next(t for t in self.task.tensors if t.name == name)
        shape = self.task.shape(tensor, self.workload)
        return raw.view(tensor.dtype.numpy).reshape(shape, order="C" if tensor.layout == "row" else "F")

    def device(self, name: str) -> DeviceArray:
        """Output ``name`` as flat bytes in this process's device memory."""
        piece = self.pieces[name]
        if self._memory is None:
            return DeviceArray(self._pointer + piece.offset, piece.size)
        if not self._uploaded:
            _own_context(self.device_number)
            self._uploaded = int(api.cuMemAlloc(self.size))
            whole = np.frombuffer(self._memory, np.uint8)
            api.cuMemcpyHtoD(self._uploaded, int(whole.ctypes.data), self.size)
        return DeviceArray(self._uploaded + piece.offset, piece.size)

    def close(self) -> None:
        if self._pointer:
            api.cuMemUnmap(self._pointer, self.size)
            api.cuMemAddressFree(self._pointer, self.size)
            self._pointer = 0
        if self._uploaded:
            api.cuMemFree(self._uploaded)
            self._uploaded = 0
        if self._memory is not None:
            self._memory.close()
            self._memory = None


def _own_context(device: int) -> None:
    """Make the device's primary context (torch's own) current in this thread if none is."""
    api.cuInit(0)
    if not int(api.cuCtxGetCurrent()):
        api.cuCtxSetCurrent(api.cuDevicePrimaryCtxRetain(api.cuDeviceGet(device)))
