"""The expert's side of a GPU process: a function of the family's panel under the same protocol.

Operands are torch tensors, filled by the same kernels with the same seeds as the candidate's. What
the expert's ``run`` does is captured into a CUDA graph; where that is impossible the host code runs
between the events, and :class:`Ready` says ``eager``.
"""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from cudahercules.build.toolchain import install_extra
from cudahercules.errors import MachineError
from cudahercules.replay.arena import Spacer
from cudahercules.replay.driver import Context, DriverError, api, version_text
from cudahercules.replay.generator import DeviceCode
from cudahercules.replay.interface import Ready
from cudahercules.replay.kept import Keeper
from cudahercules.replay.messages import Channel, Declines, ExpertFailed, Load, TooLarge
from cudahercules.replay.sampler import Operand, Sampler
from cudahercules.task.model import DType, Task, Tensor, Workload

WARM_UP_RUNS = 3
_TORCH_NAMES = {
    DType.FP64: "float64",
    DType.FP32: "float32",
    DType.TF32: "float32",
    DType.FP16: "float16",
    DType.BF16: "bfloat16",
    DType.FP8_E4M3: "float8_e4m3fn",
    DType.FP8_E5M2: "float8_e5m2",
}


def import_torch() -> Any:
    """The module. Raises MachineError if there is none."""
    try:
        import torch
    except ImportError as error:
        raise MachineError(f"experts need torch: {install_extra('gpu')}") from error
    return torch


def torch_dtype(dtype: DType) -> Any:
    """The torch type with the same storage; integers and complex types have NumPy's names."""
    return getattr(import_torch(), _TORCH_NAMES.get(dtype, dtype.value))


class ExpertSide:
    """Loads torch once; then one (task, expert, workload) after the other."""

    sampler: Sampler

    def __init__(self, context: Context, keeper: Keeper):
        self.context, self.keeper = context, keeper
        self.torch = import_torch()
        self.torch.cuda.set_device(context.device_number)
        self.torch.empty(1, device="cuda")  # torch's own context work happens now
        self._held: list[Any] = []
        self._code: DeviceCode | None = None
        self._alive: list[Any] = []

    def load(self, order: Load, channel: Channel) -> Ready:
        """Set the expert up on the workload, warm it up and capture it.

        Raises ExpertFailed with the error of its code, MachineError or DriverError."""
        began = time.monotonic()
        self.close()
        task = Task.model_validate_json(order.task)
        workload = next(w for w in task.workloads if w.name == order.workload)
        stream = self.torch.cuda.Stream()
        self._held.append(Spacer(self.context.device_number))
        code = self._code = self._code or DeviceCode(Path(order.kernels), self.context)
        tensors = {t.name: self._allocate(task, t, workload) for t in task.tensors}
        sampler = self._sampler(task, workload, tensors, code, stream)
        self._held.append(sampler)
        run, method, notes = self._make(task, workload, order.expert, tensors, sampler, stream)
        self.sampler = sampler
        torch = self.torch
        return Ready(
            side="expert",
            method=method,
            device=self.context.name,
            driver=version_text(self.context.driver_version),
            pid=os.getpid(),
            device_bytes=int(torch.cuda.memory_reserved()) + code.device_bytes,
            seconds=time.monotonic() - began,
            versions={"torch": torch.__version__, **getattr(run, "versions", {})},
            notes=notes,
        )

    def _allocate(self, task: Task, tensor: Tensor, workload: Workload) -> Any:
        shape = task.shape(tensor, workload)
        column = tensor.layout == "column"
        try:
            made = self.torch.empty(
                shape[::-1] if column else shape, dtype=torch_dtype(tensor.dtype), device="cuda"
            )
        except self.torch.OutOfMemoryError as error:
            raise TooLarge(
                f"the GPU has too little free memory for {tensor.name} of {workload.name}"
            ) from error
        return made.t() if column else made

    def _sampler(
        self, task: Task, workload: Workload, tensors: dict[str, Any], code: DeviceCode, stream: Any
    ) -> Sampler:
        numbers = {t.name: i for i, t in enumerate(task.tensors)}
        sampler = Sampler(
            task=task,
            workload=workload,
            code=code,
            keeper=self.keeper,
            stream=api.CUstream(stream.cuda_stream),
            operands=[
                Operand(numbers[t.name], t, p, task.nbytes(t, workload), p)
                for t, p in ((t, tensors[t.name].data_ptr()) for t in task.inputs)
            ],
            outputs={},
            poisoned=[],
            launch=lambda: None,
        )
        self._use_outputs(sampler, {t.name: tensors[t.name] for t in task.outputs})
        return sampler

    @staticmethod
    def _use_outputs(sampler: Sampler, outputs: dict[str, Any]) -> None:
        """Poison, keep and check these tensors as the outputs from now on."""
        task, workload = sampler.task, sampler.workload
        places = {}
        for t in task.outputs:
            given = outputs.get(t.name)
            dense = given is not None and (given.t() if t.layout == "column" else given).is_contiguous()
            if (
                given is None
                or tuple(given.shape) != task.shape(t, workload)
                or given.dtype != torch_dtype(t.dtype)
                or not dense
            ):
                what = "nothing" if given is None else f"{tuple(given.shape)} {given.dtype}"
                raise ExpertFailed(f"output {t.name} is {what}, not dense {t.dtype} in the task's shape")
            places[t.name] = (int(given.data_ptr()), task.nbytes(t, workload))
        inout = {t.name for t in task.outputs} & {t.name for t in task.inputs}
        sampler.outputs = places
        sampler.poisoned = [place for name, place in places.items() if name not in inout]

    def _make(
        self,
        task: Task,
        workload: Workload,
        expert: str,
        tensors: dict[str, Any],
        sampler: Sampler,
        stream: Any,
    ) -> tuple[Any, Any, tuple[str, ...]]:
        """Set up, warm up and capture; returns ``run``, the method and notes."""
        torch = self.torch
        inputs = {t.name: tensors[t.name] for t in task.inputs}
        outputs = {t.name: tensors[t.name] for t in task.outputs}
        sampler.set_up(0, None)
        torch.cuda.synchronize()
        try:
            function = getattr(load_experts(task), expert)
            with torch.cuda.stream(stream), torch.no_grad():
                run = function(inputs, outputs, task.sizes(workload), workload.scalars)
                sampler.prepare = preparation(torch, run, stream)
                if sampler.prepare is not None:
                    sampler.prepare()
                for _ in range(WARM_UP_RUNS):
                    result = run()
            torch.cuda.synchronize()
        except (DriverError, MachineError):
            raise
        except NotImplementedError as error:
            raise Declines(f"{expert}: {error}") from error
        except torch.OutOfMemoryError as error:
            raise TooLarge(f"{expert}: the GPU has too little free memory") from error
        except Exception as error:
            raise ExpertFailed(f"{expert}: {type(error).__name__}: {error}") from error
        if getattr(run, "eager", False):
            launch, method = self._eager(run, stream), "eager"
            notes: tuple[str, ...] = ("the expert says that it cannot be captured",)
        else:
            launch, result, method, notes = self._capture(run, result, stream)
        self._alive = [tensors, result, run, launch]
        if result is not None:
            self._use_outputs(sampler, {**outputs, **result})
        sampler.launch = launch
        sampler.gated = method == "graph"
        return run, method, notes

    def _capture(
        self, run: Callable[[], Any], last: Any, stream: Any
    ) -> tuple[Any, Any, Any, tuple[str, ...]]:
        torch = self.torch
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.no_grad(), torch.cuda.graph(graph, stream=stream):
                result = run()
        except Exception as error:
            torch.cuda.synchronize()
            first_line = str(error).splitlines()[0] if str(error) else type(error).__name__
            return self._eager(run, stream), last, "eager", (f"not captured: {first_line}",)

        def replay() -> None:
            with torch.cuda.stream(stream):
                graph.replay()

        torch.cuda.synchronize()
        return replay, result, "graph", ()

    def _eager(self, run: Callable[[], Any], stream: Any) -> Callable[[], None]:
        torch = self.torch

        def call() -> None:
            with torch.cuda.stream(stream), torch.no_grad():
                result = run()
            if result is not None:  # a new tensor each time: these are the outputs of this sample
                self._use_outputs(self.sampler, {**self._alive[0], **result})
                self._alive[1] = result

        return call

    def close(self) -> None:
        self.torch.cuda.synchronize()
        for thing in reversed(self._held):
            thing.close()
        self._held.clear()
        self._alive.clear()
        self.torch.cuda.empty_cache()


def preparation(torch: Any, run: Any, stream: Any) -> Callable[[], None] | None:
    """What an expert does with each sample's weights before it is timed: ``run.prepare``, on the expert's
    stream; None if it has none."""
    prepare = getattr(run, "prepare", None)
    if prepare is None:
        return None

    def call() -> None:
        with torch.cuda.stream(stream), torch.no_grad():
            prepare()

    return call


def load_experts(task: Task) -> ModuleType:
    """The family's ``experts.py`` as a module of its own, run once a process: what an expert compiled
    or searched serves every instance. Raises ExpertFailed if there is no such file."""
    return _load_once(task.directory / "experts.py")


@lru_cache(maxsize=64)
def _load_once(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"experts_{path.parent.name}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise ExpertFailed(f"{path} does not exist")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
