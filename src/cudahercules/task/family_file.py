"""What a ``task.yaml`` says once a member's parameters are put in, and the rules it must keep."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from pydantic import Field, field_validator

from cudahercules.task.folder import Folder
from cudahercules.task.model import (
    Answer,
    Constant,
    DType,
    Equivalent,
    Expert,
    Hostile,
    Integer,
    LibraryPolicy,
    Model,
    Mutant,
    Name,
    Normal,
    Partition,
    RowScaled,
    Scalar,
    Target,
    Tensor,
    Tolerance,
    Wide,
    Workload,
    WorkloadRole,
)
from cudahercules.task.released import released_names, unknown

Location = tuple[int | str, ...]

VERDICT_KINDS = (
    "build_error",
    "contract_error",
    "crash",
    "timeout",
    "incorrect",
    "cheating",
    "unsupported_on_cpu",
)


_CPP_WORDS = (
    "alignas alignof and asm auto bool break case catch char class const continue default delete do "
    "double else enum explicit extern false float for friend goto if inline int long mutable namespace "
    "new not operator or private protected public register return short signed sizeof static stream "
    "struct switch template this throw true try typedef typename union unsigned using virtual void "
    "volatile while xor solve prepare"
)


PARTS = 4096
"""The most elements of a tensor whose values are a partition."""


class FileWorkload(Workload):
    """A workload in the file; ``only`` restricts it to members that match one of the patterns."""

    only: tuple[str, ...] = ()

    def is_for(self, member: str) -> bool:
        return not self.only or any(fnmatchcase(member, pattern) for pattern in self.only)

    def bare(self) -> Workload:
        return Workload.model_validate(self.model_dump(exclude={"only"}))


class FileCandidate(Model):
    """An honest solution; a plain string in the file means one for every member and target.

    ``beyond_emulator`` says that it uses instructions which the CPU's emulator may not know (tensor
    cores, for example), so that the CPU judge may answer ``unsupported_on_cpu``.
    """

    file: str
    only: tuple[str, ...] = ()
    targets: tuple[Target, ...] = ()
    beyond_emulator: bool = False

    def is_for(self, member: str, target: Target) -> bool:
        wanted = not self.only or any(fnmatchcase(member, pattern) for pattern in self.only)
        return wanted and (not self.targets or target in self.targets)


class FamilyFile(Model):
    """The fields of ``task.yaml``; docs/task-format.md explains each."""

    title: str = Field(min_length=1)
    domain: str = Field(min_length=1)
    targets: tuple[Target, ...] = Field(min_length=1)
    members: dict[Name, dict[Name, int | str]] = Field(min_length=1)
    meanings: dict[Name, str] = Field(default={})
    dimensions: dict[Name, str] = Field(min_length=1)
    tensors: tuple[Tensor, ...] = Field(min_length=1)
    scalars: tuple[Scalar, ...] = ()
    workloads: tuple[FileWorkload, ...] = Field(min_length=1)
    tolerance: dict[Name, Tolerance]
    lower_precision: dict[Name, DType] = Field(default={})
    experts: tuple[Expert, ...] = ()
    candidates: tuple[FileCandidate, ...] = Field(min_length=1)
    mutants: tuple[Mutant, ...] = ()
    hostile: tuple[Hostile, ...] = ()
    equivalent: tuple[Equivalent, ...] = ()
    library_policy: LibraryPolicy = LibraryPolicy.RUNTIME
    provenance: str = ""
    opponent_note: str = ""
    released: dict[str, Answer] = Field(default={})

    @field_validator("candidates", mode="before")
    @classmethod
    def _spelt_out(cls, value: object) -> object:
        """A plain file name is short for ``{file: name}``."""
        if not isinstance(value, list | tuple):
            return value
        return [{"file": item} if isinstance(item, str) else item for item in value]

    @field_validator("candidates")
    @classmethod
    def _naive_first(cls, value: tuple[FileCandidate, ...]) -> tuple[FileCandidate, ...]:
        if value[0] != FileCandidate(file="naive.cu"):
            raise ValueError("the first candidate must be naive.cu")
        return value


_POSIX_WORDS = (
    "blkcnt blksize char16 char32 char8 clock clockid dev div double fd float fpos fsid gid id imaxdiv "
    "ino int intmax intptr key ldiv lldiv loff max_align mode nlink nullptr off pid ptrdiff register "
    "rlim sigset size socklen ssize stack suseconds time timer u_int uid useconds va_list wchar wctrans "
    "wctype wint"
)
_POSIX_TYPES = frozenset(_POSIX_WORDS.split())
"""Names whose ``<name>_t`` the system's headers define already (POSIX and glibc)."""


def inconsistencies(
    family: FamilyFile, member: str, constants: dict[str, int], folder: Folder
) -> Iterator[tuple[Location, str]]:
    """Each (place, what is wrong) that the types alone cannot see."""
    yield from _names(family, constants)
    yield from _tensors(family, constants)
    yield from _partitions(family, member, constants)
    yield from _workloads(family, member)
    yield from _tolerances(family)
    yield from _files(family, folder)
    for target in {t for t in family.targets if family.targets.count(t) > 1}:
        yield ("targets",), f"{target} is listed twice"
    if "\n" in family.title:
        yield ("title",), "must be one line"
    yield from _released(family)


def _names(family: FamilyFile, constants: dict[str, int]) -> Iterator[tuple[Location, str]]:
    taken: dict[str, str] = dict.fromkeys(constants, "a member's parameter")
    for name in family.dimensions:
        if name in taken:
            yield ("dimensions", name), f"the name is taken by {taken[name]}"
        taken[name] = "a dimension"
    kinds: tuple[tuple[str, Sequence[Tensor | Scalar]], ...] = (
        ("tensors", family.tensors),
        ("scalars", family.scalars),
    )
    for kind, things in kinds:
        for i, thing in enumerate(things):
            if thing.name in taken:
                yield (kind, i, "name"), f"the name {thing.name} is taken by {taken[thing.name]}"
            if thing.name in _CPP_WORDS.split():
                yield (kind, i, "name"), f"{thing.name} means something else in C++ or in solve.h"
            if kind == "tensors" and thing.name in _POSIX_TYPES:
                yield (kind, i, "name"), f"{thing.name}_t, the tensor's alias in solve.h, is a system type"
            taken[thing.name] = f"one of the {kind}"
    for name in family.dimensions:
        if name in _CPP_WORDS.split():
            yield ("dimensions", name), f"{name} means something else in C++ or in solve.h"
    for name in family.meanings:
        if name not in constants:
            yield ("meanings", name), "is no integer parameter of the members"


def _tensors(family: FamilyFile, constants: dict[str, int]) -> Iterator[tuple[Location, str]]:
    known = {**constants, **dict.fromkeys(family.dimensions, 1)}
    for i, tensor in enumerate(family.tensors):
        for j, extent in enumerate(tensor.shape):
            if isinstance(extent, str) and extent not in known:
                yield ("tensors", i, "shape", j), f"{extent!r} is neither a dimension nor a constant"
            if isinstance(extent, int) and extent < 1:
                yield ("tensors", i, "shape", j), "an extent must be at least 1"
        if tensor.role.value == "out":
            if tensor.values != Normal():
                yield ("tensors", i, "values"), "an output has no values before the call"
        else:
            yield from _values(tensor, ("tensors", i, "values"), tensor.values)
    if not any(t.role.value in ("out", "inout") for t in family.tensors):
        yield ("tensors",), "no tensor is an output"


def _values(tensor: Tensor, place: Location, values: object) -> Iterator[tuple[Location, str]]:
    if tensor.dtype.is_integer and not isinstance(values, Integer | Constant | Partition):
        yield place, f"an {tensor.dtype} tensor needs values of kind integer, constant or partition"
    if isinstance(values, Partition) and not tensor.dtype.is_integer:
        yield place, "partition makes integers, for an integer tensor"
    elif isinstance(values, Partition) and values.total > _integer_range(tensor.dtype)[1]:
        yield place, f"does not fit {tensor.dtype} (up to {_integer_range(tensor.dtype)[1]})"
    if isinstance(values, Integer):
        if not 0 <= values.high - values.low < 2**32:
            yield place, "needs low <= high and at most 2**32 different integers"
        elif tensor.dtype.is_integer:
            lowest, highest = _integer_range(tensor.dtype)
            if values.low < lowest or values.high > highest:
                yield place, f"does not fit {tensor.dtype} ({lowest} .. {highest})"
        elif max(abs(values.low), abs(values.high)) > 2**53:
            yield place, "integers in a floating-point tensor must stay within 2**53"
    if isinstance(values, Wide | RowScaled) and not (
        -126 <= values.low_exponent <= values.high_exponent <= 127
    ):
        yield place, "needs -126 <= low_exponent <= high_exponent <= 127"


def _integer_range(dtype: DType) -> tuple[int, int]:
    bits = dtype.size * 8
    return (0, 2**bits - 1) if dtype.value.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _workloads(family: FamilyFile, member: str) -> Iterator[tuple[Location, str]]:
    dimensions, scalars = set(family.dimensions), {s.name for s in family.scalars}
    tensors = {t.name: t for t in family.tensors}
    names: set[str] = set()
    roles: set[WorkloadRole] = set()
    for i, workload in enumerate(family.workloads):
        if workload.name in names:
            yield ("workloads", i, "name"), f"a second workload is called {workload.name}"
        names.add(workload.name)
        if workload.is_for(member):
            roles.add(workload.role)
        for field_name, given, wanted in (
            ("dimensions", set(workload.dimensions), dimensions),
            ("scalars", set(workload.scalars), scalars),
        ):
            if missing := sorted(wanted - given):
                yield ("workloads", i, field_name), f"{workload.name} does not give {', '.join(missing)}"
            for name in sorted(given - wanted):
                yield ("workloads", i, field_name, name), f"there is no such name among the {field_name}"
        for name, values in workload.values.items():
            place: Location = ("workloads", i, "values", name)
            if name not in tensors or tensors[name].role.value == "out":
                yield place, "there is no input tensor of this name"
            else:
                yield from _values(tensors[name], place, values)
        for pattern in workload.only:
            if not any(fnmatchcase(m, pattern) for m in family.members):
                yield ("workloads", i, "only"), f"no member matches {pattern!r}"
    for role in WorkloadRole:
        if role not in roles:
            yield ("workloads",), f"member {member} has no {role} workload"


def _partitions(family: FamilyFile, member: str, constants: dict[str, int]) -> Iterator[tuple[Location, str]]:
    """Every element of a partition depends on all: it is for short tensors."""
    for i, workload in enumerate(family.workloads):
        sizes = {**constants, **workload.dimensions}
        for tensor in family.tensors if workload.is_for(member) else ():
            if isinstance(workload.values.get(tensor.name, tensor.values), Partition):
                elements = math.prod(sizes.get(d, 1) if isinstance(d, str) else d for d in tensor.shape)
                if elements > PARTS:
                    what = f"a partition has at most {PARTS} elements, {tensor.name} has {elements}"
                    yield ("workloads", i, "dimensions"), what


def _tolerances(family: FamilyFile) -> Iterator[tuple[Location, str]]:
    outputs = {t.name: t for t in family.tensors if t.role.value in ("out", "inout")}
    for name, tensor in outputs.items():
        tolerance = family.tolerance.get(name)
        if tolerance is None:
            yield ("tolerance",), f"output {name} has none"
        elif tensor.dtype.is_integer and not tolerance.exact:
            yield ("tolerance", name), "an integer output needs exact: true"
        elif not tolerance.exact and 0 in (tolerance.l2, tolerance.row_l2, tolerance.element):
            yield ("tolerance", name), "needs l2, row_l2 and element, each above zero (or exact: true)"
    for field_name, table in (("tolerance", family.tolerance), ("lower_precision", family.lower_precision)):
        for name in table:
            if name not in outputs:
                yield (field_name, name), "there is no output of this name"


def _files(family: FamilyFile, folder: Folder) -> Iterator[tuple[Location, str]]:
    for i, candidate in enumerate(family.candidates):
        if not folder.holds(candidate.file):
            yield ("candidates", i), f"{candidate.file}: there is no such file in the family's folder"
        for pattern in candidate.only:
            if not any(fnmatchcase(m, pattern) for m in family.members):
                yield ("candidates", i, "only"), f"no member matches {pattern!r}"
    for kind, entries in (("mutants", family.mutants), ("hostile", family.hostile)):
        for i, entry in enumerate(entries):
            if not folder.holds(entry.file):
                yield (kind, i, "file"), f"{entry.file}: there is no such file in the family's folder"
            for verdict in entry.verdicts:
                if verdict not in VERDICT_KINDS:
                    yield (kind, i, "verdict"), f"{verdict!r} is none of {', '.join(VERDICT_KINDS)}"
    for i, same in enumerate(family.equivalent):
        if not any(same.file == c.file for c in family.candidates):
            yield ("equivalent", i, "file"), f"{same.file} is no candidate of this family"
    if not family.experts:
        return
    try:
        defined = folder.experts
    except (SyntaxError, ValueError) as error:
        yield ("experts",), f"experts.py line {getattr(error, 'lineno', 1)} is no Python: {error.args[0]}"
        return
    for i, expert in enumerate(family.experts):
        if expert.name not in defined:
            yield ("experts", i, "name"), f"experts.py defines no function {expert.name}"


def _released(family: FamilyFile) -> Iterator[tuple[Location, str]]:
    own = {f"{member}@{target.value}" for member in family.members for target in family.targets}
    for name, answer in family.released.items():
        if name not in released_names():
            yield ("released", name), unknown(name)
        for i, task in enumerate(answer.tasks):
            if task not in own:
                yield ("released", name, "tasks", i), f"{task!r} is no member@target of this family"
            if task in answer.tasks[:i]:
                yield ("released", name, "tasks", i), f"{task} is listed twice"
        if "\n" in answer.repaired.strip():
            yield ("released", name, "repaired"), "must be one line (or a folded text, >-)"
