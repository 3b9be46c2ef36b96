"""The CUDA driver API through cuda-bindings, with errors as exceptions.

``api.cuMemAlloc(n)`` calls the function of that name, raises :class:`DriverError` unless it
succeeded, and returns what is left of the result: nothing, one value or a tuple. Types and
enumerations (``api.CUlaunchConfig``) pass through. Nothing is imported before the first use.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from cudahercules.build.toolchain import install_extra
from cudahercules.errors import MachineError

STICKY = {700, 702, 710, 714, 715, 716, 717, 718, 719, 720, 721}
"""CUresults after which the context is unusable: a kernel did something wrong."""
OUT_OF_MEMORY = 2
LOST = {OUT_OF_MEMORY, 3, 46, 100, 101, 214, 220, 802, 803, 804, 810, 999}
"""CUresults that speak of the machine: no memory or device, hardware (ECC, NVLink), driver, MPS."""
MINIMUM_DRIVER = 13000
"""cuDriverGetVersion of CUDA 13.0: cubins of that toolkit need it."""


class DriverError(Exception):
    """A driver call failed. ``code`` is the CUresult, ``name`` its name, ``call`` the function."""

    def __init__(self, call: str, code: int, name: str, text: str):
        super().__init__(f"{call}: {name} ({code}): {text}")
        self.call, self.code, self.name, self.text = call, code, name, text

    @property
    def sticky(self) -> bool:
        return self.code in STICKY


@lru_cache(maxsize=1)
def bindings() -> Any:
    """The module ``cuda.bindings.driver``. Raises MachineError if it is not installed."""
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise MachineError(
            f"the GPU judge needs cuda-bindings: {install_extra('gpu')}, or use --device cpu"
        ) from error
    return driver


def _describe(code: Any) -> tuple[str, str]:
    cuda = bindings()
    _, name = cuda.cuGetErrorName(code)
    _, text = cuda.cuGetErrorString(code)
    return (
        name.decode() if name else f"CUresult {int(code)}",
        text.decode() if text else "no description",
    )


class Api:
    """Attribute access gives checked driver functions; see the module's docstring."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(bindings(), name)
        if name[:2] != "cu" or isinstance(found, type):
            return found
        checked = self._checked(name, found)
        setattr(self, name, checked)  # next time without __getattr__
        return checked

    @staticmethod
    def _checked(name: str, function: Callable[..., tuple[Any, ...]]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            code, *values = function(*arguments)
            if int(code) != 0:
                raise DriverError(name, int(code), *_describe(code))
            if not values:
                return None
            return values[0] if len(values) == 1 else tuple(values)

        return call


api: Any = Api()


class Context:
    """The primary context of a device, current in this thread until :meth:`close`."""

    def __init__(self, device: int):
        api.cuInit(0)
        self.driver_version = int(api.cuDriverGetVersion())
        if self.driver_version < MINIMUM_DRIVER:
            raise MachineError(
                f"the driver supports CUDA {self.driver_version // 1000}.{self.driver_version % 1000 // 10}; "
                "plans need 13.0: install driver 580 or newer"
            )
        self.device_number = device
        self.device = api.cuDeviceGet(device)
        self.handle = api.cuDevicePrimaryCtxRetain(self.device)
        api.cuCtxSetCurrent(self.handle)
        self.name = bytes(api.cuDeviceGetName(256, self.device)).split(b"\0")[0].decode()

    def attribute(self, number: int) -> int:
        """The value of CUdevice_attribute ``number`` (equal to cudaDeviceAttr of that number)."""
        return int(api.cuDeviceGetAttribute(api.CUdevice_attribute(number), self.device))

    @property
    def compute_capability(self) -> tuple[int, int]:
        return self.attribute(75), self.attribute(76)

    def close(self) -> None:
        api.cuDevicePrimaryCtxRelease(self.device)


def version_text(version: int) -> str:
    return f"{version // 1000}.{version % 1000 // 10}"
