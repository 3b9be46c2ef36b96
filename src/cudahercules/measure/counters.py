"""What the card says about itself while samples are taken: clock, power, temperature, throttling.

:class:`Card` reads NVML; the judge needs only :class:`Counters`, so that a test can play a card.
A counter that this card or driver does not have is absent, never 0.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from cudahercules.errors import MachineError

POWER_CAP = "sw_power_cap"
"""Recorded and paced away; never a reason to void a measurement."""
SLOWDOWNS = ("sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake")
"""The machine's fault: a block in which one of these grows is repeated."""
HARDWARE_XIDS = frozenset({48, 54, 62, 63, 64, 74, 79, 92, 94, 95, 119, 120, 140})
"""Memory, link, power and firmware errors in NVIDIA's catalogue of Xids: never a program's own doing.
Others (13, 31, 43, ...) also come from kernels that do something wrong."""
_FIELDS = {
    POWER_CAP: "NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP",
    "sync_boost": "NVML_FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST",
    "sw_thermal_slowdown": "NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN",
    "hw_thermal_slowdown": "NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN",
    "hw_power_brake": "NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN",
}
_FALLBACK_IDS = {  # nvml.h of CUDA 12.4 and later, for older Python bindings
    POWER_CAP: 74,
    "sync_boost": 76,
    "sw_thermal_slowdown": 269,
    "hw_thermal_slowdown": 270,
    "hw_power_brake": 271,
}


@dataclass(frozen=True)
class Reading:
    """One look at the card. ``throttle_ns`` are NVML's accumulated nanoseconds by reason; ``xids``
    are error numbers reported since the last reading; ``strangers`` are processes on the GPU that
    are not ours."""

    sm_clock_mhz: int | None = None
    power_w: float | None = None
    temperature_c: int | None = None
    throttle_ns: dict[str, int] = field(default_factory=dict)
    memory_used: int | None = None
    xids: tuple[int, ...] = ()
    strangers: tuple[int, ...] = ()


def grown(before: Reading, after: Reading) -> dict[str, int]:
    """Nanoseconds by reason that were added between two readings (only those that grew)."""
    return {
        reason: now - before.throttle_ns[reason]
        for reason, now in after.throttle_ns.items()
        if reason in before.throttle_ns and now > before.throttle_ns[reason]
    }


def machine_trouble(after: Reading, throttle_ns: dict[str, int]) -> str | None:
    """Why a block does not count: an Xid, a slowdown or a stranger on the GPU; else None."""
    if after.xids:
        return f"the driver reported Xid {', '.join(map(str, after.xids))}"
    slowed = {r: ns for r, ns in throttle_ns.items() if r in SLOWDOWNS}
    if slowed:
        return "the card slowed itself down: " + ", ".join(
            f"{r} {ns / 1e6:.1f} ms" for r, ns in slowed.items()
        )
    if after.strangers:
        return f"another process uses the GPU (pid {', '.join(map(str, after.strangers))})"
    return None


def hardware_trouble(reading: Reading) -> str | None:
    """What the driver reported that no program can cause, in a few words."""
    found = [str(xid) for xid in reading.xids if xid in HARDWARE_XIDS]
    return f"the driver reported Xid {', '.join(found)}: the GPU itself failed" if found else None


class Counters(Protocol):
    def read(self) -> Reading: ...


class NoCounters:
    """Where NVML is missing: nothing is known, and the verdict's row says so."""

    def read(self) -> Reading:
        return Reading()


class Card:
    """NVML's view of the GPU at PCI address ``bus`` (``00000000:1b:00.0``): NVML numbers GPUs otherwise than
    CUDA does.

    Raises MachineError if NVML cannot be loaded or does not know the device.
    """

    def __init__(self, bus: str):
        try:
            import pynvml
        except ImportError as error:
            raise MachineError("nvidia-ml-py is missing: pip install nvidia-ml-py") from error
        self._nvml: Any = pynvml
        try:
            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByPciBusId(bus)
        except pynvml.NVMLError as error:
            raise MachineError(f"NVML does not know GPU {bus} ({error}): is the driver loaded?") from error
        self._events = self._watch_xids()
        self._ids = {reason: getattr(pynvml, name, _FALLBACK_IDS[reason]) for reason, name in _FIELDS.items()}

    def _ask(self, function: str, *arguments: Any) -> Any:
        """NVML's answer, or None where this card does not support the question."""
        n = self._nvml
        try:
            return getattr(n, function)(self._handle, *arguments)
        except (n.NVMLError_NotSupported, n.NVMLError_NoPermission, n.NVMLError_Unknown):
            return None
        except n.NVMLError as error:
            raise MachineError(f"the GPU stopped answering NVML ({function}: {error})") from error

    def _watch_xids(self) -> Any:
        n = self._nvml
        try:
            events = n.nvmlEventSetCreate()
            n.nvmlDeviceRegisterEvents(self._handle, n.nvmlEventTypeXidCriticalError, events)
            return events
        except n.NVMLError:
            return None  # not available inside some virtual machines; `describe` says so

    def describe(self) -> dict[str, Any]:
        """Name, driver, memory, compute mode, power limit and which counters exist."""
        n = self._nvml
        reading = self.read()
        limit = self._ask("nvmlDeviceGetEnforcedPowerLimit")
        mode = self._ask("nvmlDeviceGetComputeMode")
        memory = self._ask("nvmlDeviceGetMemoryInfo")
        return {
            "name": self._ask("nvmlDeviceGetName"),
            "driver": n.nvmlSystemGetDriverVersion(),
            "memory_total": memory.total if memory else None,
            "power_limit_w": None if limit is None else limit / 1000,
            "max_sm_clock_mhz": self._ask("nvmlDeviceGetMaxClockInfo", n.NVML_CLOCK_SM),
            "compute_mode": mode,
            "exclusive": mode not in (None, n.NVML_COMPUTEMODE_DEFAULT),
            "throttle_counters": sorted(reading.throttle_ns),
            "xid_events": self._events is not None,
        }

    def read(self) -> Reading:
        n = self._nvml
        power = self._ask("nvmlDeviceGetPowerUsage")
        memory = self._ask("nvmlDeviceGetMemoryInfo")
        return Reading(
            sm_clock_mhz=self._ask("nvmlDeviceGetClockInfo", n.NVML_CLOCK_SM),
            power_w=None if power is None else power / 1000,
            temperature_c=self._ask("nvmlDeviceGetTemperature", n.NVML_TEMPERATURE_GPU),
            throttle_ns=self._throttle(),
            memory_used=None if memory is None else int(memory.used),
            xids=tuple(self._xids()),
            strangers=tuple(self._strangers()),
        )

    def _throttle(self) -> dict[str, int]:
        values = self._ask("nvmlDeviceGetFieldValues", list(self._ids.values()))
        if values is None:
            return {}
        return {
            reason: int(value.value.ullVal)
            for reason, value in zip(self._ids, values, strict=True)
            if value.nvmlReturn == self._nvml.NVML_SUCCESS
        }

    def _xids(self) -> Iterable[int]:
        n = self._nvml
        while self._events is not None:
            try:
                yield int(n.nvmlEventSetWait_v2(self._events, 0).eventData)
            except n.NVMLError_Timeout:
                return
            except n.NVMLError:
                self._events = None

    def _strangers(self) -> Iterable[int]:
        """Processes that NVML lists, that exist in our process namespace and do not descend from us.

        In a container NVML shows the host's numbers; those cannot be told apart and are left out."""
        for process in self._ask("nvmlDeviceGetComputeRunningProcesses") or ():
            ancestry = _ancestors(process.pid)
            if ancestry and os.getpid() not in ancestry:
                yield process.pid


def _ancestors(pid: int) -> tuple[int, ...]:
    """``pid`` and its parents up to init; empty if there is no such process here."""
    chain: list[int] = []
    while pid > 0:
        try:
            with open(f"/proc/{pid}/stat") as f:
                parent = int(f.read().rsplit(")", 1)[1].split()[1])
        except (OSError, ValueError, IndexError):
            return tuple(chain)
        chain.append(pid)
        pid = parent
    return tuple(chain)
