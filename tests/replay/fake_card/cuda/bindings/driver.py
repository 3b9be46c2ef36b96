"""The pretend driver of ../../../fake as a whole H200: its size and attributes, and simulated times.

Nothing large is computed or copied: kernels take time by a model (bandwidth, flops, spinning cycles) with
placement and noise, on a clock of the process's own. So a whole paired measurement runs on a machine
without a GPU, with outcomes that follow the rule. ``PRETEND_*`` variables make the card misbehave.
"""

# ruff: noqa: F821 (names of the base)
import json
import os
import random
import sys
import time
import zlib
from pathlib import Path

_base = Path(__file__).parents[3] / "fake/cuda/bindings/driver.py"
exec(compile(_base.read_text(), str(_base), "exec"))  # its functions find the names below in here

_profile = Path(__file__).parents[5] / "src/cudahercules/measure/profiles/nvidia-h200.json"
ATTRIBUTES = {int(k): v for k, v in json.loads(_profile.read_text())["attributes"].items()}
ATTRIBUTES.update({33: 0x1B, 34: 0, 50: 0})  # PCI bus, device and domain
ATTRIBUTES[20] = int(os.environ.get("PRETEND_COMPUTE_MODE", "0"))
DEVICE_MEMORY = int(os.environ.get("PRETEND_MEMORY", str(140 << 30)))
SMALL = 1 << 16
"""Larger memory is neither written nor copied."""


CUdevice_attribute = enum.IntEnum(
    "CUdevice_attribute",
    {
        "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR": 75,
        "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR": 76,
        **{f"CU_DEVICE_ATTRIBUTE_NUMBER_{n}": n for n in range(1, 146) if n not in (75, 76)},
    },
)


def cuInit(flags):
    return (CUresult.CUDA_ERROR_NOT_FOUND,) if "PRETEND_NO_DRIVER" in os.environ else OK


def cuDriverGetVersion():
    return (*OK, int(os.environ.get("PRETEND_DRIVER", "13000")))


def cuDeviceGetCount():
    return (*OK, 1)


def cuDeviceGetName(size, device):
    return (*OK, b"NVIDIA H200\0")


def cuDeviceTotalMem(device):
    return (*OK, DEVICE_MEMORY)


# --- time ----------------------------------------------------------------------------------------

_clock_ns = time.monotonic_ns()
_placement = 1.0
_random = random.Random()


def _advance(microseconds):
    global _clock_ns
    _clock_ns += int(1000 * microseconds)
    time.sleep(microseconds / 1e6)


def _now_ns():
    global _clock_ns
    _clock_ns += 500
    return _clock_ns


if "child" in sys.argv[0]:  # a contestant's process: its clock sees what the card was made to take
    time.monotonic_ns = _now_ns


def cuEventRecord(event, stream):
    if _capturing is not None:
        return OK
    return _enqueue(lambda: setattr(event, "at", _clock_ns))


def cuEventElapsedTime(start, stop):
    return (*OK, (stop.at - start.at) / 1e6 + 0.002)


def cuGraphLaunch(graph, stream):
    def run():
        for work in graph:
            work()
        _advance(3.0)

    return _enqueue(run)


_load_plainly = cuModuleLoadData


def cuModuleLoadData(image):
    global _placement
    _placement = 1 + _random.gauss(0, 0.002)
    return _load_plainly(image)


def _duration_us(name, pointers):
    def argument(k, kind):
        place = ctypes.c_uint64.from_address(pointers + 8 * k).value
        return kind.from_address(place).value

    if "spin" in name:
        return argument(0, ctypes.c_int64) / 1980
    if "twice" in name:
        return 32 * argument(2, ctypes.c_int64) / 4.2e6
    if name.endswith("multiplyPK13__nv_bfloat16S1_Pfi"):
        return 2 * argument(3, ctypes.c_int32) ** 3 / 180e6
    return 80 + zlib.crc32(name.encode()) % 40


_OURS = ("fill_", "hash_bytes", "count_other", "evict_", "wipe_")


def _run(function, pointers, log):
    if function.name.startswith(_OURS):
        return _enqueue(lambda: None)
    if "endless" in function.name:
        return _enqueue(lambda: time.sleep(3600))
    took = _duration_us(function.name, pointers)
    stray = 1.2 if _random.random() < 0.01 else 1.0
    return _enqueue(lambda: _advance(took * _placement * stray * (1 + _random.gauss(0, 0.002))))


def sleep_on_stream(microseconds):
    """For libraries that are pretended: work that takes so long."""
    return _enqueue(lambda: _advance(microseconds * _placement * (1 + _random.gauss(0, 0.002))))


# --- data ----------------------------------------------------------------------------------------


def _map(address, size, descriptor=-1):
    flags = 0x104000 | (0x01 if descriptor >= 0 else 0x22)  # as the base, and nothing reserved
    got = _libc.mmap(address, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, descriptor, 0)
    if got != address:
        raise _Fault(1)


_set_small = _set


def _set(address, value, size, count):
    if size * count <= SMALL:
        _set_small(address, value, size, count)
    else:
        check(address, size * count, write=True)


def cuMemcpyDtoDAsync(destination, source, size, stream):
    def copy():
        check(source, size, write=False)
        check(destination, size, write=True)

    return _enqueue(copy)


def cuMemcpyDtoH(destination, source, size):
    if size > SMALL:
        return _enqueue(lambda: check(source, size, write=False))

    def copy():
        check(source, size, write=False)
        ctypes.memmove(destination, source, size)

    return _enqueue(copy)


def cuMemcpyHtoD(destination, source, size):
    return OK


def cuOccupancyMaxActiveClusters(function, config):
    return (*OK, 16)
