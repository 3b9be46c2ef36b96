"""A stand-in for cuda.bindings.driver: device memory is host memory, kernels are Python functions.

Put before the real package on PYTHONPATH, it lets the whole replay process run on a machine without
a GPU: mapping, module variables, capture, samples, faults. Work is done at once when enqueued, or,
while a stream is captured, when its graph is launched. Access rights of mappings are remembered and
checked by memory operations and by the kernels below; memory outside mappings is error 700.
"""

from __future__ import annotations

import ctypes
import enum
import io
import mmap
import os
import struct
import time
from types import SimpleNamespace

import numpy as np
from elftools.elf.elffile import ELFFile

DEVICE_MEMORY = 1 << 30
ATTRIBUTES = {16: 2, 38: 1 << 16, 39: 2048, 75: 9, 76: 0, 97: 232448, 108: 1 << 15}


class CUresult(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_INVALID_IMAGE = 200
    CUDA_ERROR_NO_BINARY_FOR_GPU = 209
    CUDA_ERROR_NOT_FOUND = 500
    CUDA_ERROR_ILLEGAL_ADDRESS = 700
    CUDA_ERROR_NOT_SUPPORTED = 801


class _Structure(SimpleNamespace):
    """Fields appear when they are first touched, structures in structures too."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        inner = _Structure()
        setattr(self, name, inner)
        return inner


def _structure(name):
    return type(name, (_Structure,), {})


def _enumeration(name, *members, **numbered):
    return enum.IntEnum(name, {**{m: i for i, m in enumerate(members)}, **numbered})


CUlaunchConfig = _structure("CUlaunchConfig")
CUlaunchAttribute = _structure("CUlaunchAttribute")
CUaccessPolicyWindow = _structure("CUaccessPolicyWindow")
CUmemAllocationProp = _structure("CUmemAllocationProp")
CUmemAccessDesc = _structure("CUmemAccessDesc")
CUDA_MEMCPY2D = _structure("CUDA_MEMCPY2D")
CUstreamCaptureMode = _enumeration("CUstreamCaptureMode", CU_STREAM_CAPTURE_MODE_RELAXED=2)
CUmemAllocationType = _enumeration("CUmemAllocationType", CU_MEM_ALLOCATION_TYPE_PINNED=1)
CUmemLocationType = _enumeration("CUmemLocationType", CU_MEM_LOCATION_TYPE_DEVICE=1)
CUmemAllocationHandleType = _enumeration(
    "CUmemAllocationHandleType", CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR=1
)
CUmemAllocationGranularity_flags = _enumeration("G", "CU_MEM_ALLOC_GRANULARITY_MINIMUM")
CUmemAccess_flags = _enumeration(
    "CUmemAccess_flags", CU_MEM_ACCESS_FLAGS_PROT_READ=1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE=3
)
CUlimit = _enumeration(
    "CUlimit",
    CU_LIMIT_STACK_SIZE=0,
    CU_LIMIT_MALLOC_HEAP_SIZE=2,
    CU_LIMIT_PERSISTING_L2_CACHE_SIZE=6,
)
CUfunction_attribute = _enumeration(
    "CUfunction_attribute",
    CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK=0,
    CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES=1,
    CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES=2,
    CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES=3,
    CU_FUNC_ATTRIBUTE_NUM_REGS=4,
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=8,
    CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED=14,
)
CUlaunchAttributeID = _enumeration(
    "CUlaunchAttributeID",
    CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW=1,
    CU_LAUNCH_ATTRIBUTE_COOPERATIVE=2,
    CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION=4,
    CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE=5,
    CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION=6,
    CU_LAUNCH_ATTRIBUTE_PRIORITY=8,
    CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION=11,
    CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT=14,
)


class CUdevice_attribute(int):
    CU_DEVICE_ATTRIBUTE_MAX = 146


class CUaccessProperty(int):
    pass


class CUclusterSchedulingPolicy(int):
    pass


class CUmemorytype:
    CU_MEMORYTYPE_DEVICE = 2


OK = (CUresult.CUDA_SUCCESS,)


class _Fault(Exception):
    def __init__(self, code):
        self.code = CUresult(code)


# --- memory --------------------------------------------------------------------------------------

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.memfd_create.argtypes = [ctypes.c_char_p, ctypes.c_uint]
_libc.ftruncate.argtypes = [ctypes.c_int, ctypes.c_long]

_mapped: dict[int, list] = {}  # address -> [size, access flags or None]
_reserved: dict[int, int] = {}
_used = 0
_next = [0x5000_0000_0000]
LOG: list[tuple] = []  # launches and limits, for tests in the same process


def _map(address, size, descriptor=-1):
    flags = 0x100000 | (0x01 if descriptor >= 0 else 0x22)  # MAP_FIXED_NOREPLACE, shared or private
    got = _libc.mmap(address, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, descriptor, 0)
    if got != address:
        raise _Fault(1)


def _fresh(size):
    address = _next[0]
    _next[0] += -(-size // (4 << 20)) * (4 << 20) + (4 << 20)
    return address


def check(address, size, *, write):
    """Raise the device's error unless ``[address, address + size)`` may be accessed so."""
    for start, (length, flags) in _mapped.items():
        if start <= address and address + size <= start + length:
            if flags is None or (write and flags == 1):
                raise _Fault(700)
            return
    raise _Fault(700)


def _allocate(size):
    global _used
    if _used + size > DEVICE_MEMORY:
        raise _Fault(2)
    _used += size


def cuMemAlloc(size):
    try:
        _allocate(size)
    except _Fault as fault:
        return fault.code, 0
    address = _fresh(size)
    _map(address, -(-size // 4096) * 4096)
    _mapped[address] = [size, 3]
    return (*OK, address)


def cuMemFree(address):
    global _used
    size, _ = _mapped.pop(address)
    _used -= size
    _libc.munmap(address, -(-size // 4096) * 4096)
    return OK


def cuMemAllocHost(size):
    buffer = ctypes.create_string_buffer(size)
    _pinned[ctypes.addressof(buffer)] = buffer
    return (*OK, ctypes.addressof(buffer))


_pinned: dict[int, object] = {}


def cuMemFreeHost(address):
    del _pinned[address]
    return OK


def cuMemGetAllocationGranularity(properties, flags):
    return (*OK, 2 << 20)


def cuMemAddressReserve(size, alignment, address, flags):
    if address and "PRETEND_ELSEWHERE" in os.environ:
        address += 1 << 30
    given = address or _fresh(size)
    _reserved[given] = size
    return (*OK, given)


def cuMemAddressFree(address, size):
    return OK if _reserved.pop(address, None) == size else (CUresult.CUDA_ERROR_INVALID_VALUE,)


def cuMemCreate(size, properties, flags):
    if isinstance(properties.requestedHandleTypes, int):
        return CUresult.CUDA_ERROR_NOT_SUPPORTED, None
    try:
        _allocate(size)
    except _Fault as fault:
        return fault.code, None
    descriptor = _libc.memfd_create(b"device memory", 0)
    _libc.ftruncate(descriptor, size)
    return (*OK, SimpleNamespace(descriptor=descriptor, size=size))


def cuMemMap(address, size, offset, handle, flags):
    _map(address, size, handle.descriptor)
    _mapped[address] = [size, None]
    return OK


def cuMemSetAccess(address, size, access, count):
    _mapped[address][1] = int(access[0].flags)
    return OK


def cuMemUnmap(address, size):
    if _mapped.pop(address, [None])[0] != size:
        return (CUresult.CUDA_ERROR_INVALID_VALUE,)
    _libc.munmap(address, size)
    return OK


def cuMemRelease(handle):
    global _used
    _used -= handle.size
    os.close(handle.descriptor)
    return OK


# --- streams, events, graphs: work runs at once, or when the graph that captured it is launched ----

_capturing: list | None = None
_error = CUresult.CUDA_SUCCESS


def _enqueue(work):
    global _error
    if _capturing is not None:
        _capturing.append(work)
        return OK
    if _error == 0:
        try:
            work()
        except _Fault as fault:
            _error = fault.code
    return OK if _error < 700 else (_error,)


def _waiting():
    return (_error,) if _error else OK


class CUstream(int):
    """A stream is its number."""


_streams = [0]


def cuStreamCreate(flags):
    _streams[0] += 1
    return (*OK, CUstream(_streams[0]))


def cuStreamDestroy(stream):
    return OK


def cuStreamSynchronize(stream):
    return _waiting()


def cuCtxSynchronize():
    return _waiting()


def cuEventCreate(flags):
    return (*OK, SimpleNamespace(at=0.0))


def cuEventDestroy(event):
    return OK


def cuEventRecord(event, stream):
    if _capturing is not None:
        return OK  # in a graph an event is an edge
    return _enqueue(lambda: setattr(event, "at", time.perf_counter()))


def cuStreamWaitValue32(stream, address, value, flags):
    return OK


def cuStreamWaitEvent(stream, event, flags):
    return OK


def cuEventSynchronize(event):
    return _waiting()


def cuEventElapsedTime(start, stop):
    return (*OK, 1000 * (stop.at - start.at))


def cuStreamBeginCapture(stream, mode):
    global _capturing
    _capturing = []
    return OK


def cuStreamEndCapture(stream):
    global _capturing
    graph, _capturing = _capturing, None
    return (*OK, graph)


def cuGraphGetNodes(graph, numNodes=0):
    return (*OK, [], len(graph))


def cuGraphInstantiate(graph, flags):
    return (*OK, list(graph))


def cuGraphDestroy(graph):
    return OK


cuGraphExecDestroy = cuGraphDestroy


def cuGraphUpload(graph, stream):
    return OK


def cuGraphLaunch(graph, stream):
    def run():
        for work in graph:
            work()

    return _enqueue(run)


# --- copies --------------------------------------------------------------------------------------


def _view(address, size, *, write):
    check(address, size, write=write)
    return np.frombuffer((ctypes.c_uint8 * size).from_address(address), np.uint8)


def _set(address, value, size, count):
    pattern = np.frombuffer(int(value).to_bytes(size, "little"), np.uint8)
    _view(address, size * count, write=True)[:] = np.tile(pattern, count)


def cuMemsetD8Async(address, value, count, stream):
    return _enqueue(lambda: _set(address, value, 1, count))


def cuMemsetD16Async(address, value, count, stream):
    return _enqueue(lambda: _set(address, value, 2, count))


def cuMemsetD32Async(address, value, count, stream):
    return _enqueue(lambda: _set(address, value, 4, count))


def cuMemsetD8(address, value, count):
    return cuMemsetD8Async(address, value, count, None)


def cuMemsetD2D8Async(address, pitch, value, width, height, stream):
    return _enqueue(lambda: [_set(address + r * pitch, value, 1, width) for r in range(height)])


def cuMemcpyDtoDAsync(destination, source, size, stream):
    def copy():
        _view(destination, size, write=True)[:] = _view(source, size, write=False)

    return _enqueue(copy)


def cuMemcpy2DAsync(rows, stream):
    def copy():
        for r in range(rows.Height):
            to = _view(rows.dstDevice + r * rows.dstPitch, rows.WidthInBytes, write=True)
            to[:] = _view(rows.srcDevice + r * rows.srcPitch, rows.WidthInBytes, write=False)

    return _enqueue(copy)


def cuMemcpyHtoDAsync(destination, source, size, stream):
    def copy():
        check(destination, size, write=True)
        ctypes.memmove(destination, source, size)

    return _enqueue(copy)


def cuMemcpyDtoH(destination, source, size):
    def copy():
        check(source, size, write=False)
        ctypes.memmove(destination, source, size)

    return _enqueue(copy)


def cuMemcpyDtoHAsync(destination, source, size, stream):
    return cuMemcpyDtoH(destination, source, size)


# --- device, context, limits -----------------------------------------------------------------------


def cuInit(flags):
    return OK


def cuDriverGetVersion():
    return (*OK, 13000)


def cuDeviceGet(index):
    return (*OK, index) if index == 0 else (CUresult.CUDA_ERROR_INVALID_VALUE, None)


def cuDevicePrimaryCtxRetain(device):
    return (*OK, 1)


def cuDevicePrimaryCtxRelease(device):
    return OK


def cuCtxSetCurrent(context):
    return OK


def cuCtxGetCurrent():
    return (*OK, 1)


def cuCtxGetDevice():
    return (*OK, 0)


def cuDeviceGetName(size, device):
    return (*OK, b"Pretend GPU\0")


def cuDeviceTotalMem(device):
    return (*OK, DEVICE_MEMORY)


def cuDeviceGetAttribute(attribute, device):
    if int(attribute) not in ATTRIBUTES:
        return CUresult.CUDA_ERROR_INVALID_VALUE, 0
    return (*OK, ATTRIBUTES[int(attribute)])


def cuCtxSetLimit(limit, value):
    LOG.append(("limit", limit.name, value))
    return OK


def cuCtxGetLimit(limit):
    return (*OK, 1024)


def cuCtxGetStreamPriorityRange():
    return (*OK, 0, -5)


def cuCtxResetPersistingL2Cache():
    return OK


def cuGetErrorName(code):
    return (*OK, CUresult(code).name.encode())


def cuGetErrorString(code):
    return (*OK, CUresult(code).name.lower().replace("_", " ").encode())


def cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(function, threads, dynamic, flags):
    return (*OK, 2048 // threads)


# --- modules and kernels -----------------------------------------------------------------------------


class _Module:
    def __init__(self, image):
        elf = ELFFile(io.BytesIO(image))
        self.variables, bases = {}, {}
        names = set()
        for symbol in elf.get_section_by_name(".symtab").iter_symbols():
            index = symbol["st_shndx"]
            if symbol["st_info"]["type"] == "STT_FUNC":
                names.add(symbol.name)
            if symbol["st_info"]["type"] != "STT_OBJECT" or not isinstance(index, int):
                continue
            section = elf.get_section(index)
            if index not in bases and section["sh_size"]:
                _, bases[index] = cuMemAlloc(section["sh_size"])
                if section["sh_type"] != "SHT_NOBITS":
                    ctypes.memmove(bases[index], section.data(), section["sh_size"])
            if index in bases:
                self.variables[symbol.name] = (bases[index] + symbol["st_value"], symbol["st_size"])
        self.kernels = names


def cuModuleLoadData(image):
    refused = os.environ.get("PRETEND_NO_BINARY")  # "candidate": our own kernels are taken
    if refused and not (refused == "candidate" and b"wipe_shared" in image):
        return CUresult.CUDA_ERROR_NO_BINARY_FOR_GPU, None
    try:
        return (*OK, _Module(image))
    except Exception:  # pyelftools raises many kinds on damaged files
        return CUresult.CUDA_ERROR_INVALID_IMAGE, None


def cuModuleUnload(module):
    return OK


def cuModuleGetGlobal(module, name):
    found = module.variables.get(name.decode())
    return (*OK, *found) if found else (CUresult.CUDA_ERROR_NOT_FOUND, 0, 0)


def cuModuleGetFunction(module, name):
    if name.decode() not in module.kernels:
        return CUresult.CUDA_ERROR_NOT_FOUND, None
    return (*OK, SimpleNamespace(name=name.decode(), module=module, attributes={}))


def cuFuncSetAttribute(function, attribute, value):
    function.attributes[int(attribute)] = value
    LOG.append(("function", function.name, attribute.name, value))
    return OK


def cuFuncGetAttribute(attribute, function):
    return (*OK, function.attributes.get(int(attribute), 0))


def _arguments(pointers, function):
    """Argument pointers as given; what they point at is read at once, as the driver does."""
    formats = SIGNATURES[function.name if function.name in SIGNATURES else _family(function.name)]
    places = np.ctypeslib.as_array((ctypes.c_uint64 * len(formats)).from_address(pointers))
    return [
        struct.unpack(f, ctypes.string_at(int(p), struct.calcsize(f)))[0]
        if f != "fill"
        else ctypes.string_at(int(p), 96)
        for f, p in zip(formats, places, strict=True)
    ]


def _family(name):
    return name.split("_")[0] + "_"


def _run(function, pointers, log):
    arguments = _arguments(pointers, function)
    LOG.append(("launch", function.name, log))
    action = KERNELS[function.name if function.name in KERNELS else _family(function.name)]
    return _enqueue(lambda: action(function, *arguments))


def cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared, stream, pointers, extra):
    return _run(function, pointers, None)


def cuLaunchCooperativeKernel(function, gx, gy, gz, bx, by, bz, shared, stream, pointers):
    return _run(function, pointers, None)


def cuLaunchKernelEx(config, function, pointers, extra):
    if config.gridDimX == 0:
        return (CUresult.CUDA_ERROR_INVALID_VALUE,)
    return _run(function, pointers, config)


# Our own kernels.


def _fill(function, pointer, raw):
    from cudahercules.replay import generator
    from cudahercules.task import inputs
    from cudahercules.task.model import DType

    fill = generator.Fill.from_buffer_copy(raw)
    dtype = DType(function.name.removeprefix("fill_"))
    if fill.kind != 0 or fill.parts != 1:
        raise NotImplementedError("the stand-in only knows normal values")
    from cudahercules.task.model import Normal, Role, Tensor

    tensor = Tensor(name="t", role=Role.IN, dtype=dtype, shape=(fill.components,))
    values = inputs.generate_values(
        tensor, (fill.components,), Normal(mean=fill.offset, std=fill.scale), fill.tensor, fill.seed
    )
    _view(pointer, values.nbytes, write=True)[:] = values.view(np.uint8)


def _hash(function, data, size, target):
    from cudahercules.replay import generator

    value = generator.hash_bytes(_view(data, size, write=False).tobytes())
    _view(target, 8, write=True)[:] = np.frombuffer(np.uint64(value).tobytes(), np.uint8)


def _count(function, data, size, value, target):
    expected = np.resize(np.frombuffer(struct.pack("<H", value), np.uint8), size + 1)[data % 2 :][:size]
    count = int((_view(data, size, write=False) != expected).sum())
    now = _view(target, 8, write=True).view(np.uint64)
    now += np.uint64(count)


# The candidate's kernels that tests use.


def _copy_plus(function, source, destination, count, bias):
    """y[i] = x[i] + bias + counter, and the module variable counter grows by one."""
    counter, _ = function.module.variables["counter"]
    cell = _view(counter, 4, write=True).view(np.int32)
    x = _view(source, 4 * count, write=False).view(np.float32)
    y = _view(destination, 4 * count, write=True).view(np.float32)
    y[:] = x + np.float32(bias) + np.float32(cell[0])
    cell += 1


def _store(function, address):
    _view(address, 4, write=True)[:] = 7


def _sleep(function):
    time.sleep(3600)


SIGNATURES = {
    "fill_": ("<Q", "fill"),
    "hash_bytes": ("<Q", "<Q", "<Q"),
    "count_other": ("<Q", "<Q", "<I", "<Q"),
    "evict_write": ("<Q", "<Q", "<I"),
    "evict_read": ("<Q", "<Q", "<Q"),
    "wipe_": ("<Q", "<I", "<I", "<I"),
    "copy_plus": ("<Q", "<Q", "<q", "<f"),
    "store": ("<Q",),
    "hang": (),
}
KERNELS = {
    "fill_": _fill,
    "hash_bytes": _hash,
    "count_other": _count,
    "evict_write": lambda *a: None,
    "evict_read": lambda *a: None,
    "wipe_": lambda *a: None,
    "copy_plus": _copy_plus,
    "store": _store,
    "hang": _sleep,
}


# Calls that this driver refuses: PRETEND_REFUSE="cuMemCreate=801,..."
for _part in filter(None, os.environ.get("PRETEND_REFUSE", "").split(",")):
    _name, _code = _part.split("=")
    globals()[_name] = lambda *_, _code=int(_code): (CUresult(_code), None)
