"""An expert that needs the driver only: a vendor's library called on plain device memory.

The process is up in a third of a second, where importing torch takes four. Everything else is as for
other experts: fresh memory, the same generator and seeds, warmed up, captured into one graph.

Such an expert is marked ``runs: driver`` in the family's panel. Its function gets
:class:`DeviceTensor` places instead of torch tensors, and the ``run`` that it returns takes the stream::

    def some_library(inputs, outputs, sizes, scalars):
        def run(stream):
            library.compute(inputs["x"].pointer, outputs["y"].pointer, stream)
        return run

``run.versions`` and ``run.close()`` (frees what the function allocated) are optional.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cudahercules.errors import MachineError
from cudahercules.replay.arena import Spacer
from cudahercules.replay.driver import Context, DriverError, api, version_text
from cudahercules.replay.expert import WARM_UP_RUNS, load_experts
from cudahercules.replay.generator import DeviceCode
from cudahercules.replay.interface import Ready
from cudahercules.replay.kept import Keeper
from cudahercules.replay.messages import Channel, Declines, ExpertFailed, Load
from cudahercules.replay.sampler import Operand, Sampler
from cudahercules.task.model import DType, Role, Task, Tensor, Workload


@dataclass(frozen=True)
class DeviceTensor:
    """Where a tensor lies: ``pointer`` on the device, dense in storage ``dtype`` and logical ``shape``
    (``layout`` "row" or "column")."""

    name: str
    pointer: int
    dtype: DType
    shape: tuple[int, ...]
    layout: str


class LibrarySide:
    """Loads one (task, expert, workload) after the other; what the last one held is given back."""

    sampler: Sampler

    def __init__(self, context: Context, keeper: Keeper):
        self.context, self.keeper = context, keeper
        self._closing: list[Callable[[], Any]] = []
        self._code: DeviceCode | None = None

    def load(self, order: Load, channel: Channel) -> Ready:
        """Set the expert up on the workload, warm it up and capture it.

        Raises ExpertFailed with the error of its code, MachineError or DriverError."""
        began = time.monotonic()
        self.close()
        task = Task.model_validate_json(order.task)
        workload = next(w for w in task.workloads if w.name == order.workload)
        self._closing.append(Spacer(self.context.device_number).close)
        code = self._code = self._code or DeviceCode(Path(order.kernels), self.context)
        stream = api.cuStreamCreate(1)  # not held up by the default stream
        self._closing.append(lambda: api.cuStreamDestroy(stream))
        places = {t.name: self._allocate(task, t, workload) for t in task.tensors}
        sampler = self._sampler(task, workload, places, code, stream)
        self._closing.append(sampler.close)
        run = self._set_up(task, workload, order.expert, places, sampler)
        sampler.launch = self._capture(order.expert, run, stream)
        self.sampler = sampler
        return Ready(
            side="expert",
            method="graph",
            device=self.context.name,
            driver=version_text(self.context.driver_version),
            pid=os.getpid(),
            device_bytes=sum(task.nbytes(t, workload) for t in task.tensors) + code.device_bytes,
            seconds=time.monotonic() - began,
            versions=getattr(run, "versions", {}),
        )

    def _allocate(self, task: Task, tensor: Tensor, workload: Workload) -> DeviceTensor:
        pointer = int(api.cuMemAlloc(max(1, task.nbytes(tensor, workload))))
        self._closing.append(lambda: api.cuMemFree(pointer))
        shape = task.shape(tensor, workload)
        return DeviceTensor(tensor.name, pointer, tensor.dtype, shape, tensor.layout)

    def _sampler(
        self, task: Task, workload: Workload, places: dict[str, DeviceTensor], code: DeviceCode, stream: Any
    ) -> Sampler:
        numbers = {t.name: i for i, t in enumerate(task.tensors)}
        outputs = {t.name: (places[t.name].pointer, task.nbytes(t, workload)) for t in task.outputs}
        return Sampler(
            task=task,
            workload=workload,
            code=code,
            keeper=self.keeper,
            stream=stream,
            operands=[
                Operand(numbers[t.name], t, p, task.nbytes(t, workload), p)
                for t, p in ((t, places[t.name].pointer) for t in task.inputs)
            ],
            outputs=outputs,
            poisoned=[outputs[t.name] for t in task.outputs if t.role is not Role.INOUT],
            launch=lambda: None,
        )

    def _set_up(
        self,
        task: Task,
        workload: Workload,
        expert: str,
        places: dict[str, DeviceTensor],
        sampler: Sampler,
    ) -> Any:
        """The expert's ``run``, warmed up on real inputs."""
        inputs = {t.name: places[t.name] for t in task.inputs}
        outputs = {t.name: places[t.name] for t in task.outputs}
        sampler.set_up(0, None)
        api.cuStreamSynchronize(sampler.stream)
        with explained(expert):
            run = getattr(load_experts(task), expert)(inputs, outputs, task.sizes(workload), workload.scalars)
            self._closing.append(getattr(run, "close", lambda: None))
            for _ in range(WARM_UP_RUNS):
                run(int(sampler.stream))
        api.cuStreamSynchronize(sampler.stream)
        return run

    def _capture(self, expert: str, run: Callable[[int], None], stream: Any) -> Callable[[], None]:
        """``run`` as a graph; the function launches it."""
        api.cuStreamBeginCapture(stream, api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
        try:
            with explained(expert):
                run(int(stream))
        finally:
            graph = api.cuStreamEndCapture(stream)
        executable = api.cuGraphInstantiate(graph, 0)
        api.cuGraphDestroy(graph)
        self._closing.append(lambda: api.cuGraphExecDestroy(executable))
        api.cuGraphUpload(executable, stream)
        api.cuStreamSynchronize(stream)
        return lambda: api.cuGraphLaunch(executable, stream)

    def close(self) -> None:
        if self._closing:
            api.cuCtxSynchronize()
        while self._closing:
            self._closing.pop()()


@contextmanager
def explained(expert: str) -> Iterator[None]:
    """Turns what an expert's code raises into ExpertFailed or Declines; our own errors pass."""
    try:
        yield
    except (DriverError, MachineError, ExpertFailed):
        raise
    except NotImplementedError as error:
        raise Declines(f"{expert}: {error}") from error
    except Exception as error:
        raise ExpertFailed(f"{expert}: {type(error).__name__}: {error}") from error
