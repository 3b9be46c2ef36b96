"""Where every buffer of a plan lies in the arena.

Each buffer gets whole pages of device memory with one unmapped page after them, and stands at the
end of its pages as far as its alignment allows: a kernel that runs past the end of a buffer by up
to a page faults instead of writing into its neighbour.
"""

from __future__ import annotations

from cudahercules.record.plan import ALIGNMENT, ARENA_BASE, PAGE, SYMBOL_BASE, Buffer, Symbol
from cudahercules.task.model import Role, Task, Workload

KINDS = {Role.IN: "input", Role.WEIGHT: "input", Role.OUT: "output", Role.INOUT: "inout"}
SYMBOL_GAP = 4096
"""Bytes left free after each symbol, so that one past its end is not the next one's start."""


def place(start: int, size: int) -> tuple[int, int]:
    """Address of a buffer of ``size`` bytes whose pages begin at ``start`` (a multiple of PAGE),
    and where the next buffer's pages may begin. The recorder's C side computes the same."""
    room = -(-size // ALIGNMENT) * ALIGNMENT
    pages = max(1, -(-room // PAGE))
    return start + pages * PAGE - room, start + (pages + 1) * PAGE


def arena(task: Task, workload: Workload) -> tuple[Buffer, ...]:
    """The buffers of the task's tensors, in declared order; addresses count from ARENA_BASE."""
    buffers = []
    start = ARENA_BASE
    for tensor in task.tensors:
        size = task.nbytes(tensor, workload)
        address, start = place(start, size)
        buffers.append(
            Buffer.model_validate(
                {"name": tensor.name, "kind": KINDS[tensor.role], "address": address, "size": size}
            )
        )
    return tuple(buffers)


def arena_end(buffers: tuple[Buffer, ...]) -> int:
    """First page after ``buffers``: where the next allocation's pages begin."""
    if not buffers:
        return ARENA_BASE
    last = max(buffers, key=lambda b: b.address)
    end = last.address + last.size
    return -(-end // PAGE) * PAGE + PAGE


def symbols(modules) -> tuple[Symbol, ...]:
    """A stand-in address for every variable of the artifact's ``modules``, in their order."""
    placed = []
    address = SYMBOL_BASE
    for index, module in enumerate(modules):
        for info in module.symbols:
            placed.append(
                Symbol(module=index, name=info.name, space=info.space, address=address, size=info.size)
            )
            address += -(-(info.size + SYMBOL_GAP) // ALIGNMENT) * ALIGNMENT
    return tuple(placed)
