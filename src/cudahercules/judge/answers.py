"""Answers made wrong by machine, so that the author of a tolerance does not choose all its tests.

Each corruption takes the reference's answer and returns what some way of cheating or erring would
have written: nothing, a copy of an input, numbers of lower precision, an answer with rows left out.
``lint`` requires that the check rejects each of them, and accepts the honest answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import numpy as np

from cudahercules.judge.operands import reference_of
from cudahercules.task.inputs import poison
from cudahercules.task.model import DType, Task, Tensor, Workload

SKIPPED_SHARE = 0.02
"""Share of rows that the row corruptions touch, at least one row."""

_MANTISSA = {DType.FP64: 53, DType.COMPLEX128: 53, DType.FP32: 24, DType.TF32: 11, DType.COMPLEX64: 24}
"""Bits with the leading one. Sixteen-bit and smaller types are missing: an accumulator of half their
width is no format that anyone would use, and their rounding hides one of half the usual width."""


@dataclass(frozen=True)
class Answer:
    """One output of one workload. ``exact`` is the reference, ``stored`` the same in storage dtype."""

    task: Task
    family: ModuleType
    workload: Workload
    tensor: Tensor
    values: dict[str, np.ndarray]
    exact: np.ndarray
    stored: np.ndarray


def store(tensor: Tensor, exact: np.ndarray) -> np.ndarray:
    """Round a reference to an output's storage dtype: the best answer that can be given."""
    with np.errstate(all="ignore"):
        return np.asarray(exact).astype(tensor.dtype.numpy)


def round_mantissa(array: np.ndarray, bits: int) -> np.ndarray:
    """``array`` (float64 or complex128) with ``bits`` significant bits, nearest even, any exponent."""
    if np.iscomplexobj(array):
        return round_mantissa(array.real, bits) + 1j * round_mantissa(array.imag, bits)
    mantissa, exponent = np.frexp(array)
    return np.ldexp(np.round(np.ldexp(mantissa, bits)), exponent - bits)


def lower(array: np.ndarray, dtype: DType) -> np.ndarray:
    """``array`` as if it had passed through ``dtype``, in float64 or complex128 again."""
    if dtype is DType.TF32:
        return round_mantissa(array, _MANTISSA[dtype])
    with np.errstate(all="ignore"):
        return array.astype(dtype.numpy).astype(array.dtype)


def _zeros(answer: Answer) -> np.ndarray | None:
    return np.zeros_like(answer.stored)


def _constant(answer: Answer) -> np.ndarray | None:
    finite = answer.exact[np.isfinite(answer.exact)]
    if not finite.size:
        return None
    return store(answer.tensor, np.full(answer.exact.shape, finite.mean()))


def _input_copy(answer: Answer) -> np.ndarray | None:
    """The input of the same shape, or else the largest one read over and over."""
    arrays = [answer.values[t.name] for t in answer.task.inputs]
    if not arrays:
        return None
    source = next((a for a in arrays if a.shape == answer.exact.shape), max(arrays, key=lambda a: a.size))
    wide = source.astype(np.complex128 if source.dtype.kind == "c" else np.float64)
    wide = wide if np.iscomplexobj(answer.exact) else wide.real
    return store(answer.tensor, np.resize(wide, answer.exact.shape))


def _shuffled(answer: Answer) -> np.ndarray | None:
    flat = answer.stored.reshape(-1)
    return np.random.default_rng(0).permutation(flat).reshape(answer.stored.shape)


def _lower_inputs(answer: Answer) -> np.ndarray | None:
    dtype = answer.task.lower_precision.get(answer.tensor.name)
    if dtype is None:
        return None
    rounded = {
        t.name: answer.values[t.name]
        if t.dtype.is_integer
        else lower(answer.values[t.name].astype(np.complex128 if t.dtype.is_complex else np.float64), dtype)
        for t in answer.task.inputs
    }
    return store(answer.tensor, _reference(answer, rounded))


def _reference(answer: Answer, values: dict[str, np.ndarray]) -> np.ndarray:
    return reference_of(answer.family, answer.task, answer.workload, values)[answer.tensor.name]


def _lower_output(answer: Answer) -> np.ndarray | None:
    dtype = answer.task.lower_precision.get(answer.tensor.name)
    return None if dtype is None else store(answer.tensor, lower(answer.exact, dtype))


_EIGHT_BITS = (DType.FP8_E4M3, DType.FP8_E5M2)


def _half_accumulator(answer: Answer) -> np.ndarray | None:
    """Not where operands are FP8: Hopper's own sums of their products keep 13 bits of fraction."""
    if any(t.dtype in _EIGHT_BITS for t in answer.task.inputs):
        return None
    bits = _MANTISSA.get(answer.tensor.dtype)
    return None if bits is None else store(answer.tensor, round_mantissa(answer.exact, bits // 2))


def _rows(answer: Answer) -> tuple[np.ndarray, np.ndarray]:
    """A writable copy of the stored answer and the same array as rows by columns."""
    copy = np.ascontiguousarray(answer.stored).copy()
    return copy, copy.reshape(-1, copy.shape[-1])


def _smallest_rows_zeroed(answer: Answer) -> np.ndarray | None:
    copy, rows = _rows(answer)
    norms = np.linalg.norm(np.ascontiguousarray(answer.exact).reshape(rows.shape), axis=1)
    eligible = np.flatnonzero(norms > 0)
    if rows.shape[0] < 2 or not eligible.size:
        return None
    count = max(1, int(SKIPPED_SHARE * rows.shape[0]))
    rows[eligible[np.argsort(norms[eligible], kind="stable")[:count]]] = 0
    return copy


def _rows_skipped(answer: Answer) -> np.ndarray | None:
    """The last rows hold what outputs hold beforehand."""
    copy, rows = _rows(answer)
    count = max(1, int(SKIPPED_SHARE * rows.shape[0]))
    rows[-count:] = (
        poison(count * rows.shape[1] * rows.itemsize, answer.tensor.dtype).view(rows.dtype).reshape(count, -1)
    )
    return copy


def _rows_repeated(answer: Answer) -> np.ndarray | None:
    """Some rows hold their neighbour's answer."""
    copy, rows = _rows(answer)
    if rows.shape[0] < 2:
        return None
    count = max(1, int(SKIPPED_SHARE * rows.shape[0]))
    rows[-count:] = rows[-count - 1 : -count]
    return copy


def _last_row_zeroed(answer: Answer) -> np.ndarray | None:
    copy, rows = _rows(answer)
    rows[-1] = 0
    return copy


def _last_column_zeroed(answer: Answer) -> np.ndarray | None:
    copy, rows = _rows(answer)
    rows[:, -1] = 0
    return copy


CORRUPTIONS: dict[str, Callable[[Answer], np.ndarray | None]] = {
    "all zeros": _zeros,
    "constant (the mean)": _constant,
    "copy of an input": _input_copy,
    "shuffled answer": _shuffled,
    "inputs in lower precision": _lower_inputs,
    "output in lower precision": _lower_output,
    "half the accumulator's bits": _half_accumulator,
    "smallest rows zeroed": _smallest_rows_zeroed,
    "2 % of rows not written": _rows_skipped,
    "2 % of rows from a neighbour": _rows_repeated,
    "last row zeroed": _last_row_zeroed,
    "last column zeroed": _last_column_zeroed,
}
"""Name to function; a function returns None where it does not apply to an answer."""
