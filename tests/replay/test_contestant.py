"""A candidate's process from start to end, on a pretend GPU (see fake/)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from by_hand import COUNT, add_launch, make_plan, store_launch

from cudahercules.build.toolchain import find_toolchain
from cudahercules.record.plan import (
    SYMBOL_BASE,
    Copy,
    DeviceAnswer,
    EventRecord,
    EventWait,
    KernelLaunch,
    Memset,
    Relocation,
    Symbol,
    Upload,
)
from cudahercules.replay import generator
from cudahercules.replay.client import environment_of
from cudahercules.replay.interface import (
    AnswersDiffer,
    CannotReplay,
    ContestantFault,
    ContestantHang,
    ContestantLost,
    Request,
    locate_fault,
    start_replay,
    warm_process,
)
from cudahercules.task import inputs

pytestmark = pytest.mark.usefixtures("pretend_gpu")


def expected(task, seed, counter=5):
    """What copy_plus writes while the module variable ``counter`` holds ``counter``."""
    x = inputs.generate(task, task.tensors[0], task.workloads[0], seed)
    return x + np.float32(2.5) + np.float32(counter)


def start(plan, artifact, task, **more):
    return start_replay(plan, artifact, task, task.workloads[0], **more)


def gone(pid):
    """Whether process ``pid`` has ended (a zombie counts as ended)."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


def wait_until_gone(pid, seconds=10.0):
    end = time.monotonic() + seconds
    while not gone(pid):
        assert time.monotonic() < end, f"process {pid} still lives"
        time.sleep(0.02)


def test_every_sample_starts_from_the_same_state(plan, artifact, task):
    with start(plan, artifact, task) as candidate:
        assert candidate.ready.nodes == 1
        assert candidate.ready.method == "graph"
        for seed in (1, 2, 2**64 - 1):
            sample = candidate.sample(seed, keep=True)
            outputs = candidate.outputs(sample)
            # counter starts at 5 each time although every launch raises it
            np.testing.assert_array_equal(outputs.host("y"), expected(task, seed))
            assert sample.changed_inputs == sample.damaged_canaries == ()
            x = inputs.generate(task, task.tensors[0], task.workloads[0], seed)
            assert sample.input_hashes == {"x": generator.hash_bytes(x.tobytes())}
            candidate.release(sample)
    wait_until_gone(candidate.ready.pid)


def test_kept_outputs_stay_while_others_are_taken(plan, artifact, task):
    with start(plan, artifact, task) as candidate:
        samples = candidate.batch([Request(seed=s, keep=True, cold=s % 2 == 0) for s in range(4)])
        for sample in reversed(samples):
            np.testing.assert_array_equal(candidate.outputs(sample).host("y"), expected(task, sample.seed))


def test_repeat_launches_the_graph_that_often(plan, artifact, task):
    with start(plan, artifact, task) as candidate:
        (sample,) = candidate.batch([Request(seed=3, repeat=4, keep=True, cold=False)])
        np.testing.assert_array_equal(candidate.outputs(sample).host("y"), expected(task, 3, counter=8))
        assert sample.wall_ns >= 1000 * sample.microseconds > 0


def test_poison_is_what_unwritten_outputs_hold(artifact, task):
    half = make_plan(task, (add_launch(COUNT // 2),))
    with start(half, artifact, task) as candidate:
        got = candidate.outputs(candidate.sample(1, keep=True)).host("y")
        assert np.isnan(got[COUNT // 2 :]).all()
        np.testing.assert_array_equal(got[: COUNT // 2], expected(task, 1)[: COUNT // 2])


def test_prepare_does_not_see_inputs(artifact, task, plan):
    """A prepare that copies x aside finds another sample's x there, never this one's."""
    x, y, scratch = plan.buffers
    stolen = make_plan(
        task,
        (Copy(stream=0, destination=y.address, source=scratch.address, width=4 * COUNT),),
        prepare=(Copy(stream=0, destination=scratch.address, source=x.address, width=4 * COUNT),),
    )
    with start(stolen, artifact, task) as candidate:
        candidate.sample(1)
        got = candidate.outputs(candidate.sample(2, keep=True)).host("y")
        assert not np.isin(got, inputs.generate(task, task.tensors[0], task.workloads[0], 2)).any()


def test_memory_operations_streams_and_relocated_uploads(artifact, task, plan):
    """x goes through scratch on a second stream; the address comes out of an uploaded pointer."""
    x, y, scratch = plan.buffers
    operations = (
        EventRecord(stream=0, event=7),
        EventWait(stream=3, event=7),
        EventWait(stream=3, event=99),  # never recorded: no wait
        Memset(stream=3, address=scratch.address, value=0, element_size=4, width=COUNT),
        Copy(
            stream=3,
            destination=scratch.address,
            source=x.address,
            width=400,
            height=10,
            destination_pitch=400,
            source_pitch=400,
        ),
        add_launch(stream=3, source=2),
        EventRecord(stream=3, event=8),
        EventWait(stream=0, event=8),
        Upload(
            stream=0,
            destination=y.address,
            data=bytes(8),
            relocations=(Relocation(offset=0, kind="buffer", index=2, addend=16),),
        ),
    )
    with start(make_plan(task, operations), artifact, task) as candidate:
        for seed in (5, 6):
            got = candidate.outputs(candidate.sample(seed, keep=True)).host("y")
            assert int(got[:2].view(np.uint64)[0]) == scratch.address + 16
            np.testing.assert_array_equal(got[2:], expected(task, seed)[2:])


def test_a_plan_is_relocated_where_its_addresses_are_not_granted(artifact, task, plan, monkeypatch):
    monkeypatch.setenv("PRETEND_ELSEWHERE", "1")
    y, scratch = plan.buffers[1:]
    pointer = Upload(
        stream=0,
        destination=y.address,
        data=bytes(8),
        relocations=(Relocation(offset=0, kind="buffer", index=2, addend=16),),
    )
    with start(make_plan(task, (add_launch(), pointer)), artifact, task) as candidate:
        assert candidate.ready.relocated
        got = candidate.outputs(candidate.sample(4, keep=True)).host("y")
        assert int(got[:2].view(np.uint64)[0]) == scratch.address + (1 << 30) + 16
        np.testing.assert_array_equal(got[2:], expected(task, 4)[2:])


def test_symbols_are_found_at_their_device_addresses(artifact, task, plan):
    """The recorder's stand-in address of ``counter`` as a target of uploads and copies."""
    symbol = Symbol(module=0, name="counter", space="global", address=SYMBOL_BASE, size=4)
    y = plan.buffers[1]
    operations = (
        Upload(stream=0, destination=SYMBOL_BASE, data=(40).to_bytes(4, "little")),
        add_launch(),
        Copy(stream=0, destination=y.address, source=SYMBOL_BASE, width=4),
    )
    with start(make_plan(task, operations, symbols=(symbol,)), artifact, task) as candidate:
        for seed in (1, 2):
            got = candidate.outputs(candidate.sample(seed, keep=True)).host("y")
            assert int(got[:1].view(np.int32)[0]) == 41
            np.testing.assert_array_equal(got[1:], expected(task, seed, counter=40)[1:])


def test_writing_an_input_is_a_fault_with_a_place(artifact, task):
    bad = make_plan(task, (add_launch(), store_launch(0)))
    with start(bad, artifact, task) as candidate, pytest.raises(ContestantFault) as caught:
        candidate.sample(1)
    assert caught.value.fault.what == "out_of_bounds"
    wait_until_gone(candidate.ready.pid)
    fault = locate_fault(bad, artifact, task, task.workloads[0], 1)
    assert fault is not None
    assert fault.kernel == "store"
    assert "launch 2 of 2 of solve, kernel store <<<1x1x1, 1x1x1>>>" in fault.message


def test_no_fault_is_no_place(plan, artifact, task):
    assert locate_fault(plan, artifact, task, task.workloads[0], 1) is None


def test_overrun_past_the_page_faults_and_within_it_is_seen(artifact, task, plan):
    y = plan.buffers[1]
    over = make_plan(task, (add_launch(), store_launch(1, addend=-(-y.size // 256) * 256)))
    with start(over, artifact, task) as candidate, pytest.raises(ContestantFault):
        candidate.sample(1)
    before = make_plan(task, (add_launch(), store_launch(1, addend=0).model_copy(update=_back(y))))
    with start(before, artifact, task) as candidate:
        sample = candidate.sample(1, keep=True)
        assert sample.damaged_canaries == ("y#1",)
        assert candidate.sample(2).damaged_canaries == ()  # only kept samples are looked at


def _back(buffer):
    """A plain address 64 bytes before ``buffer``, as an unrelocated pointer would have it."""
    return {"parameters": (buffer.address - 64).to_bytes(8, "little"), "relocations": ()}


def test_a_hang_ends_that_process_only(artifact, task):
    stuck = KernelLaunch(stream=0, module=0, kernel="hang", grid=(1, 1, 1), block=(1, 1, 1), parameters=b"")
    candidate = start(make_plan(task, (stuck,)), artifact, task, sample_s=0.5)
    with pytest.raises(ContestantHang, match=r"0\.5 s"):
        candidate.sample(1)
    wait_until_gone(candidate.ready.pid)
    candidate.close()


def test_a_process_killed_from_outside_is_the_machines_fault(plan, artifact, task):
    candidate = start(plan, artifact, task)
    os.kill(candidate.ready.pid, signal.SIGKILL)
    with pytest.raises(ContestantLost, match="ended"):
        candidate.sample(1)
    candidate.close()
    candidate.close()


def test_other_answers_of_the_device_are_reported_with_the_true_ones(plan, artifact, task):
    asked = (
        DeviceAnswer(question="attribute 16", answer="132"),
        DeviceAnswer(question="properties", answer="38=65536 16=132"),
        DeviceAnswer(question="occupancy copy_plus 256 0 0", answer="8"),
        DeviceAnswer(question="function store", answer="registers=0 local=0 constant=528"),
        DeviceAnswer(question="function hang", answer="registers=7 constant=528 threads=0"),
        DeviceAnswer(question="memory", answer="1 2"),
        DeviceAnswer(question="stream priorities", answer="0 -5"),
    )
    process = warm_process("candidate")
    with pytest.raises(AnswersDiffer) as caught:
        start(plan.model_copy(update={"answers": asked}), artifact, task, process=process)
    assert [(d.question, d.answer) for d in caught.value.differences] == [
        ("attribute 16", "2"),
        ("properties", "38=65536 16=2"),
        ("function hang", "registers=0 constant=528 threads=0"),
    ]
    with start(plan, artifact, task, process=process) as candidate:  # the same process goes on
        assert candidate.ready.pid == process.child.pid
        candidate.sample(1)


def test_an_unknown_question_is_refused(plan, artifact, task):
    asked = (DeviceAnswer(question="the time", answer="noon"),)
    with pytest.raises(CannotReplay, match="unknown question"):
        start(plan.model_copy(update={"answers": asked}), artifact, task)


def test_a_launch_that_the_driver_refuses_is_named(artifact, task):
    with pytest.raises(CannotReplay, match=r"operation 2 \(copy_plus\)"):
        start(make_plan(task, (add_launch(), add_launch(grid=(0, 1, 1)))), artifact, task)


def test_too_little_memory_is_the_machines_matter(artifact, task, plan):
    big = plan.buffers[2].model_copy(update={"size": 2 << 30})
    with pytest.raises(ContestantLost, match="memory"):
        start(plan.model_copy(update={"buffers": (*plan.buffers[:2], big)}), artifact, task)


@pytest.mark.parametrize(
    ("refused", "error", "says"),
    [
        ("cuCtxSetLimit=1", ContestantLost, "cuCtxSetLimit"),  # our own heap limit comes first
        ("cuGraphInstantiate=1", CannotReplay, "the graph of all operations"),
        ("cuGraphInstantiate=700", ContestantFault, "not mapped"),
        ("cuGraphInstantiate=2", ContestantLost, "too little free memory"),
        ("cuMemAllocHost=2", ContestantLost, "too little free memory"),
        ("cuMemMap=801", ContestantLost, "NOT_SUPPORTED"),
        ("cuStreamCreate=801", ContestantLost, "NOT_SUPPORTED"),
        ("cuLaunchKernelEx=1", CannotReplay, r"operation 1 \(copy_plus\)"),
    ],
)
def test_who_is_to_blame_for_a_refusal(plan, artifact, task, monkeypatch, refused, error, says):
    """What a plan asks for is the candidate's matter; memory, and what every plan needs, the machine's."""
    monkeypatch.setenv("PRETEND_REFUSE", refused)
    y = plan.buffers[1]
    upload = Upload(stream=0, destination=y.address, data=bytes(8))
    with pytest.raises(error, match=says):
        start(make_plan(task, (add_launch(), upload)), artifact, task)


IN_THIS_PROCESS = """
import sys
from pathlib import Path
from cuda.bindings import driver
from cudahercules.replay.driver import Context
from cudahercules.replay.interface import Request
from cudahercules.replay.kept import Keeper
from cudahercules.replay.messages import Load
from cudahercules.replay.process import CandidateSide

texts = [Path(p).read_text() for p in sys.argv[1:4]]
side = CandidateSide(Context(0), Keeper(0))
order = Load(task=texts[0], artifact=texts[1], plan=texts[2], workload="main", kernels=sys.argv[4])
side.load(order, None)
driver.LOG.clear()
side.sampler.take(Request(seed=1))
for entry in driver.LOG:
    print(*entry[1:3] if entry[0] == "limit" else entry[1:2])
"""


@pytest.mark.parametrize("size", [0, 4096])
def test_l2_is_set_aside_for_the_candidates_samples_only(plan, artifact, task, tmp_path, size):
    texts = {
        "task": task.model_dump_json(),
        "artifact": artifact.model_dump_json(),
        "plan": plan.model_copy(update={"persisting_l2": size}).canonical_json(),
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    kernels = generator.device_code("90a", find_toolchain().nvcc)
    done = subprocess.run(
        [sys.executable, "-c", IN_THIS_PROCESS, *(tmp_path / name for name in texts), kernels],
        env=environment_of("candidate"),
        capture_output=True,
        text=True,
        check=True,
    )
    seen = done.stdout.splitlines()
    limits = [line for line in seen if line.startswith("CU_LIMIT")]
    if not size:
        assert not limits, seen
        return
    name = "CU_LIMIT_PERSISTING_L2_CACHE_SIZE"
    assert limits == [f"{name} {size}", f"{name} 0"], seen
    between = seen[seen.index(limits[0]) : seen.index(limits[1])]
    assert "evict_read" in between and "wipe_shared" not in between and seen[-1] == limits[1]


def test_a_plan_for_something_else_is_refused(plan, artifact, task):
    with pytest.raises(CannotReplay, match="do not belong together"):
        start_replay(plan, artifact, task, task.workloads[1])


def test_a_process_goes_on_with_another_plan_and_gives_memory_back(plan, artifact, task):
    candidate = start(plan, artifact, task)
    for _ in range(3):
        candidate = start(plan, artifact, task, process=candidate)
        candidate.sample(1, keep=True)
    assert candidate.ready.device_bytes < 8 * (2 << 20)
    candidate.close()


def test_the_child_ends_with_its_parent(tmp_path):
    script = (
        "import os, time; from cudahercules.replay.interface import warm_process\n"
        "p = warm_process('candidate'); p.await_alive(time.monotonic() + 30)\n"
        "print(p.child.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60, check=False)
    assert done.returncode == -9
    wait_until_gone(int(done.stdout))


def test_no_gpu_is_said_in_one_sentence(plan, artifact, task, monkeypatch, tmp_path):
    (tmp_path / "cuda").mkdir()
    (tmp_path / "cuda/__init__.py").write_text("raise ImportError('absent')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(ContestantLost, match="cuda-bindings"):
        start(plan, artifact, task)
