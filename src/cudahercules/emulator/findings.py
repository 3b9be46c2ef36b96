"""What the checking build finds in a run, one type a kind.

Every finding has ``message`` (a sentence with all that is known), ``cause`` (one on the likely cause) and
``place``. ``count`` says how often it happened where more than the first time is known.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from cudahercules.emulator.outcome import Dim3
from cudahercules.task.model import Model


class Place(Model):
    """Where: ``file`` and ``line`` are the innermost that lie in the candidate's own files, ``inner`` the
    line of a toolkit header inlined there, ``callers`` the call sites through which the line was inlined."""

    kernel: str = ""
    block: Dim3 | None = None
    thread: Dim3 | None = None
    file: str = ""
    line: int = 0
    instruction: str = ""
    inner: str = ""
    callers: tuple[str, ...] = ()


class Touch(Model):
    """A read or write of shared memory. ``work`` is thread, atomic, cp.async, bulk_copy (into shared memory,
    tensor copies and ``st.async`` too), bulk_store (out of it) or wgmma; ``place`` is where it was issued."""

    work: Literal["thread", "atomic", "cp.async", "bulk_copy", "bulk_store", "wgmma"]
    touch: Literal["read", "write"]
    place: Place


class ThreadGroup(Model):
    """``count`` threads that wait at one line for one thing: ``wait`` is barrier, lanes, activemask,
    mbarrier, cluster, warpgroup or running. ``threads`` are runs [first, last]."""

    count: int
    wait: str
    message: str
    place: Place
    threads: tuple[tuple[Dim3, Dim3], ...]


class _Finding(Model):
    message: str
    cause: str
    place: Place


class _Access(_Finding):
    """An access of ``size`` bytes; ``memory`` is buffer, variable, shared, local, parameters or unknown,
    ``name`` of the nearest buffer or variable, ``extent`` its bytes and ``offset`` from its start."""

    access: Literal["read", "write", "atomic operation"]
    size: int
    memory: str
    name: str = ""
    offset: int
    extent: int | None = None


class OutOfBounds(_Access):
    """``distance`` is how many bytes of the access lie outside, or how far away it is; 0 where the memory may
    only be read."""

    kind: Literal["out_of_bounds"] = "out_of_bounds"
    distance: int


class Misaligned(_Access):
    kind: Literal["misaligned"] = "misaligned"


class UninitialisedRead(_Finding):
    """A read of shared or global memory that nothing had written, and on which the answer depends: it was
    another one when the memory held something else before."""

    kind: Literal["uninitialised"] = "uninitialised"
    memory: Literal["shared", "global"]
    name: str = ""
    offset: int
    size: int
    count: int


class UnwrittenOutput(_Finding):
    """``index`` is the first element that nothing wrote (of ``missing`` bytes among ``extent``)."""

    kind: Literal["unwritten"] = "unwritten"
    output: str
    index: tuple[int, ...] = ()
    offset: int
    missing: int
    extent: int


class SharedRace(_Finding):
    """Two threads touch the same bytes of shared memory, one of them writes, and nothing orders them."""

    kind: Literal["race"] = "race"
    offset: int
    size: int
    first: Touch
    second: Touch
    count: int


class MissingWait(_Finding):
    """The same where one of both is asynchronous; or (without touches) work that nobody waited for."""

    kind: Literal["missing_wait"] = "missing_wait"
    offset: int | None = None
    size: int | None = None
    first: Touch | None = None
    second: Touch | None = None
    count: int = 1


class MissingFence(_Finding):
    """Asynchronous work reads shared memory that was stored before, in order, but without a proxy fence."""

    kind: Literal["missing_fence"] = "missing_fence"
    offset: int
    size: int
    first: Touch
    second: Touch
    count: int


class Deadlock(_Finding):
    kind: Literal["deadlock"] = "deadlock"
    alive: int
    total: int
    groups: tuple[ThreadGroup, ...]


class BarrierDivergence(_Finding):
    kind: Literal["barrier_divergence"] = "barrier_divergence"
    barrier: int
    other: Place


class MismatchedMask(_Finding):
    """``mask`` where one thread names a mask that lacks itself, ``groups`` where several do not agree."""

    kind: Literal["mismatched_mask"] = "mismatched_mask"
    mask: int | None = None
    groups: tuple[ThreadGroup, ...] = ()


class MbarrierMisuse(_Finding):
    """``other`` is the copy, or the initialisation, that is concerned, too."""

    kind: Literal["mbarrier_misuse"] = "mbarrier_misuse"
    other: Place | None = None


class OutOfFuel(_Finding):
    """The kernels did not end; ``place`` is the line where most of the time went."""

    kind: Literal["out_of_fuel"] = "out_of_fuel"
    limit: str


class OtherFault(_Finding):
    """``what`` as in Fault: trap, assertion, stack_overflow, cluster_misuse, bulk_copy, ..."""

    kind: Literal["fault"] = "fault"
    what: str


Finding = Annotated[
    OutOfBounds
    | Misaligned
    | UninitialisedRead
    | UnwrittenOutput
    | SharedRace
    | MissingWait
    | MissingFence
    | Deadlock
    | BarrierDivergence
    | MismatchedMask
    | MbarrierMisuse
    | OutOfFuel
    | OtherFault,
    Field(discriminator="kind"),
]
