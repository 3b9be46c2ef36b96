"""NVML of the pretend card. ``PRETEND_XID``, ``PRETEND_SLOWDOWN`` and ``PRETEND_STRANGER`` trouble it."""

import os
from types import SimpleNamespace

NVML_SUCCESS, NVML_CLOCK_SM, NVML_TEMPERATURE_GPU, NVML_COMPUTEMODE_DEFAULT = 0, 1, 0, 0
nvmlEventTypeXidCriticalError = 8
NVML_ERROR_LIBRARY_NOT_FOUND, NVML_ERROR_DRIVER_NOT_LOADED = 12, 9


class NVMLError(Exception):
    pass


class NVMLError_NotSupported(NVMLError):
    pass


class NVMLError_NoPermission(NVMLError):
    pass


class NVMLError_Unknown(NVMLError):
    pass


class NVMLError_Timeout(NVMLError):
    pass


class NVMLError_GpuIsLost(NVMLError):
    pass


_reads = 0


def nvmlInit():
    if "PRETEND_NO_NVML" in os.environ:
        raise NVMLError("NVML Shared Library Not Found")


def nvmlShutdown():
    pass


def nvmlSystemGetCudaDriverVersion_v2():
    return int(os.environ.get("PRETEND_DRIVER", "13000"))


def nvmlDeviceGetCount():
    return 1


def nvmlDeviceGetCudaComputeCapability(handle):
    return 9, 0


def nvmlDeviceGetHandleByIndex(index):
    return index


def nvmlDeviceGetHandleByPciBusId(bus):
    if bus != "00000000:1b:00.0":
        raise NVMLError("Not Found")
    return 0


def nvmlEventSetCreate():
    return object()


def nvmlDeviceRegisterEvents(handle, kind, events):
    if "PRETEND_NO_EVENTS" in os.environ:
        raise NVMLError_NotSupported("not supported")


def nvmlEventSetWait_v2(events, milliseconds):
    global _reads
    _reads += 1
    if _reads == int(os.environ.get("PRETEND_XID_AT", "0")):
        return SimpleNamespace(eventData=79)
    raise NVMLError_Timeout("timeout")


def nvmlSystemGetDriverVersion():
    return "580.159.04"


def nvmlDeviceGetName(handle):
    return "NVIDIA H200"


def nvmlDeviceGetEnforcedPowerLimit(handle):
    return 700_000


def nvmlDeviceGetComputeMode(handle):
    return int(os.environ.get("PRETEND_COMPUTE_MODE", "0"))


def nvmlDeviceGetMaxClockInfo(handle, kind):
    return 1980


def nvmlDeviceGetMemoryInfo(handle):
    return SimpleNamespace(total=140 << 30, used=int(os.environ.get("PRETEND_USED", str(1 << 30))))


def nvmlDeviceGetPowerUsage(handle):
    if "PRETEND_LOST_AT" in os.environ and _reads >= int(os.environ["PRETEND_LOST_AT"]):
        raise NVMLError_GpuIsLost("GPU is lost")
    return 150_000


def nvmlDeviceGetClockInfo(handle, kind):
    return 1980


def nvmlDeviceGetTemperature(handle, kind):
    return 40


def nvmlDeviceGetFieldValues(handle, ids):
    if "PRETEND_NO_COUNTERS" in os.environ:
        raise NVMLError_NotSupported("not supported")
    growing = 1_000_000 * _reads if "PRETEND_SLOWDOWN" in os.environ else 0
    return [
        SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(ullVal=growing if number == 270 else 0))
        for number in ids
    ]


def nvmlDeviceGetComputeRunningProcesses(handle):
    stranger = os.environ.get("PRETEND_STRANGER")
    return [SimpleNamespace(pid=int(stranger))] if stranger else []
