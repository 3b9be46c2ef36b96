"""The task model: what is asked, on which data, and when an answer counts as right.

A *family* is a folder with a ``task.yaml``; a :class:`Task` is one member of a family for one
target, fully resolved: no placeholders are left in it. From its tensors follow ``solve.h``, the
prompt's interface block, the buffers, the inputs, the poison and the checks.
"""

from __future__ import annotations

import math
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import ml_dtypes
import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator


class Model(BaseModel):
    """Strict, immutable base: an unknown field is an error, and nothing changes after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class DType(StrEnum):
    """Element types. ``tf32`` is stored as fp32: the tolerance allows tf32 tensor cores."""

    FP64 = "fp64"
    FP32 = "fp32"
    TF32 = "tf32"
    FP16 = "fp16"
    BF16 = "bf16"
    FP8_E4M3 = "fp8_e4m3"
    FP8_E5M2 = "fp8_e5m2"
    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    UINT8 = "uint8"
    UINT16 = "uint16"
    UINT32 = "uint32"
    UINT64 = "uint64"
    COMPLEX64 = "complex64"
    COMPLEX128 = "complex128"

    @property
    def numpy(self) -> np.dtype:
        """The NumPy (or ml_dtypes) dtype with the same storage."""
        return _NUMPY[self]

    @property
    def c_type(self) -> str:
        """The C++ type in ``solve.h``."""
        return _C_TYPE[self]

    @property
    def size(self) -> int:
        """Bytes an element."""
        return self.numpy.itemsize

    @property
    def is_integer(self) -> bool:
        return self.value.startswith(("int", "uint"))

    @property
    def is_complex(self) -> bool:
        return self.value.startswith("complex")


_NUMPY = {
    DType.FP64: np.dtype(np.float64),
    DType.FP32: np.dtype(np.float32),
    DType.TF32: np.dtype(np.float32),
    DType.FP16: np.dtype(np.float16),
    DType.BF16: np.dtype(ml_dtypes.bfloat16),
    DType.FP8_E4M3: np.dtype(ml_dtypes.float8_e4m3fn),
    DType.FP8_E5M2: np.dtype(ml_dtypes.float8_e5m2),
    **{d: np.dtype(d.value) for d in DType if d.value.startswith(("int", "uint", "complex"))},
}
_C_TYPE = {
    DType.FP64: "double",
    DType.FP32: "float",
    DType.TF32: "float",
    DType.FP16: "__half",
    DType.BF16: "__nv_bfloat16",
    DType.FP8_E4M3: "__nv_fp8_e4m3",
    DType.FP8_E5M2: "__nv_fp8_e5m2",
    DType.COMPLEX64: "float2",
    DType.COMPLEX128: "double2",
    **{d: f"{d.value}_t" for d in DType if d.value.startswith(("int", "uint"))},
}


class Target(StrEnum):
    """What to build for. ``general`` builds for the GPU at hand, sm_80 where there is none."""

    GENERAL = "general"
    AMPERE = "ampere"
    HOPPER = "hopper"
    BLACKWELL = "blackwell"
    BLACKWELL_SM103 = "blackwell-sm103"
    BLACKWELL_RTX = "blackwell-rtx"

    @property
    def architecture(self) -> str | None:
        """The architecture as nvcc spells it, e.g. ``90a``; ``None`` for ``general``."""
        return {
            Target.GENERAL: None,
            Target.AMPERE: "80",
            Target.HOPPER: "90a",
            Target.BLACKWELL: "100a",
            Target.BLACKWELL_SM103: "103a",
            Target.BLACKWELL_RTX: "120a",
        }[self]


ARCHITECTURES = ("80", "90a", "100a", "103a", "120a")


class TaskClass(StrEnum):
    KERNEL = "kernel"
    MODULE = "module"
    APPLICATION = "application"
    CHALLENGE = "challenge"


class Role(StrEnum):
    """``weight`` is an input that ``prepare`` may see as well."""

    IN = "in"
    OUT = "out"
    INOUT = "inout"
    WEIGHT = "weight"


# --- value distributions -----------------------------------------------------------------------


class Normal(Model):
    kind: Literal["normal"] = "normal"
    mean: float = 0.0
    std: float = Field(1.0, gt=0)


class Uniform(Model):
    """Uniform in [low, high)."""

    kind: Literal["uniform"]
    low: float
    high: float


class Integer(Model):
    """Uniform integers in [low, high], both ends included, stored in the tensor's dtype."""

    kind: Literal["integer"]
    low: int
    high: int


class Constant(Model):
    kind: Literal["constant"]
    value: float


class Outliers(Model):
    """Normal(0, std); a ``fraction`` of the elements is multiplied by ``scale``."""

    kind: Literal["outliers"]
    std: float = Field(1.0, gt=0)
    fraction: float = Field(ge=0, le=1)
    scale: float


class Wide(Model):
    """A random sign times 2**e times U[1, 2), e a uniform integer in [low_exponent, high_exponent]."""

    kind: Literal["wide"]
    low_exponent: int
    high_exponent: int


class RowScaled(Model):
    """Normal(0, 1) times 2**e with one e a row (last axis), uniform in [low_exponent, high_exponent]."""

    kind: Literal["row_scaled"]
    low_exponent: int
    high_exponent: int


class LowRank(Model):
    """Rows repeat: row i equals row i % rank. Only ``rank`` distinct rows exist (rank deficient)."""

    kind: Literal["low_rank"]
    rank: int = Field(ge=1)
    std: float = Field(1.0, gt=0)


class Partition(Model):
    """Integers from 0 upwards that add up to ``total`` over the whole tensor: lengths of segments. About the
    share ``empty`` of them is 0; of the others the largest are about 2**``spread`` times the smallest."""

    kind: Literal["partition"]
    total: int = Field(ge=0, le=2**24)
    empty: float = Field(0.0, ge=0, le=1)
    spread: int = Field(0, ge=0, le=15)


Distribution = Annotated[
    Normal | Uniform | Integer | Constant | Outliers | Wide | RowScaled | LowRank | Partition,
    Field(discriminator="kind"),
]


# --- interface ---------------------------------------------------------------------------------

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=48)]


class Tensor(Model):
    """One argument of ``solve``: ``shape`` names dimensions or gives constants.

    ``layout`` is ``row`` (last axis contiguous) or ``column`` (first axis contiguous, 2-D only).
    """

    name: Name
    role: Role
    dtype: DType
    shape: tuple[str | int, ...] = Field(min_length=1, max_length=8)
    layout: Literal["row", "column"] = "row"
    values: Distribution = Normal()
    description: str = ""

    @model_validator(mode="after")
    def _column_is_a_matrix(self) -> Tensor:
        if self.layout == "column" and len(self.shape) != 2:
            raise ValueError("layout 'column' is for matrices (two dimensions)")
        return self


class Scalar(Model):
    """A number handed to ``solve`` by value (host side, known while recording)."""

    name: Name
    type: Literal["int32", "int64", "float", "double"]
    description: str = ""

    @property
    def c_type(self) -> str:
        return {"int32": "int32_t", "int64": "int64_t", "float": "float", "double": "double"}[self.type]


class WorkloadRole(StrEnum):
    SMOKE = "smoke"
    CHECK = "check"
    BENCH = "bench"


class Workload(Model):
    """One size of a task. ``values`` overrides the distribution of single tensors."""

    name: Name
    role: WorkloadRole
    dimensions: dict[Name, int]
    scalars: dict[Name, float] = {}
    values: dict[Name, Distribution] = {}
    source: str = ""

    @model_validator(mode="after")
    def _dimensions_are_positive(self) -> Workload:
        for name, value in self.dimensions.items():
            if not 1 <= value <= 2**40:
                raise ValueError(f"dimension {name} = {value} is outside 1 .. 2**40")
        return self


class Tolerance(Model):
    """When one output counts as right. Errors are taken against the float64 reference.

    l2        relative L2 error of the whole output: ||out - ref|| / ||ref||
    row_l2    the same for the worst row (slice along the last axis). A row whose norm is under
              ``row_floor`` times the root-mean-square row norm is measured against that floor
    element   the largest |out - ref| divided by its row's root-mean-square (same floor)
    element_relative  what an element may be off besides, relative to itself: |out - ref| may reach
              element * (row's root-mean-square) + element_relative * |ref|. For outputs of few bits, where
              rounding takes up to half a unit of the element itself, however far it stands out of its row
    exact     integer outputs: every element equal; the other fields are then unused
    """

    l2: float = Field(0.0, ge=0)
    row_l2: float = Field(0.0, ge=0)
    element: float = Field(0.0, ge=0)
    element_relative: float = Field(0.0, ge=0)
    row_floor: float = Field(1e-3, ge=0)
    exact: bool = False

    @model_validator(mode="after")
    def _relative_comes_on_top(self) -> Tolerance:
        if self.element_relative > 0 and self.element == 0:
            raise ValueError("element_relative comes on top of element, which must be above 0 then")
        if self.exact and max(self.l2, self.row_l2, self.element) > 0:
            raise ValueError("exact: true allows no error, so leave l2, row_l2 and element out")
        return self

    def tightened(self, factor: float) -> Tolerance:
        """The same with every bound ``factor`` times smaller; floors stay."""
        bounds = ("l2", "row_l2", "element", "element_relative")
        return self.model_copy(update={name: getattr(self, name) / factor for name in bounds})


class LibraryPolicy(StrEnum):
    """What a candidate may include."""

    RUNTIME = "runtime"  # CUDA runtime headers, libcu++, cooperative groups
    CUB = "cub"
    CUTLASS = "cutlass"


class Expert(Model):
    """One entry of the panel; ``experts.py`` defines a function of this name. ``runs`` says what the
    function is given: torch tensors, or places on the device (``driver``), which needs no torch."""

    name: Name
    title: str
    packages: tuple[str, ...] = ()
    targets: tuple[Target, ...] = ()
    source: str = ""
    runs: Literal["torch", "driver"] = "torch"
    library_policy: LibraryPolicy | None = None  # what a CUDA source of ours may include; as the task


class Mutant(Model):
    """A plausible wrong solution; it must end in ``verdict`` for the reason that is written down.

    ``verdict`` is a kind, or two joined by " or " where the judges notice by different means.
    """

    file: str
    verdict: str
    reason: str

    @property
    def verdicts(self) -> tuple[str, ...]:
        """The kinds of verdict that are right for this candidate."""
        return tuple(self.verdict.split(" or "))


class Equivalent(Model):
    """A change by machine of an honest solution (see judge/mechanical.py) that is no mistake, and why.

    ``at`` is line and column in the file, ``change`` the kind of change."""

    file: str
    at: str = Field(pattern=r"^[1-9]\d*:[1-9]\d*$")
    change: Literal["barrier", "one_too_many", "one_too_few", "half_sum"]
    reason: str = Field(min_length=8)


class Hostile(Mutant):
    """A candidate that attacks or breaks the contract; it must end in ``verdict`` as well."""


class Answer(Model):
    """What a family says about one task of the release: which of its own ``tasks`` (``member@target``) answer
    for it, and what was faulty there and is ``repaired`` here ("" where nothing was)."""

    tasks: tuple[str, ...] = Field(min_length=1)
    repaired: str = ""


class Work(Model):
    """What a workload costs at least: ``bytes_read`` and ``bytes_written`` are compulsory traffic
    (each operand once); ``flops`` counts the textbook algorithm. ``flop_floor`` says whether the
    family rules out faster algorithms, so that flops give a lower bound on time."""

    bytes_read: int
    bytes_written: int
    flops: float
    flop_floor: bool = False


class Task(Model):
    """One member of a family for one target; everything that the judge needs to know.

    ``constants`` are the member's integer parameters; ``solve.h`` defines them as macros in upper
    case, and shapes may name them like dimensions.
    """

    id: str
    family: str
    member: str
    task_class: TaskClass
    target: Target
    title: str
    domain: str
    directory: Path
    prompt_text: str
    constants: dict[str, int]
    dimensions: tuple[Name, ...]
    tensors: tuple[Tensor, ...]
    scalars: tuple[Scalar, ...] = ()
    workloads: tuple[Workload, ...]
    tolerance: dict[Name, Tolerance]
    experts: tuple[Expert, ...] = ()
    mutants: tuple[Mutant, ...] = ()
    hostile: tuple[Hostile, ...] = ()
    equivalent: tuple[Equivalent, ...] = ()
    meanings: dict[Name, str] = {}  # dimension or constant -> what it counts
    candidates: tuple[str, ...] = ()  # honest solutions that ship with the family, naive.cu first
    beyond_emulator: tuple[str, ...] = ()  # those of them that may use instructions it does not know
    library_policy: LibraryPolicy = LibraryPolicy.RUNTIME
    lower_precision: dict[Name, DType] = {}  # output -> a precision that the bound must reject
    provenance: str = ""
    opponent_note: str = ""  # why no opponent comes near the ceiling, where that is so
    released: dict[str, Answer] = {}  # of the release's tasks, those that this one answers for
    digest: str = ""  # 64 hex digits over what candidates are judged by
    release: str

    def sizes(self, workload: Workload) -> dict[str, int]:
        """Dimensions and constants together: what shapes are resolved with."""
        return {**self.constants, **workload.dimensions}

    def shape(self, tensor: Tensor, workload: Workload) -> tuple[int, ...]:
        """The logical shape of ``tensor`` in ``workload``."""
        sizes = self.sizes(workload)
        return tuple(d if isinstance(d, int) else sizes[d] for d in tensor.shape)

    def nbytes(self, tensor: Tensor, workload: Workload) -> int:
        """Bytes that ``tensor`` occupies (dense)."""
        return math.prod(self.shape(tensor, workload)) * tensor.dtype.size

    def distribution(self, tensor: Tensor, workload: Workload) -> Distribution:
        """The value distribution of ``tensor`` in ``workload``."""
        return workload.values.get(tensor.name, tensor.values)

    def workloads_of(self, *roles: WorkloadRole) -> tuple[Workload, ...]:
        return tuple(w for w in self.workloads if w.role in roles)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """Tensors with values before the call: in, weight and inout."""
        return tuple(t for t in self.tensors if t.role is not Role.OUT)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """Tensors that are checked after the call: out and inout."""
        return tuple(t for t in self.tensors if t.role in (Role.OUT, Role.INOUT))

    @property
    def weights(self) -> tuple[Tensor, ...]:
        return tuple(t for t in self.tensors if t.role is Role.WEIGHT)
