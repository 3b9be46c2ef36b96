"""Buffers lie apart, right-aligned, and where both sides of the recorder say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recording import make_task

from cudahercules.record import layout
from cudahercules.record.extract import AddressBook, extract, placeholder
from cudahercules.record.plan import ALIGNMENT, ARENA_BASE, PAGE, Buffer


@given(st.lists(st.integers(1, 1 << 34), min_size=1, max_size=20))
def test_every_buffer_has_its_pages_and_an_unmapped_one_after(sizes):
    start, end_before = ARENA_BASE, ARENA_BASE - PAGE
    for size in sizes:
        address, start_next = layout.place(start, size)
        assert address % ALIGNMENT == 0
        assert start <= address and address + size <= start_next - PAGE
        assert start_next - PAGE - (address + size) < ALIGNMENT  # ends at the end of its pages
        assert start - end_before >= PAGE
        end_before, start = start_next - PAGE, start_next
        assert start % PAGE == 0


def test_arena_of_a_task():
    task = make_task(("one",))
    buffers = layout.arena(task, task.workloads[0])
    assert [(b.name, b.kind, b.size) for b in buffers] == [
        ("a", "input", 4000),
        ("w", "input", 4000),
        ("c", "output", 4000),
        ("d", "inout", 4000),
    ]
    assert buffers[0].address == ARENA_BASE + PAGE - 4096
    assert layout.arena_end(buffers) == ARENA_BASE + 8 * PAGE


BUFFERS = (
    Buffer(name="x", kind="input", address=ARENA_BASE, size=1000),
    Buffer(name="y", kind="output", address=ARENA_BASE + 4 * PAGE, size=8),
)


@pytest.mark.parametrize(
    ("address", "found"),
    [
        (ARENA_BASE, ("buffer", 0, 0)),
        (ARENA_BASE + 1000, ("buffer", 0, 1000)),
        (ARENA_BASE + 1001, None),
        (ARENA_BASE - 1, None),
        (ARENA_BASE + 4 * PAGE + 8, ("buffer", 1, 8)),
        (ARENA_BASE + 5 * PAGE, None),
    ],
)
def test_address_book(address, found):
    assert AddressBook(BUFFERS, ()).find(address) == found


@given(
    st.binary(max_size=200),
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 1), st.integers(0, 8)), max_size=5),
)
def test_addresses_are_cut_out_and_can_be_put_back(noise, pointers):
    data = bytearray(noise)
    for slot, index, addend in pointers:
        if 8 * slot + 8 <= len(data):
            data[8 * slot : 8 * slot + 8] = (BUFFERS[index].address + addend).to_bytes(8, "little")
    clean, relocations, placed = extract(bytes(data), AddressBook(BUFFERS, ()), [0])
    assert not placed
    for r in relocations:
        assert clean[r.offset : r.offset + 8] == bytes(8)
        word = (BUFFERS[r.index].address + r.addend).to_bytes(8, "little")
        clean = clean[: r.offset] + word + clean[r.offset + 8 :]
    assert clean == bytes(data)


@given(st.integers(0, 4095), st.integers(0, 6))
def test_tensor_map_placeholders_are_found_anywhere(number, before):
    data = bytes(64 * before) + placeholder(number) + b"tail"
    clean, _, (placed,) = extract(data, AddressBook(BUFFERS, ()), [0], maps=number + 1)
    assert (placed.offset, placed.index) == (64 * before, number)
    assert clean == bytes(64 * before + 128) + b"tail"
