"""Operands in their three forms: a buffer's bytes, arrays in storage dtype, float64 for the reference."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from cudahercules.errors import TaskError
from cudahercules.task.family_code import mistakes_named
from cudahercules.task.load import family_code
from cudahercules.task.model import DType, Task, Tensor, Workload


def to_bytes(array: np.ndarray) -> np.ndarray:
    """The bytes of an operand in the order in which they lie in memory (column layout included)."""
    return array.ravel(order="K").view(np.uint8)


def from_bytes(task: Task, tensor: Tensor, workload: Workload, raw: np.ndarray) -> np.ndarray:
    """The operand in storage dtype and logical shape over the bytes of its buffer."""
    order: Any = "F" if tensor.layout == "column" else "C"
    return raw.view(tensor.dtype.numpy).reshape(task.shape(tensor, workload), order=order)


def widen(tensor: Tensor, array: np.ndarray) -> np.ndarray:
    """Storage to what references compute in: float64, complex128 or exact integers."""
    if tensor.dtype.is_complex:
        return array.astype(np.complex128)
    if tensor.dtype is DType.UINT64:
        return array
    return array.astype(np.int64 if tensor.dtype.is_integer else np.float64)


def namespace() -> Any:
    """NumPy itself, which follows the array-API standard from 2.1 on; its wrapper before that."""
    if hasattr(np, "astype"):
        return np
    import array_api_compat.numpy

    return array_api_compat.numpy


def reference_of(
    family: ModuleType, task: Task, workload: Workload, values: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """The reference's outputs for operands in storage dtype, by name (float64, complex128 or integer).

    Raises TaskError if the family's reference fails, leaves an output out, or gives something else.
    """
    wide, path = {t.name: widen(t, values[t.name]) for t in task.inputs}, family_code(task)
    with np.errstate(all="ignore"), mistakes_named(path):
        answers = family.reference(wide, task.sizes(workload), scalars_of(task, workload), namespace())
    if not isinstance(answers, dict):
        raise TaskError(f"{path}: reference() gives {type(answers).__name__}, not a dict of outputs by name")
    for tensor in task.outputs:
        if tensor.name not in answers:
            raise TaskError(f"{path}: reference() gives no {tensor.name}")
        if not isinstance(answers[tensor.name], np.ndarray | np.generic):
            given = type(answers[tensor.name]).__name__
            raise TaskError(f"{path}: reference() gives {given} for {tensor.name}, not an array")
    return answers


def scalars_of(task: Task, workload: Workload) -> dict[str, int | float]:
    """The workload's scalars as the numbers that ``solve`` is called with."""
    return {
        s.name: int(workload.scalars[s.name]) if s.type.startswith("int") else float(workload.scalars[s.name])
        for s in task.scalars
    }
