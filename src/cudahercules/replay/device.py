"""Facts about the GPU at hand, read from the driver: architecture and :class:`DeviceProfile`."""

from __future__ import annotations

import datetime
import re
from functools import lru_cache

from cudahercules.build.toolchain import resolve_architecture
from cudahercules.measure.profile import DeviceProfile
from cudahercules.replay.driver import DriverError, api, version_text
from cudahercules.task.model import Target

FREE_MEMORY_STEP = 1 << 30
"""What host code is told of free memory is rounded down to a GiB below nine tenths of all of it."""
IDENTIFYING = frozenset({33, 34, 50, 130, 131, 134, 139, 140})
"""Attributes that name one card or depend on its machine: PCI numbers, NUMA nodes."""


@lru_cache(maxsize=8)
def architecture_of(device: int = 0) -> str:
    """The architecture to build for, as nvcc spells it (``90a``). Raises MachineError if there is no
    such GPU or no target covers it. Needs the driver but makes no context."""
    return resolve_architecture(Target.GENERAL, compute_capability(device))


def compute_capability(device: int = 0) -> tuple[int, int]:
    handle = _device(device)
    kinds = api.CUdevice_attribute
    major = api.cuDeviceGetAttribute(kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, handle)
    minor = api.cuDeviceGetAttribute(kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, handle)
    return int(major), int(minor)


def _device(device: int) -> object:
    api.cuInit(0)
    return api.cuDeviceGet(device)


def read_profile(device: int = 0) -> DeviceProfile:
    """A profile of CUDA device ``device`` as the driver describes it now.

    ``gpc_sms`` is left empty: the driver does not tell it."""
    handle = _device(device)
    name = bytes(api.cuDeviceGetName(256, handle)).split(b"\0")[0].decode()
    total = int(api.cuDeviceTotalMem(handle))
    driver = version_text(int(api.cuDriverGetVersion()))
    today = datetime.date.today().isoformat()
    return DeviceProfile(
        name=name,
        slug=re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-"),
        architecture=architecture_of(device),
        compute_capability=compute_capability(device),
        total_memory=total,
        free_memory=total * 9 // 10 // FREE_MEMORY_STEP * FREE_MEMORY_STEP,
        attributes=_attributes(handle),
        verified=True,
        source=f"read with cuDeviceGetAttribute on {today}, driver for CUDA {driver}",
    )


def _attributes(handle: object) -> dict[int, int]:
    found = {}
    for member in api.CUdevice_attribute:
        number = int(member)
        if number in IDENTIFYING or member.name.endswith("_ATTRIBUTE_MAX"):
            continue
        try:
            found[number] = int(api.cuDeviceGetAttribute(member, handle))
        except DriverError:
            continue  # not known to this driver or device: a profile leaves it out
    return dict(sorted(found.items()))
