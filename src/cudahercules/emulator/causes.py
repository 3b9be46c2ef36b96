"""One sentence of likely cause for each kind of finding."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cudahercules.emulator.findings import Touch

ASYNCHRONOUS = ("cp.async", "bulk_copy", "bulk_store", "wgmma")

OF_FAULT = {
    "out_of_bounds": "An index is larger than the memory: look at the bounds check of the last block and at "
    "the size that was allocated.",
    "read_only": "Inputs and constants are read-only: write to an output or to scratch memory.",
    "null": "A pointer was never set, or a kernel parameter is missing.",
    "misaligned": "A vector access needs an address that is a multiple of its size: the row's length or the "
    "offset is not.",
    "deadlock": "Threads wait for others that ended, or that wait elsewhere: a barrier stands in a branch "
    "that not all of its threads take, or an arrival is missing.",
    "barrier_divergence": "A barrier stands in both branches of a condition that differs within a warp: move "
    "it behind the branch.",
    "mismatched_mask": "The mask names lanes that do not come here: take it from the condition "
    "(__ballot_sync) before the branch, or let all lanes take part.",
    "mbarrier_misuse": "Arrivals or bytes are counted wrongly, or the object is used too early or too late.",
    "missing_wait": "Something leaves before its asynchronous work is done: wait before the block ends.",
    "trap": "The code itself calls for a trap: look at the condition before it.",
    "assertion": "The condition in the source does not hold.",
    "invalid_function": "The pointer was never set, or points to a function of another type.",
    "stack_overflow": "Recursion has no end, or local arrays are too large.",
    "cluster_misuse": "Blocks of a cluster must meet (barrier.cluster) before and after they touch each "
    "other's memory.",
    "bulk_copy": "Addresses and sizes of bulk copies are multiples of 16 bytes, and a tensor map must "
    "be one.",
    "illegal_instruction": "The instruction is used in a way that PTX does not define.",
}
UNINITIALISED = {
    "shared": "Some threads read before those bytes are filled, or the loop that fills shared memory leaves "
    "them out.",
    "global": "Scratch and outputs begin undefined: set them (cudaMemsetAsync, or a first kernel) before "
    "they are read or added to.",
}
UNWRITTEN = "The grid is too small, or a bounds check leaves out the last rows or columns."
OUT_OF_FUEL = (
    "A loop has no end there: its condition never changes, or a thread waits for one that never comes."
)
UNFINISHED = "wgmma.wait_group is missing before accumulators are read, or lets the last products go on."
UNFENCED = (
    "fence.proxy.async is missing after the stores, in the threads that store, before the barrier that lets "
    "the asynchronous work begin."
)
EARLY_USE = "A barrier (or fence and cluster barrier) is missing between mbarrier.init and its first use."


def of_conflict(first: Touch, second: Touch, same_warp: bool) -> str:
    """Why ``first`` is not ordered before ``second``; ``same_warp``: both are of threads of one warp."""
    if first.work in ASYNCHRONOUS:
        return _after(first, second)
    if second.work in ASYNCHRONOUS:
        return _before(first)
    if first.place.block != second.place.block:
        return (
            "A cluster barrier (cluster.sync(), barrier.cluster) is missing between the two: __syncthreads() "
            "orders the threads of one block only."
        )
    barrier = "__syncwarp()" if same_warp else "__syncthreads()"
    if first.touch == second.touch:
        return f"Two threads write one place: give each its own, or put a {barrier} between the two."
    return (
        f"A {barrier} is missing between the two: after the write, and in a loop also before the memory is "
        "written again."
    )


def _after(work: Touch, other: Touch) -> str:
    """Something follows asynchronous work that is not over."""
    match work.work:
        case "cp.async":
            same = work.place.thread == other.place.thread
            wait = "cp.async.wait_group (__pipeline_wait_prior)"
            return f"{wait} is missing." if same else f"{wait} and then a barrier are missing."
        case "bulk_copy":
            return "The mbarrier that the copy signals is not waited for, or for another phase."
        case "bulk_store":
            return (
                "cp.async.bulk.wait_group.read is missing (in the thread that issued the store), or a "
                "barrier after it."
            )
        case _:
            return "wgmma.wait_group is missing before the operands in shared memory are overwritten."


def _before(other: Touch) -> str:
    """Asynchronous work follows something that is not known to be over."""
    if other.touch == "read":
        return (
            "The copy may overwrite what others still read: wait until they have arrived (an `empty` "
            "mbarrier or a barrier) before it is issued. If they are to read what it brings, they must wait "
            "for it first."
        )
    return "A barrier is missing between the stores and the asynchronous work that uses the same memory."
