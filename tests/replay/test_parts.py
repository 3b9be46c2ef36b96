"""Messages, faults, sections of a cubin, pages of the arena."""

from __future__ import annotations

import os
import socket
import time
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest
from by_hand import add_launch, make_plan, store_launch

from cudahercules.errors import PlanError
from cudahercules.record.plan import PAGE, Memset
from cudahercules.replay import faults
from cudahercules.replay.arena import whole_pages
from cudahercules.replay.expert import preparation
from cudahercules.replay.image import variable_sections
from cudahercules.replay.interface import DeviceArray, Request
from cudahercules.replay.messages import ANSWER, ORDER, At, Channel, Closed, Done, End, Handed, Piece, Run
from cudahercules.replay.sampler import Operand, Sampler


@pytest.fixture
def channels():
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    pair = Channel(a), Channel(b)
    yield pair
    for channel in pair:
        channel.close()


def test_messages_keep_seeds_and_descriptors(channels, tmp_path):
    one, two = channels
    one.send(Run(requests=(Request(seed=2**64 - 1, keep=True),)))
    order = ORDER.validate_python(two.receive(time.monotonic() + 5)[0])
    assert order.requests[0].seed == 2**64 - 1
    with (tmp_path / "file").open("w+b") as f:
        f.write(b"content")
        f.flush()
        two.send(Handed(kind="host", size=7, pieces=(Piece(name="y", offset=0, size=7),)), [f.fileno()])
    data, descriptors = one.receive(time.monotonic() + 5)
    assert ANSWER.validate_python(data).kind == "host"
    assert os.pread(descriptors[0], 7, 0) == b"content"
    os.close(descriptors[0])


def test_a_silent_or_closed_other_side_is_told_apart(channels):
    one, two = channels
    with pytest.raises(TimeoutError):
        one.receive(time.monotonic() + 0.05)
    two.send(Done())
    two.close()
    assert ANSWER.validate_python(one.receive(time.monotonic() + 5)[0]) == Done()
    with pytest.raises(Closed):
        one.receive(time.monotonic() + 5)
    with pytest.raises(Closed):
        one.send(End())


def test_an_absurd_length_is_refused(channels):
    one, two = channels
    two.socket.sendall(b"\xff\xff\xff\xff")
    with pytest.raises(Closed, match="announced"):
        one.receive(time.monotonic() + 5)


def test_faults_name_launch_and_kernel(task):
    plan = make_plan(
        task,
        (
            Memset(stream=0, address=0, value=0, element_size=1, width=1),
            add_launch(),
            store_launch(0),
        ),
    )
    fault = faults.from_code(716, "CUDA_ERROR_MISALIGNED_ADDRESS (716)")
    placed = faults.located(fault, plan, At(part="solve", position=2))
    assert placed.what == "misaligned"
    assert placed.kernel == "store"
    assert placed.message.startswith("launch 2 of 2 of solve, kernel store <<<1x1x1, 1x1x1>>>: a launch")
    assert "(716)" in placed.message
    assert faults.located(fault, plan, At(part="solve", position=0)).message.startswith("operation 1")
    assert faults.located(fault, plan, None) == fault
    assert faults.located(fault, plan, At(part="prepare", position=0)) == fault
    assert faults.from_code(12345, "?").what == "trap"


def test_sections_hold_static_and_function_static_variables(artifact):
    sections = {s.name: s for s in variable_sections(artifact.path("c.cubin"))}
    assert [v.name for v in sections[".nv.global.init"].variables] == ["counter"]
    assert not sections[".nv.global.init"].zero
    assert sections[".nv.global"].zero
    assert any("calls" in v.name for v in sections[".nv.global"].variables)


def test_a_damaged_cubin_is_said_to_be_one(artifact, tmp_path):
    whole = artifact.path("c.cubin").read_bytes()
    for length in (0, 10, 64, len(whole) // 2):
        (tmp_path / "c.cubin").write_bytes(whole[:length])
        with pytest.raises(PlanError, match=r"c\.cubin is not a readable cubin"):
            variable_sections(tmp_path / "c.cubin")


def test_pages_cover_a_buffer_exactly():
    assert whole_pages(PAGE + 256, PAGE - 256) == (PAGE, PAGE)
    assert whole_pages(PAGE + 256, PAGE) == (PAGE, 2 * PAGE)
    assert whole_pages(PAGE, 0) == (PAGE, PAGE)


def test_device_arrays_speak_the_array_interface():
    described = DeviceArray(0x1000, 24).__cuda_array_interface__
    assert described["shape"] == (24,)
    assert described["data"] == (0x1000, False)
    assert described["typestr"] == "|u1"


def test_inputs_that_kernels_see_elsewhere_are_read_there_as_well(task):
    """Both sides' kernels find their inputs at addresses that were used just before the sample."""

    class Kernels:
        def __init__(self):
            self.calls = []

        def fill(self, pointer, dtype, parameters, stream):
            self.calls.append(("fill", pointer))

        def hash(self, slot, pointer, size, stream):
            self.calls.append(("read", pointer, size))

    def calls(address):
        x = Operand(number=0, tensor=task.tensors[0], pointer=4096, size=12, address=address)
        sampler = SimpleNamespace(task=task, workload=task.workloads[1], code=Kernels(), stream=None)
        Sampler._fill(sampler, [x], seed=1)
        return sampler.code.calls

    assert calls(address=8192) == [("fill", 4096), ("read", 8192, 12)]
    assert calls(address=4096) == [("fill", 4096)]


def test_an_experts_weights_are_prepared_on_its_stream():
    seen, current = [], []

    @contextmanager
    def on(stream):
        current.append(stream)
        yield
        current.pop()

    torch = SimpleNamespace(cuda=SimpleNamespace(stream=on), no_grad=nullcontext)
    assert preparation(torch, lambda: None, "its stream") is None
    run = SimpleNamespace(prepare=lambda: seen.append(current[-1]))
    preparation(torch, run, "its stream")()
    assert seen == ["its stream"]
    assert not current
