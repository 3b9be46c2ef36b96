"""A whole module in C++: one function a kernel or device function, and the tables that the host reads."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from cudahercules.emulator.emit import (
    accumulators,
    atomics,
    bulk,
    cluster,
    control,
    copies,
    mbarrier,
    memory,
    sparse,
    tensor,
    tensor_map,
    warp,
    wgmma,
    wmma,
)
from cudahercules.emulator.emit.access import Unsupported
from cudahercules.emulator.emit.context import FunctionContext, ModuleContext, Site
from cudahercules.emulator.outcome import UnsupportedInstruction
from cudahercules.emulator.ptx.ir import Function, Instruction, LabelMark, Module, Symbol, Variable
from cudahercules.emulator.scalar.table import expression

Emitter = Callable[[FunctionContext, Instruction], str | None]


# By opcode, or by opcode and first modifiers: the longest name that fits counts.
_EMITTERS: dict[str, Emitter] = {
    "ld": memory.load,
    "ldu": memory.load,
    "st": memory.store,
    "st.async": cluster.store_async,
    "cvta": memory.convert_address,
    "isspacep": memory.is_space,
    "prefetch": memory.prefetch,
    "prefetchu": memory.prefetch,
    "applypriority": memory.priority,
    "discard": memory.priority,
    "createpolicy": memory.policy,
    "atom": atomics.atomic,
    "red": atomics.atomic,
    "red.async": cluster.reduce_async,
    "shfl": warp.shuffle,
    "vote": warp.vote,
    "match": warp.match,
    "redux": warp.redux,
    "elect": warp.elect,
    "activemask": warp.activemask,
    "bar": warp.barrier,
    "barrier": warp.barrier,
    "barrier.cluster": cluster.barrier,
    "membar": warp.fence,
    "fence": warp.fence,
    "nanosleep": warp.nanosleep,
    "mbarrier": mbarrier.mbarrier,
    "cp": copies.copy,
    "cp.async.bulk": bulk.bulk,
    "cp.reduce.async.bulk": bulk.reduce_bulk,
    "tensormap": tensor_map.tensor_map,
    "mapa": cluster.map_address,
    "getctarank": cluster.rank,
    "griddepcontrol": warp.no_effect,
    "setmaxnreg": warp.no_effect,
    "mma": tensor.mma,
    "mma.sp": sparse.mma_sparse,
    "mma.sp::ordered_metadata": sparse.mma_sparse,
    "ldmatrix": tensor.matrix,
    "stmatrix": tensor.matrix,
    "movmatrix": tensor.movmatrix,
    "wmma": wmma.wmma,
    "wgmma": wgmma.wgmma,
    "mov": control.move,
    "ret": control.leave,
    "exit": control.leave,
    "trap": control.stop,
    "brkpt": control.stop,
    "call": control.call,
    "alloca": control.stack,
    "stacksave": control.stack,
    "stackrestore": control.stack,
}
_ENDS = frozenset(("bra", "brx", "ret", "exit", "trap", "brkpt"))
_MOST_ALIGNMENT = 1024
_MOST_LOCAL, _MOST_SHARED, _MOST_PARAMETERS = 512 << 10, 227 << 10, 32764
"""Bytes that hardware gives a thread, a block and a launch."""
_MOST_STACK = 16 << 20
"""Bytes of local memory of a kernel and all device functions together: each thread here has as much."""


@dataclass(frozen=True, slots=True)
class Translation:
    """``source`` is the C++ text; ``symbols`` the module variables in the order of ``rt_symbols``,
    ``functions`` the device functions by handle, ``kernels`` the names of the kernels and ``parameters``
    where each one's parameters lie: (offset, size) in bytes. With anything in ``unsupported`` the source
    is not to be used. ``asynchronous`` says whether anything in it completes later than it is issued;
    ``shared`` has the shared variables of each kernel: (name, offset, size)."""

    source: str
    symbols: tuple[Variable, ...]
    functions: tuple[str, ...]
    kernels: tuple[str, ...]
    parameters: tuple[tuple[tuple[int, int], ...], ...]
    sites: tuple[Site, ...]
    unsupported: tuple[UnsupportedInstruction, ...]
    asynchronous: bool
    shared: tuple[tuple[tuple[str, int, int], ...], ...]


def translate(module: Module, counting: bool = False) -> Translation:
    """C++ for ``module``. ``counting`` adds a count of dynamic instructions."""
    return _Translator(module, counting).translate()


class _Translator:
    def __init__(self, module: Module, counting: bool):
        self.module = module
        self.counting = counting
        self.refused: dict[tuple[str, str, str, int], int] = {}
        self.context = ModuleContext(module)
        device = [f for f in module.functions.values() if not f.is_kernel]
        self.context.functions = {f.name: i for i, f in enumerate(device)}
        symbols = [v for v in module.variables.values() if v.space in ("global", "const")]
        self.context.symbols = {v.name: i for i, v in enumerate(symbols)}
        self.symbols = tuple(symbols)
        self.parameters: list[tuple[tuple[int, int], ...]] = []
        self.shared: list[tuple[tuple[str, int, int], ...]] = []
        self.device = device
        self.kernels = [f for f in module.functions.values() if f.is_kernel and f.body is not None]

    def translate(self) -> Translation:
        common, common_size = self._place_shared(self.device, {}, 0)
        for variable in self.symbols:
            if variable.external:
                self._refuse(f".extern {variable.space} variable {variable.name}", "", "", 0)
        bodies = [self._function(f, common) for f in self.device if f.body is not None]
        local = sum(size for _, size, _ in bodies)
        rows = []
        for number, kernel in enumerate(self.kernels):
            shared, size = self._place_shared([kernel], common, common_size)
            self.shared.append(self._shared_table(kernel, shared))
            text, local_bytes, parameter_bytes = self._function(kernel, shared, number)
            bodies.append((text, 0, 0))
            alignment = max(
                (
                    v.alignment
                    for f in (kernel, *self.device)
                    for v in _shared_variables(f, self.module)
                    if v.external
                ),
                default=16,
            )
            self._refuse_beyond(size, _MOST_SHARED, "shared memory in a block", kernel)
            self._refuse_beyond(local_bytes + local, _MOST_STACK, "local memory in all functions", kernel)
            self._refuse_beyond(parameter_bytes, _MOST_PARAMETERS, "parameters", kernel)
            size = -(-size // max(16, min(alignment, _MOST_ALIGNMENT))) * max(
                16, min(alignment, _MOST_ALIGNMENT)
            )
            rows.append(
                f'  {{"{kernel.name}", k_{number}, {size}u, {parameter_bytes}u, {local_bytes + local}u, '
                f"{_cluster(kernel)}}},"
            )
        return Translation(
            "\n".join(self._file([text for text, _, _ in bodies], rows)),
            self.symbols,
            tuple(f.name for f in self.device),
            tuple(f.name for f in self.kernels),
            tuple(self.parameters),
            tuple(self.context.sites),
            tuple(
                UnsupportedInstruction(instruction=name, kernel=kernel, file=file, line=line, count=count)
                for (name, kernel, file, line), count in self.refused.items()
            ),
            any(_is_asynchronous(f) for f in self.module.functions.values()),
            tuple(self.shared),
        )

    def _refuse_beyond(self, size: int, most: int, what: str, function: Function) -> None:
        if size > most:
            at = function.location
            self._refuse(f"{size} bytes of {what}, where {most} is the most", function.name, at.file, at.line)

    def _refuse(self, name: str, function: str, file: str, line: int) -> None:
        key = (name, function, file, line)
        self.refused[key] = self.refused.get(key, 0) + 1

    def _place_shared(
        self, functions: list[Function], placed: dict[str, int], size: int
    ) -> tuple[dict[str, int], int]:
        """Shared-memory offsets of the variables that ``functions`` mention, behind those placed."""
        placed = dict(placed)
        for function in functions:
            for variable in _shared_variables(function, self.module):
                if variable.name in placed or variable.external:
                    continue
                size = -(-size // variable.alignment) * variable.alignment
                placed[variable.name] = size
                size += variable.size
        return placed, size

    def _shared_table(self, kernel: Function, placed: dict[str, int]) -> tuple[tuple[str, int, int], ...]:
        sizes = {v.name: v.size for f in (kernel, *self.device) for v in _shared_variables(f, self.module)}
        return tuple((name, offset, sizes[name]) for name, offset in placed.items())

    def _function(self, function: Function, shared: dict[str, int], kernel: int = -1) -> tuple[str, int, int]:
        context = FunctionContext(self.context, function, shared)
        if function.is_kernel:
            self.parameters.append(tuple((at, v.size) for at, v in context.parameters.values()))
        lines = list(self._statements(context))
        entry = self.context.add_site(function.name, function.location, "")
        if function.is_kernel:
            head = f"static void k_{kernel}(rt::Thread& t, const uint8_t* P) {{"
        else:
            head = (
                f"static void f_{self.context.functions[function.name]}(rt::Thread& t, uint8_t* const* A) {{"
            )
        # In a cluster a block's own shared addresses carry its rank; before sm_90 there are none.
        origin = "t.block->shared_base" if _has_clusters(self.module) else "rt::shared_origin"
        storage = context.access.storage
        registers = [f"{type_} {n}{{}};" for n, type_ in storage.items() if n not in context.accumulators]
        registers += accumulators.declarations(context.accumulators, storage)
        self._refuse_beyond(context.local_bytes, _MOST_LOCAL, "local memory in a thread", function)
        body = [
            head,
            f"  uint8_t* const F = rt::enter(t, {-(-context.local_bytes // 16) * 16}, {entry});",
            "  rt::Slot* const S = rt::slots_of(t);" if any(" S," in line for line in lines) else "",
            "  uint8_t* const SH = t.block->shared; const uint32_t SN = t.block->shared_size;",
            f"  const uint32_t SO = {origin};",
            "  const uint32_t dynamic_shared = SO + SN - t.block->shared_dynamic;",
            "  bool carry = false;",
            *(f"  {r}" for r in registers),
            *lines,
            "  t.local = F;",
            "}",
        ]
        return "\n".join(line for line in body if line), context.local_bytes + 16, context.parameter_bytes

    def _statements(self, context: FunctionContext) -> Iterator[str]:
        body = context.function.body or []
        labels = {item.name for item in body if isinstance(item, LabelMark)}
        seen: set[str] = set()
        for position, item in enumerate(body):
            if self.counting and (
                position == 0 or isinstance(body[position - 1], LabelMark) or _ends(body[position - 1])
            ):
                yield from self._count(body, position)
            if isinstance(item, LabelMark):
                seen.add(item.name)
                yield f" {item.name}:;"
                continue
            text = self._instruction(context, item, seen, labels)
            guard = item.guard
            if guard is not None:
                condition = f"{'!' if guard.negated else ''}{guard.register.name}"
                yield f"  if ({condition}) {{ {text} }}"
            else:
                yield f"  {{ {text} }}"

    def _count(self, body: list[Instruction | LabelMark], position: int) -> Iterator[str]:
        count = 0
        for item in body[position:]:
            if isinstance(item, LabelMark):
                break
            count += 1
            if _ends(item):
                break
        if count:
            yield f"  t.count += {count};"

    def _instruction(
        self, context: FunctionContext, instruction: Instruction, seen: set[str], labels: set[str]
    ) -> str:
        context.begin(instruction)
        text: str | None = None
        reason = instruction.name
        try:
            if instruction.opcode in ("bra", "brx"):
                text = control.branch(context, instruction, seen, labels)
            elif emitter := _emitter(instruction):
                text = emitter(context, instruction)
            else:
                text = expression(instruction, context.access)
        except (Unsupported, ValueError, IndexError) as error:
            # Besides what an emitter refuses: fewer or more operands than it takes.
            if isinstance(error, Unsupported) and str(error) != instruction.name:
                reason = f"{instruction.name} ({error})"
        if text is not None:
            text += accumulators.after_copy(context.accumulators, instruction)
            for index in accumulators.reads(context.accumulators, instruction):
                text = f"rt::watch::product_read(ACC, {index}, {context.site}); {text}"
        if text is None:
            if instruction.opcode == "call":
                reason = instruction.text.rstrip(";")
            location = instruction.location
            self._refuse(reason, context.function.name, location.file, location.line)
            return ";"
        return text

    def _file(self, bodies: list[str], kernels: list[str]) -> Iterator[str]:
        yield '#include "atomics.hpp"'
        yield '#include "bulk.hpp"'
        yield '#include "cluster.hpp"'
        yield '#include "mbarrier.hpp"'
        if any(f" rt::w{name}" in body for body in bodies for name in ("mma_load<", "mma_store<")):
            yield '#include "wmma.hpp"'
        yield '#include "wgmma.hpp"'
        yield '#include "scalar.hpp"'
        yield f"static uint64_t rt_symbols[{max(1, len(self.symbols))}];"
        yield "static uint64_t rt_function_base;"
        for number, function in enumerate(self.device):
            if function.body is not None:
                yield control.declared(function, number)
        yield from bodies
        yield "static const rt::KernelEntry kernel_entries[] = {"
        yield from kernels or ["  {nullptr, nullptr, 0, 0, 0, {}}"]
        yield "};"
        yield "static const rt::FunctionEntry function_entries[] = {"
        for number, function in enumerate(self.device):
            code = f"f_{number}" if function.body is not None else "nullptr"
            yield f"  {{{code}, {control.signature(function.returns, function.parameters)}}},"
        if not self.device:
            yield "  {nullptr, 0}"
        yield "};"
        yield 'extern "C" __attribute__((visibility("default"))) const rt::Exports rt_exports = {'
        yield f"  kernel_entries, {len(self.kernels)}, function_entries, {len(self.device)},"
        yield f"  rt_symbols, &rt_function_base, {len(self.context.sites)}}};"
        yield ""


def _emitter(instruction: Instruction) -> Emitter | None:
    for count in (3, 2, 1, 0):
        name = ".".join((instruction.opcode, *instruction.modifiers[:count]))
        if name in _EMITTERS:
            return _EMITTERS[name]
    return None


def _has_clusters(module: Module) -> bool:
    architecture = re.match(r"sm_(\d{1,4})", module.target)
    return architecture is not None and int(architecture[1]) >= 90


def _cluster(kernel: Function) -> str:
    """The cluster dimensions that the kernel was compiled for, as a C++ initialiser."""
    fixed = kernel.directives.get("reqnctapercluster", ())
    return "{" + ", ".join(map(str, (*fixed, 1, 1)[:3] if fixed else (0, 0, 0))) + "}"


def _is_asynchronous(function: Function) -> bool:
    return any(
        isinstance(item, Instruction)
        and (item.opcode in ("wgmma", "mbarrier") or "async" in item.modifiers[:2])
        for item in function.body or ()
    )


def _ends(item: Instruction | LabelMark) -> bool:
    return isinstance(item, Instruction) and item.opcode in _ENDS


def _shared_variables(function: Function, module: Module) -> Iterator[Variable]:
    yield from (v for v in function.variables.values() if v.space == "shared")
    names = set()
    for item in function.body or ():
        if isinstance(item, Instruction):
            for operand in item.operands:
                base = getattr(operand, "base", operand)
                if isinstance(base, Symbol):
                    names.add(base.name)
    yield from (v for v in module.variables.values() if v.space == "shared" and v.name in names)
