"""A family's own Python runs inside :func:`mistakes_named`, so that its author reads file, line and error;
:func:`only_standard_functions` finds what NumPy would let pass and PyTorch would not."""

from __future__ import annotations

import ast
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cudahercules.errors import HerculesError, TaskError

_NAMES = (
    "arange asarray empty empty_like eye from_dlpack full full_like linspace meshgrid ones ones_like tril "
    "triu zeros zeros_like astype broadcast_arrays broadcast_to can_cast finfo iinfo isdtype result_type "
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 complex128 e inf "
    "nan newaxis pi abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_invert "
    "bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor ceil clip conj copysign cos cosh "
    "divide equal exp expm1 floor floor_divide greater greater_equal hypot imag isfinite isinf isnan less "
    "less_equal log log10 log1p log2 logaddexp logical_and logical_not logical_or logical_xor maximum "
    "minimum multiply negative nextafter not_equal positive pow real reciprocal remainder round sign "
    "signbit sin sinh sqrt square subtract tan tanh trunc all any argmax argmin argsort concat "
    "count_nonzero cumulative_prod cumulative_sum diff expand_dims fft flip linalg matmul "
    "matrix_transpose max mean min moveaxis nonzero permute_dims prod repeat reshape roll searchsorted "
    "sort squeeze stack std sum take take_along_axis tensordot tile unique_all unique_counts "
    "unique_inverse unique_values unstack var vecdot where"
)
_STANDARD = frozenset(_NAMES.split())
"""What data-apis.org/array-api/2024.12 names: creation, types, constants, functions."""


def only_standard_functions(path: Path) -> None:
    """Raise TaskError if ``path`` takes anything from ``xp`` that the array API standard does not name."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if not isinstance(node, ast.Attribute) or node.attr in _STANDARD:
            continue
        if isinstance(node.value, ast.Name) and node.value.id == "xp":
            raise TaskError(
                f"{path}:{node.lineno}: xp.{node.attr} is not in the array API standard: NumPy has it, "
                "PyTorch on a GPU may not. See https://data-apis.org/array-api/latest/API_specification"
            )


@contextmanager
def mistakes_named(path: Path) -> Iterator[None]:
    """Turn what the code of ``path`` raises into a TaskError, ``file:line: error: what``.

    So is an attempt to end the program. What speaks about the machine passes: errors of memory and files,
    and RuntimeError, which is how PyTorch reports a GPU's troubles.
    """
    try:
        yield
    except (HerculesError, MemoryError, OSError, RuntimeError):
        raise
    except (Exception, SystemExit) as error:
        what = str(error.msg if isinstance(error, SyntaxError) else error)[:300] or "no message"
        raise TaskError(f"{path}:{_line(path, error)}: {type(error).__name__}: {what}") from error


def _line(path: Path, error: BaseException) -> int:
    """The line of ``path`` where it happened: a syntax error's own, else the innermost of its frames."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return error.lineno or 1
    lines = [f.lineno or 1 for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
    return lines[-1] if lines else 1
