"""What a GPU can do at best: datasheet and measured figures, one JSON file a GPU in ``ceilings/``.

Datasheet figures give the *floor* on a time (nothing that reads its operands is faster); measured
ones give the *fraction of the ceiling* that a candidate reaches. Each number states its source.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from pydantic import Field, ValidationError

from cudahercules.errors import MachineError
from cudahercules.task.model import DType, Model, Task, Work

DIRECTORY = Path(__file__).parent / "ceilings"


class Figure(Model):
    """A rate in units a second (bytes or operations), and where it comes from."""

    value: float = Field(gt=0)
    source: str = Field(min_length=8)


class Ceilings(Model):
    """``names`` are the names under which the driver knows the GPU. ``flops`` has the dense rates by
    :class:`DType` name (``fp32`` without tensor cores); integer types count operations."""

    slug: str
    names: tuple[str, ...]
    l2_bytes: int
    bandwidth_datasheet: Figure
    bandwidth_measured: Figure | None = None
    flops_datasheet: dict[DType, Figure]
    flops_measured: dict[DType, Figure] = Field(default_factory=dict)


@lru_cache(maxsize=1)
def all_ceilings() -> tuple[Ceilings, ...]:
    """Every shipped file. Raises MachineError for a damaged one."""
    found = []
    for path in sorted(DIRECTORY.glob("*.json")):
        try:
            found.append(Ceilings.model_validate_json(path.read_bytes()))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise MachineError(f"{path}: field {where}: {first['msg']}: install the package again") from error
    return tuple(found)


def load_ceilings(gpu_name: str) -> Ceilings | None:
    """The figures of the GPU that the driver calls ``gpu_name``; None if there are none."""
    return next((c for c in all_ceilings() if gpu_name in c.names), None)


def arithmetic(task: Task) -> DType:
    """The precision in which the task's flops are counted: that of its narrowest floating operand
    (matrix units multiply in it), else of its first output."""
    floating = [t.dtype for t in task.tensors if not t.dtype.is_integer]
    real = [_REAL.get(d, d) for d in floating]
    return min(real, key=lambda d: (d.size, d is not DType.TF32)) if real else task.outputs[0].dtype


_REAL = {DType.COMPLEX64: DType.FP32, DType.COMPLEX128: DType.FP64}


def floor_us(work: Work, ceilings: Ceilings, dtype: DType) -> float:
    """A time in microseconds that no honest cold run undercuts: reads, and those writes that do not
    fit in L2, at the datasheet's bandwidth; arithmetic only where the family allows no shortcut."""
    moved = work.bytes_read + max(0, work.bytes_written - ceilings.l2_bytes)
    memory = moved / ceilings.bandwidth_datasheet.value
    figure = ceilings.flops_datasheet.get(dtype) if work.flop_floor else None
    return 1e6 * max(memory, work.flops / figure.value if figure else 0.0)


def rates(ceilings: Ceilings, dtype: DType, *, measured: bool = True) -> tuple[float, float | None]:
    """Bytes and operations a second at best: as measured where they were (the datasheet's otherwise), or as
    the datasheet says. The second is None where nothing is known about ``dtype``."""
    bandwidth, rate = ceilings.bandwidth_datasheet, ceilings.flops_datasheet.get(dtype)
    if measured:
        bandwidth = ceilings.bandwidth_measured or bandwidth
        rate = ceilings.flops_measured.get(dtype) or rate
    return bandwidth.value, rate.value if rate else None


def ceiling_us(work: Work, ceilings: Ceilings, dtype: DType) -> float:
    """The time of the textbook algorithm at the best rates that were measured on such a GPU (the
    datasheet's where none was): the larger of its memory and its arithmetic."""
    bandwidth, rate = rates(ceilings, dtype)
    memory = (work.bytes_read + work.bytes_written) / bandwidth
    return 1e6 * max(memory, work.flops / rate if rate else 0.0)
