"""What the emitters of single instructions know about the function around them."""

from __future__ import annotations

from dataclasses import dataclass, field

from cudahercules.emulator.emit.access import Access, Unsupported, storage_types
from cudahercules.emulator.emit.accumulators import accumulators
from cudahercules.emulator.emit.special import special
from cudahercules.emulator.ptx.ir import Function, Instruction, Location, Module, Symbol, Variable

FUNCTION_BASE = 0x7F00_0000_0000_0000
"""Function pointers are handles from here on, 16 apart, 2**32 a module (also in state.hpp)."""


@dataclass(frozen=True, slots=True)
class Site:
    """A place that reports may name; the last two as in Location."""

    function: str
    file: str
    line: int
    instruction: str
    inner: str = ""
    callers: tuple[str, ...] = ()


@dataclass(slots=True)
class ModuleContext:
    """Numbering of a module's functions, symbols and sites; layout of shared memory."""

    module: Module
    functions: dict[str, int] = field(default_factory=dict)
    symbols: dict[str, int] = field(default_factory=dict)
    shared: dict[str, int] = field(default_factory=dict)
    sites: list[Site] = field(default_factory=list)

    def add_site(self, function: str, location: Location, text: str) -> int:
        self.sites.append(
            Site(function, location.file, location.line, text, location.inner, location.callers)
        )
        return len(self.sites) - 1


class FunctionContext:
    """One function: its access to operands, its local memory and its sites."""

    def __init__(self, module: ModuleContext, function: Function, shared: dict[str, int]):
        self.module = module
        self.function = function
        self.shared = shared
        self.access = Access(storage_types(function), self.address_of, special)
        self.accumulators = accumulators(function)
        self.local: dict[str, int] = {}
        self.local_bytes = 0
        self.parameters = self._number_parameters()
        self.instruction: Instruction | None = None
        self._site: int | None = None
        for variable in function.variables.values():
            if variable.space == "local" or (variable.space == "param"):
                self.place_local(variable)

    def _number_parameters(self) -> dict[str, tuple[int, Variable]]:
        function = self.function
        if not function.is_kernel:
            variables = (*function.returns, *function.parameters)
            return {v.name: (i, v) for i, v in enumerate(variables)}
        offsets: dict[str, tuple[int, Variable]] = {}
        position = 0
        for variable in function.parameters:
            position = -(-position // variable.alignment) * variable.alignment
            offsets[variable.name] = (position, variable)
            position += variable.size
        return offsets

    @property
    def parameter_bytes(self) -> int:
        return max((at + v.size for at, v in self.parameters.values()), default=0)

    def place_local(self, variable: Variable) -> None:
        alignment = max(8, variable.alignment)
        self.local_bytes = -(-self.local_bytes // alignment) * alignment
        self.local[variable.name] = self.local_bytes
        self.local_bytes += max(variable.size, 1)

    def begin(self, instruction: Instruction) -> None:
        """``instruction`` is the one that the next emitters work on."""
        self.instruction = instruction
        self._site = None

    @property
    def site(self) -> int:
        """The site number of the current instruction (one for each instruction that asks)."""
        if self._site is None:
            assert self.instruction is not None
            self._site = self.module.add_site(
                self.function.name, self.instruction.location, self.instruction.text
            )
        return self._site

    def parameter(self, name: str) -> str:
        """A ``uint8_t*`` (or const) to the function's own parameter or return value ``name``."""
        position, _ = self.parameters[name]
        return f"P + {position}" if self.function.is_kernel else f"A[{position}]"

    def address_of(self, symbol: Symbol) -> str:
        """A symbol's address in its own space, as an unsigned C++ expression."""
        name, offset = symbol.name, symbol.offset
        if name in self.local:
            return f"((uint64_t)F + {self.local[name] + offset})"
        if name in self.parameters:
            return f"((uint64_t)({self.parameter(name)}) + {offset})"
        if name in self.shared:
            return f"(SO + {self.shared[name] + offset}u)"
        variable = self.module.module.variables.get(name)
        if variable is not None and variable.space == "shared":
            return f"(dynamic_shared + {offset}u)"
        if name in self.module.symbols:
            return f"(rt_symbols[{self.module.symbols[name]}] + {offset}ull)"
        if name in self.module.functions:
            return f"(rt_function_base + {16 * self.module.functions[name]}ull)"
        raise Unsupported(f"unknown name {name}")
