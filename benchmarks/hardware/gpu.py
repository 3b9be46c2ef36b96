"""Launch plans on the first GPU through the driver's C interface (ctypes): nothing else need be installed.

All buffers of all programs lie in one mapping at the plans' own arena base, so that addresses which programs
write are the emulator's. Streams are ignored: the order of issue is one legal order.
"""

from __future__ import annotations

import base64
import ctypes
from collections.abc import Mapping
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from pathlib import Path

STICKY = {700, 702, 710, 714, 715, 716, 717, 718, 719, 720, 721}
"""CUresults after which the context is unusable."""
SMALLEST_RESERVATION = 1 << 30
"""Smaller reservations of addresses ignore the wanted base."""
STACK_BYTES = 16 << 10
"""Of each thread; recursive kernels need more than the default of 1 KiB."""
_MAX_DYNAMIC_SHARED, _NON_PORTABLE_CLUSTER = 8, 14
_COOPERATIVE, _CLUSTER = 2, 4


class DriverError(Exception):
    """A driver call failed; ``sticky`` says that nothing more will run in this process."""

    def __init__(self, call: str, code: int, name: str):
        super().__init__(f"{call}: {name} ({code})")
        self.sticky = code in STICKY


class _Location(ctypes.Structure):
    _fields_ = (("type", c_int), ("id", c_int))


class _AllocationProperties(ctypes.Structure):
    _fields_ = (
        ("type", c_int),
        ("handle_types", c_int),
        ("location", _Location),
        ("windows", c_void_p),
        ("flags", c_uint64),
    )


class _Access(ctypes.Structure):
    _fields_ = (("location", _Location), ("flags", c_int))


class _Attribute(ctypes.Structure):
    _fields_ = (("id", c_int), ("padding", c_int), ("value", c_uint * 16))


class _Configuration(ctypes.Structure):
    _fields_ = (
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared", c_uint),
        ("stream", c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", c_uint),
    )


class Driver:
    """``driver("cuInit", c_uint(0))`` calls a function and raises DriverError unless it succeeded."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")

    def __call__(self, name: str, *arguments: object) -> None:
        code = getattr(self.library, name)(*arguments)
        if code:
            text = c_char_p()
            self.library.cuGetErrorName(code, byref(text))
            raise DriverError(name, code, (text.value or b"unknown").decode())


def _kernel_driver() -> str:
    """What the kernel's driver says of its version; empty where it says nothing."""
    path = Path("/proc/driver/nvidia/version")
    return path.read_text().split("\n")[0] if path.exists() else ""


class Gpu:
    """The first GPU with ``[base, end)`` mapped. Raises DriverError."""

    def __init__(self, base: int, end: int):
        self.call = Driver()
        self.device, self.context = c_int(), c_void_p()
        self.call("cuInit", c_uint(0))
        self.call("cuDeviceGet", byref(self.device), c_int(0))
        self.call("cuDevicePrimaryCtxRetain", byref(self.context), self.device)
        self.call("cuCtxSetCurrent", self.context)
        self.call("cuCtxSetLimit", c_int(0), c_size_t(STACK_BYTES))
        properties = _AllocationProperties(1, 0, _Location(1, 0), None, 0)  # pinned, on device 0
        grain = c_size_t()
        self.call("cuMemGetAllocationGranularity", byref(grain), byref(properties), c_int(0))
        self.size = -(-(end - base) // grain.value) * grain.value
        address, handle = c_uint64(), c_uint64()
        span = c_size_t(max(self.size, SMALLEST_RESERVATION))
        self.call(
            "cuMemAddressReserve", byref(address), span, c_size_t(grain.value), c_uint64(base), c_uint64(0)
        )
        self.call("cuMemCreate", byref(handle), c_size_t(self.size), byref(properties), c_uint64(0))
        self.call("cuMemMap", address, c_size_t(self.size), c_size_t(0), handle, c_uint64(0))
        access = _Access(_Location(1, 0), 3)  # read and write
        self.call("cuMemSetAccess", address, c_size_t(self.size), byref(access), c_size_t(1))
        self.base, self.offset = base, address.value - base

    def about(self) -> dict:
        """The GPU's name, its compute capability, and the CUDA version that the driver supports."""
        name, version = ctypes.create_string_buffer(256), c_int()
        self.call("cuDeviceGetName", name, c_int(256), self.device)
        self.call("cuDriverGetVersion", byref(version))
        capability = []
        for attribute in (75, 76):
            value = c_int()
            self.call("cuDeviceGetAttribute", byref(value), c_int(attribute), self.device)
            capability.append(str(value.value))
        return {
            "gpu": name.value.decode(),
            "capability": ".".join(capability),
            "cuda": version.value,
            "driver": _kernel_driver(),
            "moved": self.offset,
        }

    def run(self, plan: dict, places: dict, cubin: bytes, before: Mapping[str, bytes]) -> dict[str, bytes]:
        """Every buffer's bytes after ``prepare`` and ``solve`` of a plan; its module is loaded afresh.
        ``places`` has, by kernel, (offset, size) of each parameter in the plan."""
        module = c_void_p()
        self.call("cuModuleLoadData", byref(module), c_char_p(cubin))
        try:
            return self._run(_Loaded(self, plan, places, module), before)
        finally:
            self.call.library.cuModuleUnload(module)

    def _run(self, loaded: _Loaded, before: Mapping[str, bytes]) -> dict[str, bytes]:
        buffers = loaded.plan["buffers"]
        for buffer in buffers:
            self.write(buffer["address"] + self.offset, before[buffer["name"]])
        for operation in (*loaded.plan["prepare"], *loaded.plan["solve"]):
            loaded.issue(operation)
        self.call("cuCtxSynchronize")
        after = {}
        for buffer in buffers:
            room = ctypes.create_string_buffer(max(1, buffer["size"]))
            if buffer["size"]:
                source = c_uint64(buffer["address"] + self.offset)
                self.call("cuMemcpyDtoH_v2", room, source, c_size_t(buffer["size"]))
            after[buffer["name"]] = room.raw[: buffer["size"]]
        return after

    def write(self, address: int, data: bytes) -> None:
        if data:
            self.call("cuMemcpyHtoD_v2", c_uint64(address), c_char_p(data), c_size_t(len(data)))


class _Loaded:
    """A plan with its module: translates addresses and issues operations."""

    def __init__(self, gpu: Gpu, plan: dict, places: dict, module: c_void_p):
        self.gpu, self.plan, self.places, self.module = gpu, plan, places, module
        self.symbols = [self._symbol(s) for s in plan["symbols"]]
        self.maps = [self._tensor_map(m) for m in plan["tensor_maps"]]

    def _symbol(self, symbol: dict) -> tuple[int, int, int]:
        """(stand-in address, size, address on the device)"""
        address, size = c_uint64(), c_size_t()
        self.gpu.call(
            "cuModuleGetGlobal_v2", byref(address), byref(size), self.module, symbol["name"].encode()
        )
        return symbol["address"], symbol["size"], address.value

    def _address(self, address: int) -> int:
        for stand_in, size, real in self.symbols:
            if stand_in <= address < stand_in + max(1, size):
                return real + address - stand_in
        return address + self.gpu.offset

    def _tensor_map(self, m: dict) -> bytes:
        """The 128 bytes that the driver makes of a tiled map."""
        assert m["kind"] == "tiled", "im2col maps are not recorded"
        room = ctypes.create_string_buffer(192)
        at = ctypes.addressof(room) + -ctypes.addressof(room) % 64
        rank = m["rank"]
        self.gpu.call(
            "cuTensorMapEncodeTiled",
            c_void_p(at),
            c_int(m["data_type"]),
            c_uint(rank),
            c_void_p(self._address(m["address"])),
            (c_uint64 * rank)(*m["dimensions"]),
            (c_uint64 * max(1, rank - 1))(*m["strides"]),
            (c_uint * rank)(*m["box"]),
            (c_uint * rank)(*m["element_strides"]),
            *(c_int(m[name]) for name in ("interleave", "swizzle", "l2_promotion", "oob_fill")),
        )
        return ctypes.string_at(at, 128)

    def _filled(self, text: str, operation: dict) -> bytes:
        """Parameters or uploaded bytes with addresses and tensor maps in their places."""
        data = bytearray(base64.b64decode(text))
        for r in operation["relocations"]:
            if r["kind"] == "buffer":
                address = self.plan["buffers"][r["index"]]["address"] + self.gpu.offset
            else:
                address = self.symbols[r["index"]][2]
            data[r["offset"] : r["offset"] + 8] = (address + r["addend"]).to_bytes(8, "little")
        for placed in operation["tensor_maps"]:
            data[placed["offset"] : placed["offset"] + 128] = self.maps[placed["index"]]
        return bytes(data)

    def _arranged(self, function: c_void_p, operation: dict) -> bytes:
        """The parameters where the cubin wants them: plans made from PTX have them at PTX's offsets."""
        data = self._filled(operation["parameters"], operation)
        out = bytearray(8 << 10)
        end = 0
        for index, (source, size) in enumerate(self.places[operation["kernel"]]):
            offset, length = c_size_t(), c_size_t()
            self.gpu.call("cuFuncGetParamInfo", function, c_size_t(index), byref(offset), byref(length))
            assert length.value == size, (operation["kernel"], index, length.value, size)
            out[offset.value : offset.value + size] = data[source : source + size]
            end = max(end, offset.value + size)
        return bytes(out[:end])

    def issue(self, operation: dict) -> None:
        match operation["op"]:
            case "kernel":
                self._launch(operation)
            case "memset":
                self._fill(operation)
            case "copy":
                width = operation["width"]
                steps = [operation[f"{x}_pitch"] or width for x in ("destination", "source")]
                for row in range(operation["height"]):
                    target = self._address(operation["destination"]) + row * steps[0]
                    source = self._address(operation["source"]) + row * steps[1]
                    size = c_size_t(width)
                    self.gpu.call("cuMemcpyDtoD_v2", c_uint64(target), c_uint64(source), size)
            case "upload":
                self.gpu.write(
                    self._address(operation["destination"]), self._filled(operation["data"], operation)
                )
            case _:
                pass  # events: everything is in one stream

    def _fill(self, operation: dict) -> None:
        size = operation["element_size"]
        kind = {1: ctypes.c_ubyte, 2: ctypes.c_ushort, 4: c_uint}[size]
        pitch = operation["pitch"] or operation["width"] * size
        for row in range(operation["height"]):
            self.gpu.call(
                f"cuMemsetD{8 * size}_v2",
                c_uint64(self._address(operation["address"]) + row * pitch),
                kind(operation["value"] & ((1 << 8 * size) - 1)),
                c_size_t(operation["width"]),
            )

    def _launch(self, operation: dict) -> None:
        function = c_void_p()
        name = operation["kernel"].encode()
        self.gpu.call("cuModuleGetFunction", byref(function), self.module, name)
        shared = operation["dynamic_shared"]
        if shared:
            self.gpu.call("cuFuncSetAttribute", function, c_int(_MAX_DYNAMIC_SHARED), c_int(shared))
        attributes = []
        if operation["cooperative"]:
            attributes.append(_Attribute(_COOPERATIVE, 0, (c_uint * 16)(1)))
        cluster = operation["cluster"]
        if cluster[0]:
            attributes.append(_Attribute(_CLUSTER, 0, (c_uint * 16)(*cluster)))
            if cluster[0] * cluster[1] * cluster[2] > 8:
                self.gpu.call("cuFuncSetAttribute", function, c_int(_NON_PORTABLE_CLUSTER), c_int(1))
        configuration = _Configuration(
            (c_uint * 3)(*operation["grid"]),
            (c_uint * 3)(*operation["block"]),
            shared,
            None,
            (_Attribute * max(1, len(attributes)))(*attributes),
            len(attributes),
        )
        parameters = self._arranged(function, operation)
        size = c_size_t(len(parameters))
        data = ctypes.create_string_buffer(parameters, max(1, len(parameters)))
        extra = (c_void_p * 5)(
            1, ctypes.addressof(data), 2, ctypes.addressof(size), 0
        )  # buffer, its size, end
        self.gpu.call("cuLaunchKernelEx", byref(configuration), function, None, extra if parameters else None)
