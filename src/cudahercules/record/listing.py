"""A launch plan as a person reads it: what would run, where, on how much of the device."""

from __future__ import annotations

import math

from cudahercules.build.artifact import Artifact
from cudahercules.names import demangled
from cudahercules.record.extract import AddressBook
from cudahercules.record.plan import (
    Copy,
    EventRecord,
    EventWait,
    KernelLaunch,
    LaunchPlan,
    Memset,
    Operation,
    Relocation,
    Upload,
)

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size_text(size: float) -> str:
    """``1536`` as ``1.5 KiB``."""
    unit = 0
    while size >= 1024 and unit < len(UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.4g} {UNITS[unit]}"


def describe(plan: LaunchPlan, artifact: Artifact) -> str:
    """The listing of ``plan``: one line an operation, between a head and the totals."""
    view = _View(plan, artifact)
    out = [f"plan for {plan.task}, workload {plan.workload}, sm_{plan.architecture}, profile {plan.profile}"]
    out += ["buffers:"]
    out += [f"  {b.name:<16} {b.kind:<8} {size_text(b.size):>10}  at {b.address:#x}" for b in plan.buffers]
    for phase, operations in (("prepare", plan.prepare), ("solve", plan.solve)):
        if operations or phase == "solve":
            out.append(f"{phase}:")
            out += [f"  {i:>4}  stream {op.stream}  {view.operation(op)}" for i, op in enumerate(operations)]
    if plan.tensor_maps:
        out.append("tensor maps:")
        for i, m in enumerate(plan.tensor_maps):
            shape = " x ".join(map(str, m.dimensions))
            out.append(f"  {i:>4}  {m.kind} {shape}, box {' x '.join(map(str, m.box))}, {view.at(m.address)}")
    if plan.answers:
        out.append("asked of the device:")
        out += [f"  {a.question}: {a.answer}" for a in plan.answers]
    scratch = [b for b in plan.buffers if b.kind == "scratch"]
    uploads = sum(len(op.data) for op in (*plan.prepare, *plan.solve) if isinstance(op, Upload))
    streams = len({op.stream for op in plan.solve} | {0})
    out.append(
        f"total: {len(plan.launches)} launches on {streams} stream{'s' * (streams != 1)}, "
        f"{len(scratch)} scratch buffers ({size_text(sum(b.size for b in scratch))}), "
        f"{size_text(uploads)} uploaded, sha256 {plan.sha256[:16]}"
    )
    return "\n".join(out) + "\n"


class _View:
    def __init__(self, plan: LaunchPlan, artifact: Artifact):
        self.plan, self.artifact = plan, artifact
        self.book = AddressBook(plan.buffers, plan.symbols)

    def at(self, address: int) -> str:
        found = self.book.find(address)
        if found is None:
            return f"{address:#x}"
        kind, index, offset = found
        name = demangled((self.plan.buffers if kind == "buffer" else self.plan.symbols)[index].name)
        return f"{name}+{offset}" if offset else name

    def operation(self, op: Operation) -> str:
        if isinstance(op, KernelLaunch):
            return self._launch(op)
        if isinstance(op, Memset):
            rows = f" x {op.height} rows" if op.height > 1 else ""
            size = size_text(op.width * op.element_size)
            return f"memset  {self.at(op.address)}, {size}{rows} = {op.value:#x}"
        if isinstance(op, Copy):
            rows = f" x {op.height} rows" if op.height > 1 else ""
            return f"copy    {self.at(op.source)} -> {self.at(op.destination)}, {size_text(op.width)}{rows}"
        if isinstance(op, Upload):
            marks = f", {len(op.relocations)} addresses" if op.relocations else ""
            maps = f", {len(op.tensor_maps)} tensor maps" if op.tensor_maps else ""
            return f"upload  {size_text(len(op.data))} -> {self.at(op.destination)}{marks}{maps}"
        if isinstance(op, EventRecord):
            return f"record  event {op.event}"
        assert isinstance(op, EventWait)
        return f"wait    event {op.event}"

    def _launch(self, op: KernelLaunch) -> str:
        kernel = self.artifact.kernel(op.module, op.kernel)
        shared = op.dynamic_shared + (kernel.static_shared if kernel else 0)
        parts = [
            f"kernel  {demangled(op.kernel)}<<<{_dim(op.grid)}, {_dim(op.block)}>>>",
            f"({math.prod(op.grid) * math.prod(op.block):,} threads",
        ]
        facts = [f"{size_text(shared)} shared"] if shared else []
        facts += [f"cluster {_dim(op.cluster)}"] if any(op.cluster) else []
        facts += ["cooperative"] if op.cooperative else []
        facts += ["programmatic"] if op.programmatic else []
        facts += [f"priority {op.priority}"] if op.priority else []
        facts += [f"carve-out {op.shared_carveout} %"] if op.shared_carveout >= 0 else []
        facts += [f"L2 window {self.at(op.access_policy.address)}"] if op.access_policy else []
        text = " ".join(parts) + "".join(f", {f}" for f in facts) + ")"
        pointers = [f"[{r.offset}] {self._target(r)}" for r in op.relocations]
        pointers += [f"[{m.offset}] tensor map {m.index}" for m in op.tensor_maps]
        return text + (f" {', '.join(pointers)}" if pointers else "")

    def _target(self, r: Relocation) -> str:
        name = demangled((self.plan.buffers if r.kind == "buffer" else self.plan.symbols)[r.index].name)
        return f"{name}+{r.addend}" if r.addend else name


def _dim(value: tuple[int, int, int]) -> str:
    if value[1:] == (1, 1):
        return str(value[0])
    return "x".join(map(str, value))
