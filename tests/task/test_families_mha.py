"""kernel/attention_mha: its reference against a plain one, and bounds that tell honest arithmetic from wrong.

Fused attention is simulated with NumPy in single precision; `hercules lint` repeats it with compiled
candidates.
"""

import math

import array_api_compat.numpy as xnp
import ml_dtypes
import numpy as np
import pytest

from cudahercules.judge.checks import check_output
from cudahercules.judge.verdict import OutputCheck
from cudahercules.replay.expert import load_experts
from cudahercules.task.inputs import generate
from cudahercules.task.load import BUNDLED, family_module, load_family, load_task
from cudahercules.task.model import WorkloadRole

f32 = np.float32
TASKS = [t for t in load_family(BUNDLED / "kernel/attention_mha") if t.target == "general"]
each_member = pytest.mark.parametrize("task", TASKS, ids=[t.member for t in TASKS])


def fp32(x):
    return np.asarray(x, f32)


def fp16(x):
    return np.asarray(x, f32).astype(np.float16).astype(f32)


def bf16(x):
    return np.asarray(x, f32).astype(ml_dtypes.bfloat16).astype(f32)


class Case:
    """One small workload with inputs and reference."""

    def __init__(self, task, workload):
        self.task, self.workload, self.sizes = task, workload, task.sizes(workload)
        self.inputs = {t.name: generate(task, t, workload, 11) for t in task.inputs}
        wide = {name: x.astype(np.float64) for name, x in self.inputs.items()}
        self.reference = family_module(task).reference(wide, self.sizes, workload.scalars, xnp)["o"]

    def accepts(self, o, margin=1.0):
        (tensor,) = self.task.outputs
        tight = self.task.tolerance["o"].tightened(margin)
        stored = np.asarray(o).astype(np.float16)
        return isinstance(check_output(tensor, tight, stored, self.reference), OutputCheck)


def cases(task, *names):
    wanted = [
        w for w in task.workloads_of(WorkloadRole.SMOKE, WorkloadRole.CHECK) if not names or w.name in names
    ]
    assert wanted
    return [Case(task, w) for w in wanted]


def attend(case, lower=fp32, weights_as=fp16, sums=fp32, skipped=0.0, scales=None, corner=0, tile=64):
    """Online softmax over tiles of keys, as fused kernels do it. ``skipped`` is a share of the keys,
    ``scales`` one number a head, ``corner`` how many keys more than i + 1 query i sees."""
    sizes = case.sizes
    q, k, v = (np.swapaxes(lower(case.inputs[name]), 1, 2) for name in "qkv")
    scale = np.full(sizes["heads"], case.workload.scalars["scale"], f32) if scales is None else scales
    score = q @ np.swapaxes(k, 2, 3) * np.asarray(scale, f32)[None, :, None, None]
    if sizes["causal"]:
        score = np.where(np.tri(sizes["q_len"], sizes["kv_len"], corner, dtype=bool), score, f32(-np.inf))
    kept = sizes["kv_len"] - int(skipped * sizes["kv_len"])
    largest = np.full(score.shape[:3], -np.inf, f32)
    total, result = np.zeros_like(largest), np.zeros(q.shape, f32)
    with np.errstate(all="ignore"):
        for first in range(0, kept, tile):
            piece = score[..., first : min(first + tile, kept)]
            larger = np.maximum(largest, piece.max(axis=-1))
            base = np.where(np.isinf(larger), f32(0), larger)
            shrink, weights = np.exp(largest - base), np.exp(piece - base[..., None])
            total = sums(total * shrink + weights.sum(axis=-1, dtype=f32))
            values = v[..., first : first + piece.shape[-1], :]
            result = sums(result * shrink[..., None] + weights_as(weights) @ values)
            largest = larger
        return np.swapaxes(result / total[..., None], 1, 2)


@each_member
def test_attention_agrees_with_a_plain_one(task):
    for case in cases(task, "smoke", "many_sequences", "more_queries_than_keys"):
        sizes, scale = case.sizes, case.workload.scalars["scale"]
        q, k, v = (case.inputs[name].astype(float) for name in "qkv")
        for b, i, h in np.ndindex(sizes["batch"], sizes["q_len"], sizes["heads"]):
            seen = min(i + 1, sizes["kv_len"]) if sizes["causal"] else sizes["kv_len"]
            weights = [math.exp(scale * math.fsum(q[b, i, h] * k[b, j, h])) for j in range(seen)]
            expected = sum(w * v[b, j, h] for j, w in enumerate(weights)) / math.fsum(weights)
            np.testing.assert_allclose(case.reference[b, i, h], expected, rtol=1e-9, atol=1e-12)


@each_member
@pytest.mark.parametrize("scores", [1, 33 * 7, 33 * 90])
def test_pieces_of_heads_and_queries_agree_with_the_whole(task, scores, monkeypatch):
    whole = cases(task, "more_queries_than_keys")[0].reference
    monkeypatch.setattr(family_module(task), "SCORES", scores)
    pieces = cases(task, "more_queries_than_keys")[0].reference
    np.testing.assert_allclose(pieces, whole, rtol=1e-12, atol=1e-14)


@each_member
@pytest.mark.parametrize("weights_as", [fp32, fp16])
def test_fused_attention_passes_with_a_margin_of_two(task, weights_as):
    for case in cases(task):
        assert case.accepts(attend(case, weights_as=weights_as), margin=2), case.workload.name


@each_member
def test_bf16_operands_and_weights_are_rejected(task):
    for case in cases(task):
        assert not case.accepts(attend(case, lower=bf16)), case.workload.name
    for case in cases(task, "odd", "past_the_tile", "cross", "dominant_key"):
        case.inputs["v"] = bf16(case.inputs["v"])
        assert not case.accepts(attend(case, weights_as=bf16)), case.workload.name


@each_member
def test_sums_in_half_precision_are_rejected(task):
    """Rounded key by key."""
    for case in cases(task, "odd", "past_the_tile", "more_queries_than_keys", "cross"):
        assert not case.accepts(attend(case, sums=fp16, tile=1)), case.workload.name


@each_member
def test_two_percent_of_the_keys_left_out_is_rejected(task):
    names = ("odd", "triangle", "equal_weights") if task.constants["causal"] else ("odd", "long", "one_query")
    for case in cases(task, *names):
        if not task.constants["causal"] or case.sizes["q_len"] >= case.sizes["kv_len"]:
            assert not case.accepts(attend(case, skipped=0.02)), case.workload.name


@each_member
def test_a_wrong_scale_in_one_head_is_rejected(task):
    for case in cases(task, "odd", "other_scale", "cross"):
        scales = np.full(case.sizes["heads"], case.workload.scalars["scale"], f32)
        scales[-1] *= f32(1.02)
        assert not case.accepts(attend(case, scales=scales)), case.workload.name


@each_member
def test_a_mask_at_the_wrong_corner_is_rejected(task):
    if task.constants["causal"]:
        for case in cases(task, "past_the_tile", "cross", "one_query"):
            corner = case.sizes["kv_len"] - case.sizes["q_len"]
            assert not case.accepts(attend(case, corner=corner)), case.workload.name


@each_member
def test_flops_count_visible_pairs(task):
    for q_len, kv_len in ((5, 9), (9, 5), (7, 7)):
        sizes = {"batch": 2, "heads": 3, "q_len": q_len, "kv_len": kv_len, **task.constants}
        pairs = int(np.tri(q_len, kv_len).sum()) if task.constants["causal"] else q_len * kv_len
        assert family_module(task).flops(sizes) == 4 * 2 * 3 * pairs * task.constants["head_dim"]


def test_the_emulator_must_run_the_hopper_candidate():
    for task in load_family(BUNDLED / "kernel/attention_mha"):
        assert ("tuned_hopper.cu" in task.candidates) == (task.target == "hopper")
        assert not task.beyond_emulator


@pytest.mark.parametrize("name", ["fa3", "fa2"])
def test_libraries_that_mask_from_the_other_corner_decline_unequal_lengths(name):
    task = load_task("kernel/attention_mha/hd64_causal")
    workload = next(w for w in task.workloads if w.name == "cross")
    with pytest.raises(NotImplementedError, match="lower right corner"):
        getattr(load_experts(task), name)({}, {}, task.sizes(workload), workload.scalars)


def test_timed_causal_workloads_have_equal_lengths():
    for task in TASKS:
        for workload in task.workloads_of(WorkloadRole.BENCH):
            if task.constants["causal"]:
                assert workload.dimensions["q_len"] == workload.dimensions["kv_len"]
