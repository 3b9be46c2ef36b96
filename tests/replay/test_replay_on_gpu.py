"""The replay on a real GPU of compute capability 9.0: run with ``--gpu``."""

from __future__ import annotations

import numpy as np
import pytest
from by_hand import add_launch, make_plan, store_launch

from cudahercules.replay.interface import (
    ContestantFault,
    Request,
    locate_fault,
    start_expert,
    start_replay,
)
from cudahercules.task import inputs
from cudahercules.task.load import load_task
from cudahercules.task.model import Expert

pytestmark = pytest.mark.gpu


def expected(task, seed):
    x = inputs.generate(task, task.tensors[0], task.workloads[0], seed)
    return x + np.float32(2.5) + np.float32(5)


def test_samples_are_right_and_equal_in_state(plan, artifact, task):
    with start_replay(plan, artifact, task, task.workloads[0]) as candidate:
        assert candidate.ready.nodes == 1
        assert not candidate.ready.relocated
        for cold in (True, False):
            requests = [Request(seed=s, cold=cold, keep=True) for s in (1, 2**64 - 1)]
            for sample in candidate.batch(requests):
                got = candidate.outputs(sample).host("y")
                np.testing.assert_array_equal(got, expected(task, sample.seed))
                assert sample.changed_inputs == sample.damaged_canaries == ()
                candidate.release(sample)


def test_another_arena_base_means_relocation(plan, artifact, task):
    """A base of 2 MiB lies under what the driver hands out and is not granted."""
    moved = plan.model_copy(
        update={
            "arena_base": 1 << 21,
            "buffers": tuple(
                b.model_copy(update={"address": b.address - plan.arena_base + (1 << 21)})
                for b in plan.buffers
            ),
        }
    )
    with start_replay(moved, artifact, task, task.workloads[0]) as candidate:
        assert candidate.ready.relocated
        got = candidate.outputs(candidate.sample(9, keep=True)).host("y")
        np.testing.assert_array_equal(got, expected(task, 9))


def test_inputs_are_read_only_and_the_place_is_named(artifact, task):
    bad = make_plan(task, (add_launch(), store_launch(0)))
    with (
        start_replay(bad, artifact, task, task.workloads[0]) as candidate,
        pytest.raises(ContestantFault) as caught,
    ):
        candidate.sample(1)
    assert caught.value.fault.what == "out_of_bounds"
    fault = locate_fault(bad, artifact, task, task.workloads[0], 1)
    assert fault is not None
    assert fault.kernel == "store"


def test_slack_beside_an_output_is_watched(artifact, task, plan):
    y = plan.buffers[1]
    sneaky = store_launch(1).model_copy(
        update={"parameters": (y.address - 64).to_bytes(8, "little"), "relocations": ()}
    )
    bad = make_plan(task, (add_launch(), sneaky))
    with start_replay(bad, artifact, task, task.workloads[0]) as candidate:
        assert candidate.sample(1, keep=True).damaged_canaries == ("y#1",)


def test_an_expert_sees_the_same_bits(tmp_path):
    pytest.importorskip("torch")
    task = load_task("kernel/gemm/fp32@general")
    workload = next(w for w in task.workloads if w.name == "odd")
    with start_expert(task, "torch_mm", workload) as expert:
        assert expert.ready.method == "graph"
        sample = expert.sample(11, keep=True)
        c = expert.outputs(sample).host("c").astype(np.float64)
    a, b = (inputs.generate(task, t, workload, 11).astype(np.float64) for t in task.inputs)
    assert np.linalg.norm(c - a @ b) / np.linalg.norm(a @ b) < 1e-6


COPIES_THE_TABLE = """
def copies(inputs, outputs, sizes, scalars):
    import torch

    table = torch.empty_like(inputs["cos_sin"])

    def run():
        rows = table[inputs["position"].long()]
        outputs["q_out"].copy_(rows[:, None, :])
        outputs["k_out"].copy_(rows[:, None, :])

    run.prepare = lambda: table.copy_(inputs["cos_sin"])
    return run
"""


def test_an_expert_prepares_the_weights_of_each_sample(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "experts.py").write_text(COPIES_THE_TABLE)
    expert = Expert(name="copies", title="a copy of the table")
    task = load_task("kernel/rotary/hd64_halved@general")
    task = task.model_copy(update={"directory": tmp_path, "experts": (expert,)})
    workload = task.workloads[0]
    with start_expert(task, "copies", workload) as contestant:
        assert contestant.ready.method == "graph"
        for seed in (11, 12):
            sample = contestant.sample(seed, keep=True)
            got = contestant.outputs(sample).host("q_out")
            x = {t.name: inputs.generate(task, t, workload, seed) for t in task.inputs}
            np.testing.assert_array_equal(got[:, 0], x["cos_sin"][x["position"]].astype(got.dtype))
