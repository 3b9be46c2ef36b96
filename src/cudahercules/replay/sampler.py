"""How one sample comes about, the same for candidate and expert.

Order matters. Variables, uploads, scratch and outputs are put back first. Only weights hold values
while ``prepare`` runs; the other inputs are filled after it, so that nothing of the answer can be
computed untimed. Then shared memory, registers and local memory are wiped, L2 is evicted, and start
event, graph and stop event follow without the host in between: the device is still evicting while
the launch is enqueued, so that launch latency stays outside.

Known limit: memory that the driver maps beside a module's variables belongs to nobody, is writable
from the device and is not put back (measured: up to 1 MiB behind a variable). A mark there survives
into the next sample. It cannot hold an answer, since every operand has new values by then, but a
candidate could keep shape-only tables there. ``scripts/gpu/replay_selftest.py KIT beside`` shows it.
"""

from __future__ import annotations

import ctypes
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from cudahercules.replay.driver import api
from cudahercules.replay.generator import POISON_16, DeviceCode, fill_parameters
from cudahercules.replay.interface import Request, Sample
from cudahercules.replay.kept import Keeper
from cudahercules.task.inputs import poison_word
from cudahercules.task.model import Role, Task, Tensor, Workload


@dataclass(frozen=True)
class Operand:
    """A tensor of the task in this process: ``pointer`` is where the generator may write, ``address`` where
    the contestant's kernels find it (a candidate's inputs have a read-only view of their own)."""

    number: int
    tensor: Tensor
    pointer: int
    size: int
    address: int


class Gate:
    """Holds the device back until start event, launch and stop event are all enqueued.

    Eviction takes some 90 us; a host that just woke up may need longer for its launch, and the
    difference would be counted (50 to 75 us measured for an expert after 8 ms of sleep). The stream
    waits until a word of pinned memory has reached a number, and the host writes that number last.
    """

    def __init__(self) -> None:
        self._address = int(api.cuMemAllocHost(4))
        self._word = ctypes.c_uint32.from_address(self._address)
        self._word.value = 0
        self._number = 0

    def close_on(self, stream: Any) -> None:
        self._number += 1
        api.cuStreamWaitValue32(stream, self._address, self._number, 0)  # until word >= number

    def open(self) -> None:
        self._word.value = self._number

    def free(self) -> None:
        api.cuMemFreeHost(self._address)


@dataclass
class Sampler:
    """Takes samples of whatever ``launch`` enqueues on ``stream``.

    ``poisoned`` and ``canaries`` are (pointer, bytes): the former get poison before each sample,
    the latter must still hold it after kept ones. ``restore`` enqueues the return of all other
    state; ``prepare`` (or None) enqueues the untimed part. ``set_aside(True)`` reserves the part of L2
    that a plan asks for, ``set_aside(False)`` gives it up: nothing of it reaches into the expert's samples.
    """

    task: Task
    workload: Workload
    code: DeviceCode
    keeper: Keeper
    stream: Any
    operands: Sequence[Operand]
    outputs: dict[str, tuple[int, int]]
    poisoned: Sequence[tuple[int, int]]
    launch: Callable[[], None]
    restore: Callable[[], None] = lambda: None
    prepare: Callable[[], None] | None = None
    set_aside: Callable[[bool], None] = lambda _on: None
    gated: bool = True  # False where launch() may wait for the device (an expert's host code)
    canaries: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._start = api.cuEventCreate(0)
        self._stop = api.cuEventCreate(0)
        self._gate = Gate()
        self._weights = [o for o in self.operands if o.tensor.role is Role.WEIGHT]
        self._others = [o for o in self.operands if o.tensor.role in (Role.IN, Role.INOUT)]
        self._hashed = [o for o in self.operands if o.tensor.role in (Role.IN, Role.WEIGHT)]

    def take(self, request: Request) -> Sample:
        """One sample. Raises DriverError if anything on the device goes wrong."""
        if request.pause_ms:
            time.sleep(request.pause_ms / 1000)
        look = request.keep or request.hash_inputs
        self.set_up(request.seed, self.prepare)
        before = self._hashes() if look else {}
        self._last_touches(request)
        sample = self._measure(request)
        self.set_aside(False)
        if not look:
            return sample
        after = self._hashes()
        return sample.model_copy(
            update={
                "input_hashes": before,
                "changed_inputs": tuple(n for n in before if after[n] != before[n]),
                "damaged_canaries": self._damaged(),
                "kept": self.keeper.keep(self.outputs, self.stream) if request.keep else None,
            }
        )

    def set_up(self, seed: int, prepare: Callable[[], None] | None) -> None:
        """Everything as it must be before ``solve``: state, poison, weights, prepare, inputs."""
        self.restore()
        for pointer, size in self.poisoned:
            self._poison_range(pointer, size, POISON_16)
        self._fill(self._weights, seed)
        if prepare is not None:
            prepare()
        self._poison_outputs()
        self._fill(self._others, seed)

    def _last_touches(self, request: Request) -> None:
        """Wipe the chip; then evict L2 (cold) or leave the inputs as the last thing in it (warm)."""
        self.code.wipe(self.stream, random.getrandbits(32))
        api.cuStreamSynchronize(self.stream)  # a reset beside running kernels slowed what came next
        self.set_aside(True)
        api.cuCtxResetPersistingL2Cache()
        if request.cold:
            self.code.evict(self.stream, random.getrandbits(32))
        else:
            self._fill(self._others, request.seed)

    def _measure(self, request: Request) -> Sample:
        gated = self.gated and request.repeat == 1
        if request.repeat > 1:
            api.cuStreamSynchronize(self.stream)
        began = time.monotonic_ns()
        if gated:
            self._gate.close_on(self.stream)
        api.cuEventRecord(self._start, self.stream)
        for _ in range(request.repeat):
            self.launch()
        api.cuEventRecord(self._stop, self.stream)
        if gated:
            self._gate.open()
        api.cuEventSynchronize(self._stop)
        ended = time.monotonic_ns()
        return Sample(
            seed=request.seed,
            cold=request.cold,
            repeat=request.repeat,
            microseconds=1000 * float(api.cuEventElapsedTime(self._start, self._stop)),
            wall_ns=ended - began,
            began_ns=began,
        )

    def _poison_outputs(self) -> None:
        """Outputs get the poison of their own dtype over that of their pages."""
        for tensor in self.task.outputs:
            if tensor.role is Role.OUT and tensor.name in self.outputs:
                self._poison_range(*self.outputs[tensor.name], poison_word(tensor.dtype))

    def _poison_range(self, pointer: int, size: int, word: int) -> None:
        if size >= 2:
            api.cuMemsetD16Async(pointer, word, size // 2, self.stream)
        if size % 2:
            api.cuMemsetD8Async(pointer + size - 1, word & 0xFF, 1, self.stream)

    def _fill(self, operands: Sequence[Operand], seed: int) -> None:
        for o in operands:
            shape = self.task.shape(o.tensor, self.workload)
            values = self.task.distribution(o.tensor, self.workload)
            parameters = fill_parameters(o.tensor, shape, values, o.number, seed)
            self.code.fill(o.pointer, o.tensor.dtype, parameters, self.stream)
            if o.address != o.pointer:
                # An expert reads at addresses that the generator has just used; so must a candidate. Without,
                # it was 0.1 to 0.5 us slower in A/A trials against an adapter, and against a plan it was not.
                self.code.hash(0, o.address, o.size, self.stream)

    def _hashes(self) -> dict[str, int]:
        self.code.clear_slots(self.stream)
        for slot, o in enumerate(self._hashed):
            self.code.hash(slot, o.address, o.size, self.stream)
        values = self.code.slots(len(self._hashed), self.stream)
        return {o.tensor.name: v for o, v in zip(self._hashed, values, strict=True)}

    def _damaged(self) -> tuple[str, ...]:
        names = list(self.canaries)
        self.code.clear_slots(self.stream)
        for slot, name in enumerate(names[:384]):
            for pointer, size in self.canaries[name]:
                if size:
                    self.code.count_other(slot, pointer, size, POISON_16, self.stream)
        counts = self.code.slots(min(len(names), 384), self.stream)
        return tuple(n for n, count in zip(names, counts, strict=False) if count)

    def close(self) -> None:
        self._gate.free()
        api.cuEventDestroy(self._start)
        api.cuEventDestroy(self._stop)
