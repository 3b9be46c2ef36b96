"""Which GPU is here, and may it be used: asked of the driver without making a context."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from cudahercules.build.toolchain import resolve_architecture
from cudahercules.errors import MachineError
from cudahercules.measure.panel import slug_of
from cudahercules.replay.driver import MINIMUM_DRIVER, DriverError, api, version_text
from cudahercules.task.model import Target

_COMPUTE_MODE, _MAJOR, _MINOR, _L2 = 20, 75, 76, 38  # CUdevice_attribute
_PCI_DOMAIN, _PCI_BUS, _PCI_DEVICE = 50, 33, 34
_DEFAULT_MODE = 0


@dataclass(frozen=True)
class Gpu:
    """A GPU that can judge. ``driver`` is the CUDA version that the driver supports, ``bus`` the PCI address
    by which NVML finds the same GPU, whatever CUDA_VISIBLE_DEVICES says."""

    index: int
    name: str
    architecture: str
    compute_capability: tuple[int, int]
    driver: str
    memory: int
    l2_bytes: int
    bus: str = ""

    @property
    def slug(self) -> str:
        """A file name for this kind of GPU: ``nvidia-h200``."""
        return slug_of(self.name)


def find_gpu(index: int = 0) -> Gpu:
    """The GPU with this CUDA number.

    Raises MachineError where there is none, the driver is too old, the GPU is of a kind that no task
    is built for, or it runs in a mode that spoils measurements (MPS, exclusive process).
    """
    refuse_mps()
    try:
        api.cuInit(0)
        version = int(api.cuDriverGetVersion())
        if version < MINIMUM_DRIVER:
            raise MachineError(
                f"the driver supports CUDA {version_text(version)}; plans need 13.0: "
                "install driver 580 or newer"
            )
        count = int(api.cuDeviceGetCount())
        if index >= count:
            raise MachineError(f"there is no GPU {index}: the driver shows {count} (CUDA_VISIBLE_DEVICES?)")
        device = api.cuDeviceGet(index)
        attribute = {
            number: int(api.cuDeviceGetAttribute(api.CUdevice_attribute(number), device))
            for number in (_COMPUTE_MODE, _MAJOR, _MINOR, _L2, _PCI_DOMAIN, _PCI_BUS, _PCI_DEVICE)
        }
        name = bytes(api.cuDeviceGetName(256, device)).split(b"\0")[0].decode()
        memory = int(api.cuDeviceTotalMem(device))
    except DriverError as error:
        raise MachineError(f"the NVIDIA driver does not answer: {error}") from error
    if attribute[_COMPUTE_MODE] != _DEFAULT_MODE:
        raise MachineError(
            f"GPU {index} is in exclusive or prohibited compute mode: candidate and expert need a process "
            "each; its administrator can allow that with `nvidia-smi -c DEFAULT`"
        )
    capability = (attribute[_MAJOR], attribute[_MINOR])
    architecture = resolve_architecture(Target.GENERAL, capability)
    bus = f"{attribute[_PCI_DOMAIN]:08x}:{attribute[_PCI_BUS]:02x}:{attribute[_PCI_DEVICE]:02x}.0"
    return Gpu(index, name, architecture, capability, version_text(version), memory, attribute[_L2], bus)


def refuse_mps() -> None:
    """Raise MachineError if an MPS server would join candidate and expert in one context."""
    directory = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))
    if (directory / "control").exists():
        raise MachineError(
            f"an MPS control daemon serves {directory}: it joins processes on the GPU, so that neither their "
            "memory nor their times are separate; stop it with `echo quit | nvidia-cuda-mps-control`"
        )
