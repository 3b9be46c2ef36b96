"""The attention families: references against plain ones, and bounds that tell honest arithmetic from wrong.

Everything is simulated with NumPy in single precision; `hercules lint` repeats it with compiled candidates.
The default tier takes one member for each head dimension; the slow one takes them all.
"""

import math
from functools import cache

import numpy as np
import pytest
from small_cases import Case, bf16, e4m3, f32, fp32, small_workloads, tasks_of, through

from cudahercules.task.load import family_module

ALWAYS = {
    "module/attention_fwd": (
        "hdim64_fp16_full",
        "hdim32_bf16_causal",
        "hdim96_fp16_causal",
        "hdim128_bf16_full",
        "hdim192_fp16_full",
        "hdim256_bf16_causal",
    ),
    "module/attention_fwd_split": ("hdim64_fp16_full", "hdim96_fp16_causal", "hdim256_bf16_causal"),
    "module/attention_bwd": ("hdim64_fp16_full", "hdim32_fp16_causal", "hdim256_bf16_causal"),
}


@cache
def case_of(index, name, seed):
    task = EVERY[index]
    return Case(task, next(w for w in task.workloads if w.name == name), seed)


def cases(task, *names, seeds=(11,)):
    """Small workloads of ``task``; the tests share them, and must not change them."""
    return [case_of(EVERY.index(task), w.name, s) for w in small_workloads(task, *names) for s in seeds]


def each(tasks):
    """One run a task, in the slow tier but for a few."""
    return pytest.mark.parametrize(
        "task",
        [
            pytest.param(
                t,
                id=f"{t.family.removeprefix('module/')}-{t.member}",
                marks=() if t.member in ALWAYS[t.family] else (pytest.mark.slow,),
            )
            for t in tasks
        ],
    )


FORWARD = tasks_of("module/attention_fwd")
SPLIT = tasks_of("module/attention_fwd_split")
FORWARDS = [*FORWARD, *SPLIT]
BACKWARD = tasks_of("module/attention_bwd")
EVERY = [*FORWARDS, *BACKWARD]


def by_head(x, case):
    """A tensor (batch, head, position, element), whatever the family's layout; its own inverse."""
    return np.swapaxes(x, 1, 2) if case.task.family == "module/attention_fwd_split" else x


# --- attention_fwd and attention_fwd_split -------------------------------------------------------


def attention(case, lower=fp32, skipped=0.0, scales=None, top_left=False, tile=64, shrinking=True):
    """Online softmax over tiles of keys, as fused kernels do it; weights are rounded to the storage type."""
    sizes, storage = case.sizes, through(case.task.outputs[0].dtype.numpy)
    q, k, v = (by_head(lower(case.inputs[name]), case) for name in "qkv")
    group = sizes["q_heads"] // sizes["kv_heads"]
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    scale = np.full(sizes["q_heads"], case.workload.scalars["scale"], f32) if scales is None else scales
    score = q @ np.swapaxes(k, 2, 3) * np.asarray(scale, f32)[None, :, None, None]
    offset = 0 if top_left else sizes["kv_len"] - sizes["q_len"]
    if sizes["causal"]:
        score = np.where(np.tri(sizes["q_len"], sizes["kv_len"], offset, dtype=bool), score, f32(-np.inf))
    kept = sizes["kv_len"] - int(skipped * sizes["kv_len"])
    largest = np.full(score.shape[:3], -np.inf, f32)
    total, sums = np.zeros_like(largest), np.zeros(q.shape, f32)
    with np.errstate(all="ignore"):
        for first in range(0, kept, tile):
            piece = score[..., first : min(first + tile, kept)]
            larger = np.maximum(largest, piece.max(axis=-1)) if shrinking else piece.max(axis=-1)
            base = np.where(np.isinf(larger), f32(0), larger)
            shrink = np.exp(largest - base) if shrinking else np.where(np.isinf(largest), f32(0), f32(1))
            weights = np.exp(piece - base[..., None])
            total = total * shrink + weights.sum(axis=-1, dtype=f32)
            sums = sums * shrink[..., None] + storage(weights) @ v[..., first : first + piece.shape[-1], :]
            largest = larger
        return {"o": by_head(sums / total[..., None], case), "lse": largest + np.log(total)}


@each(FORWARDS)
def test_attention_agrees_with_a_plain_one(task):
    for case in cases(task, "smoke"):
        sizes, scale = case.sizes, case.workload.scalars["scale"]
        q, k, v = (by_head(case.inputs[name].astype(float), case) for name in "qkv")
        o, lse = by_head(case.reference["o"], case), case.reference["lse"]
        for h in range(sizes["q_heads"]):
            keys, values = (x[0, h // (sizes["q_heads"] // sizes["kv_heads"])] for x in (k, v))
            for i in range(sizes["q_len"]):
                seen = i + 1 + sizes["kv_len"] - sizes["q_len"] if sizes["causal"] else sizes["kv_len"]
                weights = [math.exp(scale * math.fsum(q[0, h, i] * keys[j])) for j in range(seen)]
                total = math.fsum(weights)
                expected = sum(w / total * values[j] for j, w in enumerate(weights))
                np.testing.assert_allclose(o[0, h, i], expected, rtol=1e-10, atol=1e-13)
                assert lse[0, h, i] == pytest.approx(math.log(total), rel=1e-12)


@each(FORWARD)
def test_pieces_of_the_queries_agree_with_the_whole(task, monkeypatch):
    whole = cases(task, "past_the_tile")[0]
    monkeypatch.setattr(family_module(task), "SCORES", 7 * 112)
    pieces = Case(task, whole.workload, 11).reference
    for name, piece in pieces.items():
        np.testing.assert_allclose(piece, whole.reference[name], rtol=1e-12, atol=1e-14)


@each(FORWARDS)
def test_fused_attention_passes_with_a_margin_of_two(task):
    for case in cases(task):
        assert not case.misses(attention(case), margin=2), case.workload.name


@each(FORWARDS)
def test_the_lower_precision_of_operands_is_rejected(task):
    lower = bf16 if "fp16" in task.member else e4m3
    for case in cases(task):
        assert "o" in case.misses(attention(case, lower=lower)), case.workload.name


@each(FORWARDS)
def test_two_percent_of_the_keys_left_out_is_rejected(task):
    another = "one_query" if task in FORWARD else "grouped_heads"
    for case in cases(task, "long", another, "equal_weights"):
        assert case.misses(attention(case, skipped=0.02)) == ["o", "lse"], case.workload.name


@each(FORWARDS)
def test_a_shifted_log_sum_exp_is_rejected(task):
    for case in cases(task):
        honest = attention(case)
        assert case.misses({**honest, "lse": honest["lse"] * f32(1.0001)}) == ["lse"], case.workload.name
        assert case.misses({**honest, "lse": honest["lse"] + f32(0.001) * np.abs(honest["lse"]).max()}) == [
            "lse"
        ]
        assert case.misses({**honest, "lse": honest["lse"] / f32(math.log(2))}) == ["lse"]


@each(FORWARDS)
def test_a_wrong_scale_in_one_head_is_rejected(task):
    for case in cases(task, "grouped_heads", "other_scale"):
        scales = np.full(case.sizes["q_heads"], case.workload.scalars["scale"], f32)
        scales[-1] *= f32(1.02)
        assert case.misses(attention(case, scales=scales)) == ["o", "lse"], case.workload.name


@each([t for t in FORWARDS if t.constants["causal"]])
def test_a_mask_at_the_wrong_corner_is_rejected(task):
    longer_past = ("past_the_tile", "grouped_heads", "long") if task in FORWARD else ("verify", "long")
    for case in cases(task, *longer_past):
        assert case.misses(attention(case, top_left=True)) == ["o", "lse"], case.workload.name


@each(SPLIT)
def test_parts_that_are_not_shrunk_to_a_common_maximum_are_rejected(task):
    for case in cases(task, "long", "grouped_heads", "past_the_part", "dominant_key"):
        assert "o" in case.misses(attention(case, tile=128, shrinking=False)), case.workload.name


@each(EVERY)
def test_queries_see_a_key_in_every_workload(task):
    for workload in task.workloads:
        sizes = task.sizes(workload)
        assert sizes["kv_len"] >= sizes["q_len"] or not sizes["causal"], workload.name
        assert sizes["q_heads"] % sizes["kv_heads"] == 0, workload.name
        assert workload.scalars["scale"] > 0, workload.name


@each(FORWARDS)
def test_flops_count_visible_pairs(task):
    sizes = {"batch": 2, "q_heads": 3, "q_len": 5, "kv_len": 9, **task.constants}
    pairs = int(np.tri(5, 9, 4).sum()) if task.constants["causal"] else 45
    assert family_module(task).flops(sizes) == 4 * 2 * 3 * pairs * task.constants["head_dim"]


# --- attention_bwd -------------------------------------------------------------------------------


def backward(case, lower=fp32, weights=None, skipped=0.0, dots=True, dq_scale=None, heads=None, offset=0):
    """The gradients as fused kernels take them: p and ds are rounded to the storage type, and so are the
    heads of a group before they are added up."""
    sizes, storage = case.sizes, through(case.task.outputs[0].dtype.numpy)
    weights = weights or storage
    q, k, v, o, dout = (np.swapaxes(lower(case.inputs[n]), 1, 2) for n in ("q", "k", "v", "o", "dout"))
    lse, scale = case.inputs["lse"][..., None], f32(case.workload.scalars["scale"])
    group = sizes["q_heads"] // sizes["kv_heads"]
    k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    p = np.exp(scale * (q @ np.swapaxes(k, 2, 3)) - lse)
    if sizes["causal"]:
        p = np.tril(p, k=sizes["kv_len"] - sizes["q_len"] + offset)
    ds = p * (dout @ np.swapaxes(v, 2, 3) - (o * dout).sum(axis=-1, keepdims=True, dtype=f32) * dots)
    p, ds = weights(p), weights(ds)
    kept = sizes["kv_len"] - int(skipped * sizes["kv_len"])
    dq = (scale if dq_scale is None else dq_scale) * (ds[..., :kept] @ k[:, :, :kept])
    dk, dv = storage(scale * (np.swapaxes(ds, 2, 3) @ q)), storage(np.swapaxes(p, 2, 3) @ dout)

    def grouped(grad):
        by_group = grad.reshape(sizes["batch"], sizes["kv_heads"], group, *grad.shape[2:])
        return by_group[:, :, : heads and group + heads].sum(axis=2, dtype=f32)

    grads = {"dq": dq, "dk": grouped(dk), "dv": grouped(dv)}
    return {name: np.swapaxes(grad, 1, 2) for name, grad in grads.items()}


@each(BACKWARD)
def test_gradients_agree_with_plain_ones(task):
    for case in cases(task, "smoke"):
        sizes, scale = case.sizes, case.workload.scalars["scale"]
        group = sizes["q_heads"] // sizes["kv_heads"]
        x = {name: value.astype(float) for name, value in case.inputs.items()}
        grads = {name: np.zeros(x[name[1:]].shape) for name in ("dq", "dk", "dv")}
        for h in range(sizes["q_heads"]):
            g = h // group
            for i in range(sizes["q_len"]):
                dot = math.fsum(x["o"][0, i, h] * x["dout"][0, i, h])
                seen = i + 1 + sizes["kv_len"] - sizes["q_len"] if sizes["causal"] else sizes["kv_len"]
                for j in range(seen):
                    p = math.exp(scale * math.fsum(x["q"][0, i, h] * x["k"][0, j, g]) - x["lse"][0, h, i])
                    ds = p * (math.fsum(x["dout"][0, i, h] * x["v"][0, j, g]) - dot)
                    grads["dq"][0, i, h] += scale * ds * x["k"][0, j, g]
                    grads["dk"][0, j, g] += scale * ds * x["q"][0, i, h]
                    grads["dv"][0, j, g] += p * x["dout"][0, i, h]
        for name, grad in grads.items():
            np.testing.assert_allclose(case.reference[name], grad, rtol=1e-9, atol=1e-12)


@each(BACKWARD)
def test_the_gradients_are_those_of_the_forward_pass(task):
    """Where o and lse do come from it: a step along one gradient changes the sum of o * dout as it says."""
    case = cases(task, "odd")[0]
    sizes, scalars = case.sizes, case.workload.scalars
    forward = family_module(SPLIT[0]).reference
    x = {name: value.astype(float) for name, value in case.inputs.items()}
    result = forward(x, sizes, scalars, np)
    grads = family_module(task).reference({**x, **result}, sizes, scalars, np)
    for name in "qkv":
        step = 1e-6 * np.sign(np.sin(np.arange(x[name].size))).reshape(x[name].shape)
        up, down = (forward({**x, name: x[name] + s}, sizes, scalars, np)["o"] for s in (step, -step))
        assert ((up - down) * x["dout"]).sum() / 2 == pytest.approx(
            (grads["d" + name] * step).sum(), rel=1e-5
        )


@each(BACKWARD)
def test_pieces_of_the_queries_give_the_same_gradients(task, monkeypatch):
    whole = cases(task, "past_the_tile")[0]
    monkeypatch.setattr(family_module(task), "SCORES", 3 * 161)
    for name, piece in Case(task, whole.workload, 11).reference.items():
        np.testing.assert_allclose(piece, whole.reference[name], rtol=1e-9, atol=1e-11)


@each(BACKWARD)
def test_fused_backward_passes_with_a_margin_of_two(task):
    for case in cases(task, seeds=(11, 12)):
        assert not case.misses(backward(case), margin=2), case.workload.name


@each(BACKWARD)
def test_lower_precision_is_rejected_in_each_gradient(task):
    lower = bf16 if "fp16" in task.member else e4m3
    for case in cases(task):
        if not case.workload.name.startswith("high_scores"):  # terms of one sign: errors average out
            assert case.misses(backward(case, lower=lower)) == ["dq", "dk", "dv"], case.workload.name


@each(BACKWARD)
def test_weights_in_lower_precision_are_rejected(task):
    lower = bf16 if "fp16" in task.member else e4m3
    for case in cases(task, "odd", "grouped_heads", "past_the_tile", "long"):
        assert case.misses(backward(case, weights=lower)) == ["dq", "dk", "dv"], case.workload.name


@each(BACKWARD)
def test_a_forgotten_dot_product_is_rejected(task):
    for case in cases(task):
        if not case.workload.name.startswith("high_scores"):  # o is 0
            assert case.misses(backward(case, dots=False)) == ["dq", "dk"], case.workload.name


@each(BACKWARD)
def test_dq_without_its_scale_is_rejected(task):
    for case in cases(task):
        assert case.misses(backward(case, dq_scale=f32(1))) == ["dq"], case.workload.name


@each(BACKWARD)
def test_dk_and_dv_without_one_head_of_the_group_are_rejected(task):
    for case in cases(task, "smoke", "grouped_heads", "all_heads_share", "one_query", "outliers"):
        assert case.misses(backward(case, heads=-1)) == ["dk", "dv"], case.workload.name


@each([t for t in BACKWARD if t.constants["causal"]])
def test_a_mask_off_by_one_is_rejected(task):
    for case in cases(task, "odd", "grouped_heads", "past_the_tile", "dominant_query"):
        for offset in (-1, 1):
            missed = case.misses(backward(case, offset=offset))
            assert missed == ["dq", "dk", "dv"], (case.workload.name, offset)


@each(BACKWARD)
def test_two_percent_of_the_keys_left_out_of_dq_is_rejected(task):
    for case in cases(task, "long", "one_query"):
        assert case.misses(backward(case, skipped=0.02)) == ["dq"], case.workload.name


@each(BACKWARD)
def test_flops_of_the_backward_pass_are_five_products(task):
    sizes = {"batch": 2, "q_heads": 3, "q_len": 5, "kv_len": 9, **task.constants}
    pairs = int(np.tri(5, 9, 4).sum()) if task.constants["causal"] else 45
    assert family_module(task).flops(sizes) == 5 * 2 * 2 * 3 * pairs * task.constants["head_dim"]
