"""Right or wrong, on the GPU: float64 references and checks in the judge's own process.

The judge fills its own copy of the operands from a sample's seed with the same kernels as the
contestants, widens them, runs the family's ``reference`` through PyTorch and checks outputs that
arrived by exported handle. PyTorch is imported in a thread, because it takes seconds.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from cudahercules.errors import MachineError
from cudahercules.judge.checks import check_output
from cudahercules.judge.operands import scalars_of
from cudahercules.judge.verdict import OutputCheck, WrongOutput
from cudahercules.replay.interface import Contestant, Sample
from cudahercules.task.family_code import mistakes_named
from cudahercules.task.load import family_code, family_module
from cudahercules.task.model import DType, Task, Tensor, Workload, WorkloadRole

TEMPORARIES = 4
"""Float64 arrays of an output's size that reference and check hold at once, beside the operands."""


def reference_bytes(task: Task, workload: Workload) -> int:
    """Device memory in bytes that one reference and its check need at most."""
    operands = sum(_elements(task, t, workload) * (8 + t.dtype.size) for t in task.inputs)
    outputs = sum(_elements(task, t, workload) * 8 for t in task.outputs)
    return operands + TEMPORARIES * outputs


def _elements(task: Task, tensor: Tensor, workload: Workload) -> int:
    parts = 2 if tensor.dtype.is_complex else 1
    return task.nbytes(tensor, workload) // tensor.dtype.size * parts


class Torch:
    """PyTorch, imported in a thread from the moment of construction on."""

    def __init__(self, device: int):
        self.device = device
        self._module: Any = None
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._import, name="import torch", daemon=True)
        self._thread.start()

    def _import(self) -> None:
        try:
            import torch

            torch.cuda.init()
            torch.empty(1, device=f"cuda:{self.device}")
            torch.backends.cuda.matmul.allow_tf32 = False
            self._module = torch
        except Exception as error:  # kept for the thread that waits
            self._error = error

    @property
    def ready(self) -> bool:
        return self._module is not None

    def module(self) -> Any:
        """The module; waits for it. Raises MachineError if it cannot be imported or sees no GPU."""
        self._thread.join()
        if self._module is None:
            raise MachineError(
                f"PyTorch cannot compute references here ({self._error}): "
                "install a CUDA build of torch >= 2.11"
            )
        return self._module


@dataclass
class KeptAnswer:
    """Outputs of one sample as tensors of the judge, in storage dtype and logical shape."""

    seed: int
    outputs: dict[str, Any]
    changed_inputs: tuple[str, ...]
    damaged: tuple[str, ...]


class DeviceAnswers:
    """References and checks of tasks on one GPU; built once a process."""

    def __init__(self, torch: Torch, cubin: Path):
        self._torch, self._cubin = torch, cubin
        self._code: Any = None

    def _device_code(self) -> Any:
        if self._code is None:
            from cudahercules.replay.driver import Context
            from cudahercules.replay.generator import DeviceCode

            self._torch.module()  # makes the primary context, which the driver calls below share
            self._code = DeviceCode(self._cubin, Context(self._torch.device))
        return self._code

    def warm_up(self, task: Task) -> None:
        """One reference and its check at the smoke size, so that PyTorch has loaded what later ones need."""
        workload = next(w for w in task.workloads if w.role is WorkloadRole.SMOKE)
        torch = self._torch.module()
        reference = self.reference(task, workload, 0)
        outputs = {t.name: reference[t.name].to(torch_dtype(torch, t.dtype)) for t in task.outputs}
        self.check(task, workload, KeptAnswer(0, outputs, (), ()))
        torch.cuda.synchronize(self._torch.device)

    def copy(self, task: Task, workload: Workload, contestant: Contestant, sample: Sample) -> KeptAnswer:
        """The kept outputs of ``sample``, copied into memory of this process."""
        torch = self._torch.module()
        kept = contestant.outputs(sample)
        outputs = {}
        for tensor in task.outputs:
            raw = torch.as_tensor(kept.device(tensor.name), device=f"cuda:{self._torch.device}").clone()
            outputs[tensor.name] = self._shaped(raw, task, tensor, workload)
        torch.cuda.synchronize(self._torch.device)
        return KeptAnswer(sample.seed, outputs, sample.changed_inputs, sample.damaged_canaries)

    def _shaped(self, raw: Any, task: Task, tensor: Tensor, workload: Workload) -> Any:
        """Flat bytes on the device as the tensor's dtype and logical shape."""
        shape = task.shape(tensor, workload)
        typed = raw.view(torch_dtype(self._torch.module(), tensor.dtype))
        return typed.view(shape[::-1]).T if tensor.layout == "column" else typed.view(shape)

    def operands(self, task: Task, workload: Workload, seed: int) -> dict[str, Any]:
        """The inputs of a sample in storage dtype, made on the device."""
        from cudahercules.replay.generator import fill_parameters

        torch, code = self._torch.module(), self._device_code()
        values = {}
        for number, tensor in enumerate(task.tensors):
            if tensor not in task.inputs:
                continue
            size = task.nbytes(tensor, workload)
            raw = torch.empty(size, dtype=torch.uint8, device=f"cuda:{self._torch.device}")
            shape = task.shape(tensor, workload)
            parameters = fill_parameters(tensor, shape, task.distribution(tensor, workload), number, seed)
            stream = torch.cuda.current_stream(self._torch.device).cuda_stream
            code.fill(raw.data_ptr(), tensor.dtype, parameters, stream)
            values[tensor.name] = self._shaped(raw, task, tensor, workload)
        return values

    def reference(self, task: Task, workload: Workload, seed: int) -> dict[str, Any]:
        """The family's float64 (or exact) answer for a sample, as tensors on the device."""
        import array_api_compat.torch as xp

        torch = self._torch.module()
        wide = {}
        for name, value in self.operands(task, workload, seed).items():
            tensor = next(t for t in task.tensors if t.name == name)
            wide[name] = value.to(_wide(torch, tensor.dtype))
        family: ModuleType = family_module(task)
        with torch.no_grad(), mistakes_named(family_code(task)):
            return family.reference(wide, task.sizes(workload), scalars_of(task, workload), xp)

    def check(
        self,
        task: Task,
        workload: Workload,
        answer: KeptAnswer,
        reference: dict[str, Any] | None = None,
    ) -> tuple[OutputCheck, ...] | WrongOutput:
        """Compare a kept answer with its reference: every output's errors, or the first wrong one.
        ``reference`` is that of the answer's seed, from who has it already."""
        if problem := side_effects(task, answer.changed_inputs, answer.damaged):
            return problem
        if reference is None:
            reference = self.reference(task, workload, answer.seed)
        checks = []
        for tensor in task.outputs:
            got, expected = answer.outputs[tensor.name], reference[tensor.name]
            check = check_output(tensor, task.tolerance[tensor.name], got, expected)
            if isinstance(check, WrongOutput):
                return check
            checks.append(check)
        return tuple(checks)

    def close(self) -> None:
        """Give the memory back that references used."""
        if self._torch.ready:
            self._torch.module().cuda.empty_cache()


def side_effects(task: Task, changed: tuple[str, ...], damaged: tuple[str, ...]) -> WrongOutput | None:
    """What a sample did besides writing outputs: inputs changed, bytes beside a buffer written."""
    if changed:
        name = changed[0]
        return WrongOutput(
            output=name,
            reason="input_changed",
            message=f"the input {name} was written to; inputs are read-only",
            wrong=1,
            total=1,
        )
    if damaged:
        return WrongOutput(
            output=damaged[0],
            reason="outside_buffer",
            message=f"something wrote outside {damaged[0]}, into the rest of its memory pages",
            wrong=1,
            total=1,
        )
    return None


def torch_dtype(torch: Any, dtype: DType) -> Any:
    """The torch type with the same storage."""
    names = {
        DType.FP64: "float64",
        DType.FP32: "float32",
        DType.TF32: "float32",
        DType.FP16: "float16",
        DType.BF16: "bfloat16",
        DType.FP8_E4M3: "float8_e4m3fn",
        DType.FP8_E5M2: "float8_e5m2",
    }
    return getattr(torch, names.get(dtype, dtype.value))


def _wide(torch: Any, dtype: DType) -> Any:
    if dtype.is_complex:
        return torch.complex128
    if dtype is DType.UINT64:
        return torch.uint64
    return torch.int64 if dtype.is_integer else torch.float64
