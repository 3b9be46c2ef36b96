"""One workload for the emulator: what its buffers hold before the call, and what came out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cudahercules.judge.checks import check_inputs_unchanged, check_output
from cudahercules.judge.operands import from_bytes, to_bytes
from cudahercules.judge.verdict import OutputCheck, WrongOutput
from cudahercules.task.inputs import generate, poison
from cudahercules.task.model import Role, Task, Tensor, Workload


def absent_from_prepare(task: Task) -> tuple[str, ...]:
    """The tensors that hold nothing yet while ``prepare`` runs: all but the weights."""
    return tuple(t.name for t in task.tensors if t.role is not Role.WEIGHT)


@dataclass(frozen=True)
class Operands:
    """``values`` are the inputs, by tensor, in the task's own shapes and types."""

    task: Task
    workload: Workload
    values: dict[str, np.ndarray]

    @classmethod
    def generate(cls, task: Task, workload: Workload, seed: int) -> Operands:
        return cls(task, workload, {t.name: generate(task, t, workload, seed) for t in task.inputs})

    def contents(self) -> dict[str, np.ndarray]:
        """What every tensor's buffer holds before the call: its values, or poison; new arrays of bytes."""
        return {t.name: self._contents(t) for t in self.task.tensors}

    def _contents(self, tensor: Tensor) -> np.ndarray:
        if tensor.role is Role.OUT:
            return poison(self.task.nbytes(tensor, self.workload), tensor.dtype)
        return to_bytes(self.values[tensor.name]).copy()

    def check(
        self, contents: dict[str, np.ndarray], reference: dict[str, Any]
    ) -> tuple[OutputCheck, ...] | WrongOutput:
        """Are inputs untouched and outputs right?"""
        for tensor in self.task.inputs:
            if tensor.role is not Role.INOUT:
                before = self.values[tensor.name]
                after = from_bytes(self.task, tensor, self.workload, contents[tensor.name])
                if changed := check_inputs_unchanged(tensor, before, after):
                    return changed
        checks = []
        for tensor in self.task.outputs:
            got = from_bytes(self.task, tensor, self.workload, contents[tensor.name])
            check = check_output(tensor, self.task.tolerance[tensor.name], got, reference[tensor.name])
            if isinstance(check, WrongOutput):
                return check
            checks.append(check)
        return tuple(checks)
