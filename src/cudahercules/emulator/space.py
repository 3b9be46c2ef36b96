"""Where everything lies in the emulated device's memory, and what an address means to a person."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cudahercules.emulator.emit.context import FUNCTION_BASE
from cudahercules.emulator.translation import Built
from cudahercules.errors import PlanError
from cudahercules.record.plan import SYMBOL_BASE, LaunchPlan

PAGE = 4096
_UNREGISTERED_BASE = SYMBOL_BASE + (1 << 40)
"""Variables that the host code never saw (string literals, static variables) lie from here on."""
_GAP = 4096


@dataclass(frozen=True, slots=True)
class Region:
    """A named range of memory. ``kind`` is b (buffer), s (variable) or c (constant)."""

    kind: str
    name: str
    role: str
    address: int
    size: int
    writable: bool

    @property
    def end(self) -> int:
        return self.address + self.size


class Space:
    """The regions of one plan: its buffers, then the variables of its modules."""

    def __init__(self, plan: LaunchPlan, modules: Sequence[Built]):
        self.modules = modules
        self.buffers = [
            Region("b", b.name, b.kind, b.address, b.size, b.kind != "input") for b in plan.buffers
        ]
        self.symbols: dict[tuple[int, str], Region] = dict(self._place(plan))
        self.regions = [*self.buffers, *self.symbols.values()]

    def _place(self, plan: LaunchPlan) -> Iterator[tuple[tuple[int, str], Region]]:
        registered = {(s.module, s.name): s.address for s in plan.symbols}
        free = _UNREGISTERED_BASE
        for number, module in enumerate(self.modules):
            for variable in module.variables:
                address = registered.get((number, variable.name))
                if address is None:
                    alignment = max(256, variable.alignment)
                    address = free = -(-free // alignment) * alignment
                    free += variable.size + _GAP
                constant = variable.space == "const"
                yield (
                    (number, variable.name),
                    Region(
                        "c" if constant else "s",
                        variable.name,
                        variable.space,
                        address,
                        variable.size,
                        not constant,
                    ),
                )

    def symbol_address(self, module: int, name: str) -> int:
        """The address of a variable, or the handle of a function."""
        region = self.symbols.get((module, name))
        if region is not None:
            return region.address
        functions = self.modules[module].functions
        if name in functions:
            return FUNCTION_BASE + (module << 32) + 16 * functions.index(name)
        raise PlanError(f"module {module} has neither variable nor function {name!r}")

    def initial_bytes(self, module: int, index: int) -> bytes:
        """What variable ``index`` of ``module`` holds before the plan runs (without trailing zeros)."""
        variable = self.modules[module].variables[index]
        data = bytearray(variable.data)
        for offset, name, addend in variable.relocations:
            address = self.symbol_address(module, name) + addend
            data[offset : offset + 8] = (address & (2**64 - 1)).to_bytes(8, "little")
        return bytes(data)

    def holding(self, address: int, size: int) -> Region | None:
        """The region in which all of ``[address, address + size)`` lies."""
        return next((r for r in self.regions if r.address <= address and address + size <= r.end), None)

    def nearest(self, address: int, size: int) -> Region | None:
        """The region in which, or nearest to which, an access lies; none within 4 GiB."""
        near = min(self.regions, key=lambda r: _distance(r, address, size), default=None)
        return None if near is None or _distance(near, address, size) > 1 << 32 else near

    def describe(self, address: int, size: int) -> str:
        """Where an address lies: in a region, or how far from the nearest."""
        near = self.nearest(address, size)
        if near is None:
            if address < 1 << 16:
                return f"at address {address:#x}, a null pointer"
            return f"at address {address:#x}, far from all memory of the kernel"
        name = f"{'buffer' if near.kind == 'b' else 'variable'} '{near.name}' ({near.size} bytes)"
        offset = address - near.address
        if offset < 0:
            return f"{-offset} bytes before the start of {name}"
        if offset >= near.size:
            past = offset - near.size
            return f"{past} bytes past the end of {name}" if past else f"just past the end of {name}"
        return f"at byte {offset} of {name}"


def _distance(region: Region, address: int, size: int) -> int:
    if address < region.address:
        return region.address - address
    return max(0, address + size - region.end)


def page_runs(regions: Sequence[Region]) -> list[tuple[int, int]]:
    """The pages under ``regions`` as (address, size), joined where they touch."""
    runs: list[tuple[int, int]] = []
    for region in sorted(regions, key=lambda r: r.address):
        if not region.size:
            continue
        start = region.address // PAGE * PAGE
        end = -(-region.end // PAGE) * PAGE
        if runs and start <= runs[-1][0] + runs[-1][1]:
            first = runs[-1][0]
            runs[-1] = (first, max(end, first + runs[-1][1]) - first)
        else:
            runs.append((start, end - start))
    return runs
