"""Is an output right? Errors against the float64 reference, and an explanation when it is not.

The first pass runs in the array library of the reference (NumPy in the CPU judge, PyTorch on the GPU)
and in chunks, so that no temporary is larger than ``CHUNK`` elements. Only when it finds an error does
a second pass on the host count the wrong elements and name the worst one.

Definitions, per output (see Tolerance): a *row* is a slice along the last axis; its *scale* is its
root-mean-square, but at least ``row_floor`` times that of the whole output. An element is weighed by how far
it is off, over its row's scale plus ``element_relative / element`` times its own size: it is over its cap,
``element`` times the scale plus ``element_relative`` times its size, where that weight is over ``element``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from cudahercules.errors import TaskError
from cudahercules.judge.verdict import OutputCheck, WrongOutput
from cudahercules.task.inputs import POISON_FLOAT, POISON_INTEGER
from cudahercules.task.model import DType, Role, Tensor, Tolerance

CHUNK = 1 << 22
"""Elements of one step: 32 MiB for each float64 temporary on the host."""
DEVICE_CHUNK = 1 << 26
"""The same where the arrays lie on a GPU: long enough to keep it busy."""

_NAMES = {
    "unwritten": ("was never written", "were never written"),
    "nan": ("is NaN", "are NaN"),
    "infinite": ("is infinite", "are infinite"),
    "not_equal": ("differs", "differ"),
    "tolerance": ("is wrong", "are wrong"),
}


def check_output(tensor: Tensor, tolerance: Tolerance, got: Any, reference: Any) -> OutputCheck | WrongOutput:
    """Compare one output with its reference.

    ``got``        array in the tensor's storage dtype, logical shape (any strides)
    ``reference``  float64, complex128 or integer array of the same shape and library

    Where the reference is finite, NaN and Inf never pass; where it is not, the output must hold the
    same NaN or infinity. Raises TaskError if the reference has another shape than the output.
    """
    if tuple(got.shape) != tuple(reference.shape):
        raise TaskError(
            f"the reference of {tensor.name} has shape {tuple(reference.shape)}, "
            f"the task declares {tuple(got.shape)}: repair reference() in family.py"
        )
    with np.errstate(all="ignore"):
        if tolerance.exact:
            return _check_exact(tensor, got, reference)
        return _check_tolerance(tensor, tolerance, got, reference)


def check_inputs_unchanged(tensor: Tensor, before: np.ndarray, after: np.ndarray) -> WrongOutput | None:
    """Inputs are read-only: both arrays (same shape and dtype) must hold the same bytes."""
    different = _bits(before) != _bits(after)
    wrong = int(np.count_nonzero(different))
    if not wrong:
        return None
    index = _first(different)
    return WrongOutput(
        output=tensor.name,
        reason="input_changed",
        message=f"the input {tensor.name} was written to: {wrong} of {before.size} elements changed, "
        f"the first at {_place(index)}; inputs are read-only",
        wrong=wrong,
        total=before.size,
        index=index,
        expected=_text(before[index]),
        got=_text(after[index]),
    )


def check_guard(tensor: Tensor, side: str, guard: np.ndarray, pattern: np.ndarray) -> WrongOutput | None:
    """The bytes beside a buffer (``side`` is "before" or "after") must still hold ``pattern``.

    ``guard`` and ``pattern`` are uint8 arrays of one length, in address order.
    """
    changed = np.flatnonzero(guard != pattern)
    if not changed.size:
        return None
    nearest = int(changed[0]) + 1 if side == "after" else guard.size - int(changed[-1])
    where = "past its end" if side == "after" else "before its start"
    at = int(changed[0] if side == "after" else changed[-1])
    return WrongOutput(
        output=tensor.name,
        reason="outside_buffer",
        message=f"something wrote outside {tensor.name}: the byte {nearest} {where} changed "
        f"({changed.size} of {guard.size} guard bytes)",
        wrong=int(changed.size),
        total=guard.size,
        index=(at,),
        expected=str(int(pattern[at])),
        got=str(int(guard[at])),
    )


# --- first pass: in the reference's array library ------------------------------------------------


@dataclass
class _Rows:
    """Per row: sums of squares of reference and difference, and the largest difference. ``broken``
    counts elements that are not finite where they should be, or finite where they should not."""

    columns: int
    reference: Any
    difference: Any
    peak: Any
    broken: int


def _namespace(array: Any) -> Any:
    if isinstance(array, np.ndarray):
        return np
    from array_api_compat import array_namespace

    return array_namespace(array)


def _matrix(array: Any) -> Any:
    """``array`` as rows by columns; a view for every layout that a task can declare."""
    return array if len(array.shape) == 2 else array.reshape((-1, array.shape[-1]))


def _tiles(shape: tuple[int, int], limit: int) -> Iterator[tuple[slice, slice]]:
    rows, columns = shape
    width = min(columns, limit)
    height = max(1, limit // width)
    for row in range(0, rows, height):
        for column in range(0, columns, width):
            yield slice(row, min(row + height, rows)), slice(column, min(column + width, columns))


def _wide(array: Any, like: Any, xp: Any) -> Any:
    """``array`` in float64, or complex128 if ``like`` is complex."""
    complex_ = "complex" in str(like.dtype) or "complex" in str(array.dtype)
    dtype = xp.complex128 if complex_ else xp.float64
    return (
        array.to(dtype) if hasattr(array, "to") and not isinstance(array, np.ndarray) else array.astype(dtype)
    )


def _scale_exponent(tensor: Tensor, reference: Any, xp: Any) -> int:
    """A power of two that keeps the squares of float64 outputs in range."""
    if tensor.dtype not in (DType.FP64, DType.COMPLEX128):
        return 0
    size = xp.abs(reference)
    size = xp.where(xp.isfinite(size), size, xp.zeros_like(size))
    largest = float(xp.max(size))
    return 0 if largest == 0 or 1e-100 < largest < 1e100 else math.frexp(largest)[1]


def _row_errors(tensor: Tensor, got: Any, reference: Any) -> _Rows:
    xp = _namespace(reference)
    rows, columns = _matrix(reference).shape
    like = {} if isinstance(reference, np.ndarray) else {"device": reference.device}
    sums, differences, peaks = (xp.zeros(rows, dtype=xp.float64, **like) for _ in range(3))
    total = _Rows(columns, sums, differences, peaks, broken=0)
    for row, size, error, broken in _sizes_and_errors(tensor, got, reference):
        total.broken += broken
        total.reference[row] += xp.sum(size * size, axis=1)
        total.difference[row] += xp.sum(error * error, axis=1)
        total.peak[row] = xp.maximum(total.peak[row], xp.max(error, axis=1))
    return total


def _sizes_and_errors(tensor: Tensor, got: Any, reference: Any) -> Iterator[tuple[slice, Any, Any, int]]:
    """Tile by tile: its rows, what is expected and how far off it is, both without sign and in range of
    squares, and how many elements are broken; where either is not finite, size and error are 0."""
    xp = _namespace(reference)
    got, reference = _matrix(got), _matrix(reference)
    factor = 2.0 ** -_scale_exponent(tensor, reference, xp)
    limit = CHUNK if isinstance(reference, np.ndarray) else DEVICE_CHUNK
    for row, column in _tiles(reference.shape, limit):
        ref = _wide(reference[row, column], reference, xp)
        out = _wide(got[row, column], reference, xp)
        if factor != 1.0:
            ref, out = ref * factor, out * factor
        broken = 0
        if not (bool(xp.all(xp.isfinite(ref))) and bool(xp.all(xp.isfinite(out)))):
            broken = int(xp.count_nonzero(_broken(ref, out, xp)))
            keep = xp.isfinite(ref) & xp.isfinite(out)
            ref = xp.where(keep, ref, xp.zeros_like(ref))
            out = xp.where(keep, out, xp.zeros_like(out))
        yield row, xp.abs(ref), xp.abs(out - ref), broken


def _worst_element(
    tensor: Tensor, tolerance: Tolerance, rows: _Rows, scale: Any, got: Any, ref: Any
) -> float:
    """The largest weight of an element. With a relative part it takes a pass of its own, because the scale
    of a row is known only when all of it has been seen."""
    xp = _namespace(ref)
    if tolerance.element_relative == 0:
        return _worst(rows.peak, scale, xp)
    own = tolerance.element_relative / tolerance.element
    return max(
        _worst(error, scale[row][:, None] + own * size, xp)
        for row, size, error, _ in _sizes_and_errors(tensor, got, ref)
    )


def _broken(reference: Any, got: Any, xp: Any) -> Any:
    """Not finite where the reference is, or not the same NaN or infinity where it is not."""
    same = (xp.isnan(reference) & xp.isnan(got)) | (reference == got)
    return ~(xp.isfinite(reference) & xp.isfinite(got)) & ~same


def _check_tolerance(
    tensor: Tensor, tolerance: Tolerance, got: Any, reference: Any
) -> OutputCheck | WrongOutput:
    xp = _namespace(reference)
    rows = _row_errors(tensor, got, reference)
    if rows.broken:
        return _explain(tensor, tolerance, got, reference, None)
    rms = math.sqrt(float(xp.sum(rows.reference)) / (rows.reference.shape[0] * rows.columns))
    floor = xp.full_like(rows.reference, tolerance.row_floor * rms)
    scale = xp.maximum(xp.sqrt(rows.reference / rows.columns), floor)
    check = OutputCheck(
        output=tensor.name,
        l2=_ratio(math.sqrt(float(xp.sum(rows.difference))), math.sqrt(float(xp.sum(rows.reference)))),
        l2_bound=tolerance.l2,
        row_l2=_worst(xp.sqrt(rows.difference / rows.columns), scale, xp),
        row_l2_bound=tolerance.row_l2,
        element=_worst_element(tensor, tolerance, rows, scale, got, reference),
        element_bound=tolerance.element,
    )
    if (
        check.l2 <= check.l2_bound
        and check.row_l2 <= check.row_l2_bound
        and check.element <= check.element_bound
    ):
        return check
    return _explain(tensor, tolerance, got, reference, check)


def _ratio(error: float, size: float) -> float:
    """Relative error; where there is nothing to be relative to, only no error at all is right."""
    if error == 0:
        return 0.0
    return error / size if size > 0 else math.inf


def _worst(error: Any, scale: Any, xp: Any) -> float:
    safe = xp.where(scale > 0, scale, xp.ones_like(scale))
    unscaled = (scale <= 0) & (error > 0)
    return math.inf if bool(xp.any(unscaled)) else float(xp.max(error / safe))


def _check_exact(tensor: Tensor, got: Any, reference: Any) -> OutputCheck | WrongOutput:
    xp = _namespace(reference)
    got_matrix, reference_matrix = _matrix(got), _matrix(reference)
    limit = CHUNK if isinstance(reference, np.ndarray) else DEVICE_CHUNK
    for row, column in _tiles(reference_matrix.shape, limit):
        if bool(xp.any(_differs(tensor, got_matrix[row, column], reference_matrix[row, column], xp))):
            return _explain(tensor, Tolerance(exact=True), got, reference, None)
    return OutputCheck(
        output=tensor.name,
        l2=0.0,
        l2_bound=0.0,
        row_l2=0.0,
        row_l2_bound=0.0,
        element=0.0,
        element_bound=0.0,
        exact=True,
    )


def _differs(tensor: Tensor, got: Any, reference: Any, xp: Any) -> Any:
    """Element by element, by value: NaN equals NaN, and an integer is never rounded."""
    if tensor.dtype.is_integer:
        if hasattr(got, "to") and not isinstance(got, np.ndarray):
            got = got.to(reference.dtype)  # PyTorch does not compare unsigned integers with signed ones
        return got != reference  # both integer: NumPy promotes without loss up to 64 bits
    out, ref = _wide(got, reference, xp), _wide(reference, reference, xp)
    return ~((out == ref) | (xp.isnan(out) & xp.isnan(ref)))


# --- second pass: on the host, only to explain ---------------------------------------------------


@dataclass
class _Finding:
    """Wrong elements of one sort: how many, and the one to show (largest ``weight``)."""

    count: int = 0
    weight: float = -1.0
    index: tuple[int, int] = (0, 0)
    expected: str = ""
    got: str = ""


def _explain(
    tensor: Tensor, tolerance: Tolerance, got: Any, reference: Any, check: OutputCheck | None
) -> WrongOutput:
    """Count and name what is wrong. Called only after the first pass has found something."""
    out, ref = _matrix(_to_host(got, tensor.dtype)), _matrix(_to_host(reference, None))
    scale = None if tolerance.exact else _row_scales(ref, tolerance.row_floor)
    own = tolerance.element_relative / tolerance.element if tolerance.element_relative else 0.0
    bound = _element_bound(tolerance, check)
    found = {reason: _Finding() for reason in _NAMES}
    wrong = 0
    worst = _Finding()  # of all elements, also of those under the bound
    for row, column in _tiles(ref.shape, CHUNK):
        tile = _Tile(tensor, out[row, column], ref[row, column], row.start, column.start)
        classes, weight = tile.classify(None if scale is None else scale[row], own, bound)
        wrong += sum(int(np.count_nonzero(mask)) for mask in classes.values())
        for reason, mask in classes.items():
            tile.note(found[reason], mask, weight, first=reason != "tolerance")
        tile.note(worst, np.isfinite(weight), weight, first=False)
    reason = next((r for r in _NAMES if found[r].count), "tolerance")
    shown = found[reason] if found[reason].count else worst
    index = tuple(int(i) for i in np.unravel_index(shown.index[0] * ref.shape[1] + shown.index[1], got.shape))
    return WrongOutput(
        output=tensor.name,
        reason=reason,
        message=_message(tensor, tolerance, reason, found, wrong, ref.size, index, shown, check),
        wrong=wrong,
        total=ref.size,
        index=index,
        expected=shown.expected,
        got=shown.got,
        check=check if check is not None and math.isfinite(check.l2 + check.row_l2 + check.element) else None,
    )


def _element_bound(tolerance: Tolerance, check: OutputCheck | None) -> float:
    """What an element may be off, over its row's scale, when wrong elements are counted.

    If no element exceeds the element cap, the error is spread: then those count that exceed the
    violated mean bound on their own.
    """
    if check is None or check.element > check.element_bound:
        return tolerance.element
    return tolerance.row_l2 if check.row_l2 > check.row_l2_bound else tolerance.l2


def _row_scales(reference: np.ndarray, row_floor: float) -> np.ndarray:
    square = np.zeros(reference.shape[0])
    for row, column in _tiles(reference.shape, CHUNK):
        size = np.abs(_wide(reference[row, column], reference, np))
        size[~np.isfinite(size)] = 0
        square[row] += np.sum(size * size, axis=1)
    mean = square / reference.shape[1]
    return np.maximum(np.sqrt(mean), row_floor * math.sqrt(float(np.mean(mean))))


@dataclass
class _Tile:
    """A rectangle of output and reference, as host arrays."""

    tensor: Tensor
    got: np.ndarray
    reference: np.ndarray
    row: int
    column: int

    def classify(
        self, scale: np.ndarray | None, own: float, bound: float
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        """Masks of wrong elements by reason, disjoint, and how far off each element is: over its row's
        scale plus ``own`` times its size."""
        if scale is None:
            wrong = np.asarray(_differs(self.tensor, self.got, self.reference, np))
            weight = wrong.astype(np.float64)
            reason = "not_equal"
        else:
            out = _wide(self.got, self.reference, np)
            ref = _wide(self.reference, self.reference, np)
            broken = _broken(ref, out, np)
            error = np.where(np.isfinite(ref) & np.isfinite(out), np.abs(out - ref), 0.0)
            size = np.where(np.isfinite(ref), np.abs(ref), 0.0)
            weight = np.where(error == 0, 0.0, error / (scale[:, None] + own * size))
            wrong = broken | (weight > bound)
            reason = "tolerance"
        classes: dict[str, np.ndarray] = {}
        if self.tensor.role is Role.OUT:
            classes["unwritten"] = wrong & is_poison(self.got)
            wrong = wrong & ~classes["unwritten"]
        if not self.tensor.dtype.is_integer:
            out = _wide(self.got, self.reference, np)
            classes["nan"] = wrong & np.isnan(out)
            classes["infinite"] = wrong & np.isinf(out) & ~classes["nan"]
            wrong = wrong & np.isfinite(out)
        classes[reason] = wrong
        return classes, weight

    def note(self, finding: _Finding, mask: np.ndarray, weight: np.ndarray, *, first: bool) -> None:
        """Add the elements under ``mask``; show the first one, or else the one furthest off."""
        count = int(np.count_nonzero(mask))
        if not count:
            return
        finding.count += count
        if first and finding.weight >= 0:
            return
        at = _first(mask) if first else _furthest(mask, weight)
        value = 0.0 if first else float(weight[at])
        if value > finding.weight:
            finding.weight = value
            finding.index = (self.row + at[0], self.column + at[1])
            finding.expected, finding.got = _text(self.reference[at]), _text(self.got[at])


def _first(mask: np.ndarray) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(mask)), mask.shape))


def _furthest(mask: np.ndarray, weight: np.ndarray) -> tuple[int, ...]:
    flat = int(np.argmax(np.where(mask, weight, -1.0)))
    return tuple(int(i) for i in np.unravel_index(flat, mask.shape))


def _message(
    tensor: Tensor,
    tolerance: Tolerance,
    reason: str,
    found: dict[str, _Finding],
    wrong: int,
    total: int,
    index: tuple[int, ...],
    shown: _Finding,
    check: OutputCheck | None,
) -> str:
    where = f"at {_place(index)} expected {shown.expected}, got {shown.got}"
    count = found[reason].count
    if reason != "tolerance":
        others = f" (and {wrong - count} more are wrong)" if wrong > count else ""
        kind = _NAMES[reason][count != 1]
        values = f"the first at {_place(index)}" if reason == "unwritten" else f"the first {where}"
        expected = f", expected {shown.expected}" if reason == "unwritten" else ""
        return f"{tensor.name}: {count} of {total} elements {kind}{others}; {values}{expected}"
    if check is not None and check.element <= check.element_bound:
        name, value, bound = (
            ("the worst row's relative L2 error", check.row_l2, check.row_l2_bound)
            if check.row_l2 > check.row_l2_bound
            else ("the relative L2 error", check.l2, check.l2_bound)
        )
        return (
            f"{tensor.name}: {name} is {value:.3g}, the bound {bound:.3g}; "
            f"no single element is far off, the furthest {where}"
        )
    error = ""
    if math.isfinite(shown.weight) and tolerance.element_relative:
        error = f" (off by {shown.weight / tolerance.element:.3g} of what an element may be)"
    elif math.isfinite(shown.weight):
        error = f" (off by {shown.weight:.3g} of its row's scale)"
    return (
        f"{tensor.name}: {wrong} of {total} elements {_NAMES[reason][count != 1]}; the worst {where}{error}"
    )


def _place(index: tuple[int, ...]) -> str:
    return "[" + ", ".join(str(i) for i in index) + "]"


def _text(value: Any) -> str:
    """A number as text: integers whole, everything else with nine significant digits."""
    if isinstance(value, (int, np.integer)):
        return str(int(value))
    if isinstance(value, (complex, np.complexfloating)):
        return f"{complex(value):.9g}"
    return f"{float(value):.9g}"


def is_poison(array: np.ndarray) -> np.ndarray:
    """Which elements of a host array hold what outputs are filled with beforehand."""
    if array.dtype.kind == "c":
        return is_poison(array.real) & is_poison(array.imag)
    word = POISON_INTEGER if array.dtype.kind in "iu" else POISON_FLOAT
    pattern = np.full(8, word, np.uint16).view(f"u{array.dtype.itemsize}")
    return np.isin(_bits(array), np.unique(pattern))  # two patterns for one-byte integers


def _bits(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind == "c":
        array = np.ascontiguousarray(array)
        return array.view(f"V{array.dtype.itemsize}")
    return array.view(f"u{array.dtype.itemsize}")


def _to_host(array: Any, dtype: DType | None) -> np.ndarray:
    """A NumPy array with the same bytes, from NumPy or PyTorch (bfloat16 and fp8 included)."""
    if isinstance(array, np.ndarray):
        return array
    if dtype is None:
        return array.detach().cpu().numpy()
    import torch

    raw = array.detach().contiguous().reshape(-1).view(torch.uint8).cpu().numpy()
    return raw.view(dtype.numpy).reshape(tuple(array.shape))
