"""Check a launch plan, which is untrusted data, against its artifact and its task.

After :func:`check_plan` has returned, a plan can launch only the candidate's own kernels, with
parameters of the right size, and can copy and set only inside its own buffers and variables.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

from cudahercules.build.artifact import Artifact, KernelInfo
from cudahercules.errors import PlanError
from cudahercules.record import layout
from cudahercules.record.extract import TENSOR_MAP_ALIGNMENT, TENSOR_MAP_BYTES, AddressBook, misaligned
from cudahercules.record.plan import (
    ARENA_BASE,
    Copy,
    EventRecord,
    EventWait,
    KernelLaunch,
    LaunchPlan,
    Memset,
    Placed,
    Relocation,
    TensorMap,
    Upload,
)
from cudahercules.task.model import Task

MAX_OPERATIONS = 100_000
MAX_WITH_EVENTS = 4 * MAX_OPERATIONS
MAX_SCRATCH_BYTES = 64 << 30
MAX_SCRATCH_COUNT = 4096
MAX_UPLOAD_BYTES = 64 << 20
MAX_STREAMS = 1024
MAX_TENSOR_MAPS = 4096
MAX_TENSOR_BYTES = 1 << 40
MAX_ANSWERS = 100_000
MAX_ANSWER_CHARACTERS = 8192
MAX_STACK = 512 << 10

MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_BLOCK = (1024, 1024, 64)
MAX_BLOCK_THREADS = 1024
MAX_DYNAMIC_SHARED = 256 << 10
MAX_CLUSTER = 16


@cache
def _parameter_bytes(parameters: tuple[tuple[int, int], ...]) -> int:
    return max((offset + size for offset, size in parameters), default=0)


def parameter_bytes(kernel: KernelInfo) -> int:
    """Size of the kernel's parameter block up to the end of its last parameter."""
    return _parameter_bytes(kernel.parameters)


def check_plan(plan: LaunchPlan, artifact: Artifact, task: Task | None = None) -> None:
    """Raise PlanError, naming operation and field, unless everything in ``plan`` is in range."""
    if plan.artifact != artifact.key:
        raise PlanError("artifact: the plan was recorded from another build")
    if plan.architecture != artifact.architecture:
        raise PlanError(f"architecture: the plan is for sm_{plan.architecture}, not {artifact.architecture}")
    if plan.prepare and not artifact.has_prepare:
        raise PlanError("prepare: the candidate defines no prepare, so nothing may run untimed")
    _check_memory(plan, artifact, task)
    _check_small_things(plan)
    _Checker(plan, artifact).run()


def _check_memory(plan: LaunchPlan, artifact: Artifact, task: Task | None) -> None:
    if plan.arena_base != ARENA_BASE:
        raise PlanError(f"arena_base: {plan.arena_base:#x}, expected {ARENA_BASE:#x}")
    start = ARENA_BASE
    scratch = [b for b in plan.buffers if b.kind == "scratch"]
    if len(scratch) > MAX_SCRATCH_COUNT or sum(b.size for b in scratch) > MAX_SCRATCH_BYTES:
        raise PlanError(f"buffers: over {MAX_SCRATCH_COUNT} scratch buffers or {MAX_SCRATCH_BYTES >> 30} GiB")
    if len(plan.buffers) - len(scratch) > 1024 or len({b.name for b in plan.buffers}) != len(plan.buffers):
        raise PlanError("buffers: too many, or two of one name")
    for index, buffer in enumerate(plan.buffers):
        if not 0 < buffer.size <= MAX_TENSOR_BYTES or len(buffer.name) > 64:
            raise PlanError(f"buffers {index}: size {buffer.size} or name is out of range")
        address, start = layout.place(start, buffer.size)
        if buffer.address != address:
            raise PlanError(f"buffers {index} ({buffer.name}): address {buffer.address:#x}, not {address:#x}")
    if plan.symbols != layout.symbols(artifact.modules):
        raise PlanError("symbols: they are not the variables of the artifact's modules")
    if task is None:
        return
    if plan.task != task.id:
        raise PlanError(f"task: the plan is for {plan.task}, not {task.id}")
    workload = next((w for w in task.workloads if w.name == plan.workload), None)
    if workload is None:
        raise PlanError(f"workload: {task.id} has none of the name {plan.workload!r}")
    expected = layout.arena(task, workload)
    if plan.buffers[: len(expected)] != expected or len(plan.buffers) != len(expected) + len(scratch):
        raise PlanError(f"buffers: they are not those of workload {workload.name}")


def _check_small_things(plan: LaunchPlan) -> None:
    if len(plan.answers) > MAX_ANSWERS:
        raise PlanError(f"answers: more than {MAX_ANSWERS}")
    for index, answer in enumerate(plan.answers):
        if max(len(answer.question), len(answer.answer)) > MAX_ANSWER_CHARACTERS:
            raise PlanError(f"answers {index}: longer than {MAX_ANSWER_CHARACTERS} characters")
    if not 0 <= plan.stack_limit <= MAX_STACK:
        raise PlanError(f"stack_limit: {plan.stack_limit} is outside 0 to {MAX_STACK}")
    if not 0 <= plan.persisting_l2 <= 1 << 31:
        raise PlanError(f"persisting_l2: {plan.persisting_l2} is out of range")
    for name in (plan.task, plan.workload, plan.profile):
        if len(name) > 256:
            raise PlanError("task, workload or profile: a name is longer than 256 characters")


class _Checker:
    """Walks the operations; ``self.where`` names the one at hand for messages."""

    def __init__(self, plan: LaunchPlan, artifact: Artifact):
        self.plan, self.artifact = plan, artifact
        self.book = AddressBook(plan.buffers, plan.symbols)
        self.kernels = [{k.name: k for k in m.kernels} for m in artifact.modules]
        self.where = ""
        self.uploaded = 0

    def refuse(self, field: str, problem: str):
        raise PlanError(f"{self.where}, field {field}: {problem}")

    def run(self) -> None:
        plan = self.plan
        if len(plan.tensor_maps) > MAX_TENSOR_MAPS:
            raise PlanError(f"tensor_maps: more than {MAX_TENSOR_MAPS}")
        for index, tensor_map in enumerate(plan.tensor_maps):
            self.where = f"tensor map {index}"
            self._tensor_map(tensor_map)
        both = (*plan.prepare, *plan.solve)
        work = sum(not isinstance(op, EventRecord | EventWait) for op in both)
        if work > MAX_OPERATIONS or len(both) > MAX_WITH_EVENTS:
            raise PlanError(f"operations: more than {MAX_OPERATIONS}")
        for phase, operations in (("prepare", plan.prepare), ("solve", plan.solve)):
            for number, op in enumerate(operations):
                self.where = f"{phase} operation {number} ({op.op})"
                if op.stream >= MAX_STREAMS:
                    self.refuse("stream", f"{op.stream} is not below {MAX_STREAMS}")
                if isinstance(op, KernelLaunch):
                    self._launch(op)
                elif isinstance(op, Memset):
                    self._memset(op)
                elif isinstance(op, Copy):
                    self._copy(op)
                elif isinstance(op, Upload):
                    self._upload(op)
            self._order(phase, operations)

    # --- memory -------------------------------------------------------------------------------

    def _range(self, field: str, address: int, width: int, height: int, pitch: int, written: bool) -> None:
        """Rows of ``width`` bytes must lie in one buffer or variable, a writable one if written."""
        if width < 1 or height < 1:
            self.refuse(field, f"{height} rows of {width} bytes")
        if height > 1 and pitch < width:
            self.refuse(field, f"pitch {pitch} is less than a row's {width} bytes")
        span = (height - 1) * pitch + width
        found = self.book.find(address, span)
        if found is None:
            self.refuse(field, f"{span} bytes at {address:#x} do not lie in one buffer or variable")
            return
        if written and found[0] == "buffer" and self.plan.buffers[found[1]].kind == "input":
            self.refuse(field, f"input {self.plan.buffers[found[1]].name} is read-only")

    def _memset(self, op: Memset) -> None:
        if op.value >= 1 << (8 * op.element_size):
            self.refuse("value", f"{op.value} does not fit into {op.element_size} bytes")
        if op.address % op.element_size:
            self.refuse("address", f"not aligned to {op.element_size} bytes")
        self._range("address", op.address, op.width * op.element_size, op.height, op.pitch, True)

    def _copy(self, op: Copy) -> None:
        self._range("destination", op.destination, op.width, op.height, op.destination_pitch, True)
        self._range("source", op.source, op.width, op.height, op.source_pitch, False)

    def _upload(self, op: Upload) -> None:
        self.uploaded += len(op.data)
        if self.uploaded > MAX_UPLOAD_BYTES:
            self.refuse("data", f"uploads exceed {MAX_UPLOAD_BYTES >> 20} MiB in all")
        self._range("destination", op.destination, len(op.data), 1, 0, True)
        self._marks(op.data, op.relocations, op.tensor_maps, [-op.destination])

    def _marks(
        self,
        data: bytes,
        relocations: Sequence[Relocation],
        maps: Sequence[Placed],
        origins: Sequence[int],
    ) -> None:
        """Relocations and tensor maps stand in order, inside, aligned, apart, on zero bytes."""
        spans = []
        for i, r in enumerate(relocations):
            targets: Sequence = self.plan.buffers if r.kind == "buffer" else self.plan.symbols
            if r.index >= len(targets) or r.addend > targets[r.index].size:
                self.refuse(f"relocations.{i}", f"{r.kind} {r.index} + {r.addend} does not exist")
            if misaligned(r.offset, origins, 8):
                self.refuse(f"relocations.{i}", f"offset {r.offset} is not aligned to 8 bytes")
            spans.append((r.offset, 8, f"relocations.{i}"))
        for i, m in enumerate(maps):
            if m.index >= len(self.plan.tensor_maps):
                self.refuse(f"tensor_maps.{i}", f"tensor map {m.index} does not exist")
            if misaligned(m.offset, origins, TENSOR_MAP_ALIGNMENT):
                self.refuse(f"tensor_maps.{i}", f"offset {m.offset} is not aligned to 64 bytes")
            spans.append((m.offset, TENSOR_MAP_BYTES, f"tensor_maps.{i}"))
        end = 0
        for offset, size, field in sorted(spans):
            if offset < end:
                self.refuse(field, f"offset {offset} overlaps what stands before it")
            end = offset + size
            if end > len(data):
                self.refuse(field, f"offset {offset} is outside the {len(data)} bytes")
            if any(data[offset:end]):
                self.refuse(field, f"the bytes at {offset} are not zero")
        for offsets in ([r.offset for r in relocations], [m.offset for m in maps]):
            if offsets != sorted(offsets):
                self.refuse("relocations", "not in ascending order")

    def _tensor_map(self, m: TensorMap) -> None:
        corners = m.rank - 2 if m.kind == "im2col" else 0
        lengths = {
            "dimensions": m.rank,
            "strides": m.rank - 1,
            "element_strides": m.rank,
            "box": m.rank if m.kind == "tiled" else 0,
            "pixel_box_lower": corners,
            "pixel_box_upper": corners,
        }
        for field, length in lengths.items():
            values = getattr(m, field)
            if len(values) != length:
                self.refuse(field, f"{len(values)} values, expected {length}")
            low = -(1 << 31) if field.startswith("pixel") else 0
            if any(not low <= v < 1 << 40 for v in values):
                self.refuse(field, "a value is out of range")
        if corners < 0 or max(m.data_type, m.interleave, m.swizzle, m.l2_promotion, m.oob_fill) > 15:
            self.refuse("kind", "rank or an enumeration is out of range")
        if max(m.channels_per_pixel, m.pixels_per_column) > 1024:
            self.refuse("channels_per_pixel", "out of range")
        if self.book.find(m.address) is None:
            self.refuse("address", f"{m.address:#x} lies in no buffer")

    # --- launches -------------------------------------------------------------------------------

    def _launch(self, op: KernelLaunch) -> None:
        if op.module >= len(self.kernels):
            self.refuse("module", f"{op.module} does not exist")
        kernel = self.kernels[op.module].get(op.kernel)
        if kernel is None:
            self.refuse("kernel", f"module {op.module} has no kernel {op.kernel[:200]!r}")
            return
        self._shape(op, kernel)
        if len(op.parameters) != parameter_bytes(kernel):
            self.refuse("parameters", f"{len(op.parameters)} bytes, expected {parameter_bytes(kernel)}")
        end = 0
        for offset, size in sorted(kernel.parameters):
            if any(op.parameters[end:offset]):
                self.refuse("parameters", f"the padding at byte {end} is not zero")
            end = offset + size
        starts = [offset for offset, _ in kernel.parameters]
        self._marks(op.parameters, op.relocations, op.tensor_maps, starts)
        if op.access_policy is not None:
            window = op.access_policy
            if not (math.isfinite(window.hit_ratio) and 0 <= window.hit_ratio <= 1):
                self.refuse("access_policy.hit_ratio", "outside 0 to 1")
            if window.hit > 2 or window.miss > 2 or window.size > 1 << 31:
                self.refuse("access_policy", "out of range")
            if self.book.find(window.address) is None:
                self.refuse("access_policy.address", f"{window.address:#x} lies in no buffer")

    def _shape(self, op: KernelLaunch, kernel: KernelInfo) -> None:
        for axis in range(3):
            if not 1 <= op.grid[axis] <= MAX_GRID[axis]:
                self.refuse("grid", f"{op.grid} is out of range")
            if not 1 <= op.block[axis] <= MAX_BLOCK[axis]:
                self.refuse("block", f"{op.block} is out of range")
        if math.prod(op.block) > min(MAX_BLOCK_THREADS, kernel.max_threads):
            self.refuse("block", f"{math.prod(op.block)} threads, the kernel allows {kernel.max_threads}")
        if any(kernel.required_threads) and op.block != kernel.required_threads:
            self.refuse("block", f"{op.block}, the kernel requires {kernel.required_threads}")
        if op.dynamic_shared + kernel.static_shared > MAX_DYNAMIC_SHARED:
            self.refuse("dynamic_shared", f"{op.dynamic_shared} bytes are out of range")
        if any(op.cluster) or any(kernel.required_cluster):
            if any(c < 1 for c in op.cluster) or math.prod(op.cluster) > MAX_CLUSTER:
                self.refuse("cluster", f"{op.cluster} is out of range")
            if any(g % c for g, c in zip(op.grid, op.cluster, strict=True)):
                self.refuse("cluster", f"{op.cluster} does not divide the grid {op.grid}")
            if any(kernel.required_cluster) and op.cluster != kernel.required_cluster:
                self.refuse("cluster", f"{op.cluster}, the kernel requires {kernel.required_cluster}")
        if any(op.preferred_cluster):
            preferred = zip(op.grid, op.cluster, op.preferred_cluster, strict=True)
            if any(c < 1 or p < 1 or p % c or g % p for g, c, p in preferred):
                self.refuse("preferred_cluster", f"{op.preferred_cluster} does not fit cluster and grid")
        if op.cluster_policy > 2 or not -5 <= op.priority <= 0 or not -1 <= op.shared_carveout <= 100:
            self.refuse("priority", "cluster_policy, priority or shared_carveout is out of range")

    # --- order ------------------------------------------------------------------------------------

    def _order(self, phase: str, operations: Sequence) -> None:
        """Waits follow records; each stream forks from stream 0 and is joined with it at the end."""
        recorded: dict[int, dict[int, int]] = {}
        known: dict[int, dict[int, int]] = {0: {}}
        last: dict[int, int] = {}
        for number, op in enumerate(operations):
            self.where = f"{phase} operation {number} ({op.op})"
            if isinstance(op, EventWait):
                if op.event not in recorded:
                    self.refuse("event", f"{op.event} has not been recorded before")
                clock = known.setdefault(op.stream, {})
                for stream, at in recorded[op.event].items():
                    clock[stream] = max(clock.get(stream, -1), at)
            elif op.stream not in known:
                self.refuse("stream", f"{op.stream} begins without waiting for stream 0")
            if isinstance(op, EventRecord):
                recorded[op.event] = {**known[op.stream], op.stream: last.get(op.stream, -1)}
            else:
                last[op.stream] = number
        for stream, at in last.items():
            if stream and known[0].get(stream, -1) < at:
                self.where = phase
                self.refuse("stream", f"{stream} is not joined with stream 0 at the end")
