"""gemm in lower precisions, gemm_softmax and attention_fwd: references against plain ones, and bounds that
tell honest arithmetic from wrong.

Everything is simulated with NumPy in single precision; `hercules lint` repeats it with compiled candidates.
"""

import math

import array_api_compat.numpy as xnp
import ml_dtypes
import numpy as np
import pytest

from cudahercules.judge.bundled import bundled
from cudahercules.judge.checks import check_output
from cudahercules.judge.verdict import OutputCheck
from cudahercules.task.inputs import generate
from cudahercules.task.load import BUNDLED, family_module, load_family
from cudahercules.task.model import WorkloadRole

f32 = np.float32
SEEDS = (11, 12, 13)


def tasks_of(family, target="general"):
    return [t for t in load_family(BUNDLED / family) if t.target == target]


def each(tasks):
    return pytest.mark.parametrize("task", tasks, ids=[t.member for t in tasks])


GEMM = tasks_of("kernel/gemm")
SOFTMAX = tasks_of("kernel/gemm_softmax")
ATTENTION = tasks_of("module/attention_fwd")
SMALL = (WorkloadRole.SMOKE, WorkloadRole.CHECK)


def through(dtype):
    """Values as they are after a round trip through another type, in fp32."""
    return lambda x: np.asarray(x, f32).astype(dtype).astype(f32)


def truncated(x):
    """What tensor cores make of an fp32 operand in TF32: the low 13 bits are not read."""
    return (np.asarray(x, f32).view(np.uint32) & np.uint32(0xFFFFE000)).view(f32)


fp32 = through(f32)
bf16 = through(ml_dtypes.bfloat16)


def e4m3(x):
    return np.clip(np.asarray(x, f32), -448, 448).astype(ml_dtypes.float8_e4m3fn).astype(f32)


class Case:
    """One small workload with inputs and reference."""

    def __init__(self, task, workload, seed):
        self.task, self.workload, self.sizes = task, workload, task.sizes(workload)
        self.inputs = {t.name: generate(task, t, workload, seed) for t in task.inputs}
        wide = {name: x.astype(np.float64) for name, x in self.inputs.items()}
        self.reference = family_module(task).reference(wide, self.sizes, workload.scalars, xnp)

    def misses(self, outputs, margin=1.0):
        """Names of the outputs that miss their bound divided by ``margin``."""
        missed = []
        for tensor in self.task.outputs:
            tight = self.task.tolerance[tensor.name].tightened(margin)
            stored = np.asarray(outputs[tensor.name]).astype(tensor.dtype.numpy)
            if not isinstance(check_output(tensor, tight, stored, self.reference[tensor.name]), OutputCheck):
                missed.append(tensor.name)
        return missed


def cases(task, *names, seeds=SEEDS):
    wanted = [w for w in task.workloads_of(*SMALL) if not names or w.name in names]
    assert len(wanted) == len(names or wanted)
    return [Case(task, w, seed) for w in wanted for seed in seeds]


# --- gemm ----------------------------------------------------------------------------------------


def multiply(case, lower=fp32, group=1, rounded=fp32):
    """The product, ``group`` terms of the sum at a time, the running sum passed through ``rounded``."""
    a, b = lower(case.inputs["a"]), lower(case.inputs["b"])
    total = np.zeros((a.shape[0], b.shape[1]), f32)
    for p in range(0, a.shape[1], group):
        total = rounded(total + a[:, p : p + group] @ b[p : p + group])
    return {"c": total}


TF32, FP16, BF16 = (next(t for t in GEMM if t.member == m) for m in ("tf32", "fp16", "bf16"))
AVERAGED = ("positive", "single_column", "row_scaled_fp16")  # terms of one sign: errors average out


def test_truncated_tf32_operands_pass_with_a_margin_of_two():
    for case in cases(TF32):
        assert not case.misses(multiply(case, truncated, group=8), margin=2), case.workload.name


@pytest.mark.parametrize(("task", "lower"), [(TF32, bf16), (FP16, bf16), (BF16, e4m3)], ids=str)
def test_the_next_lower_precision_of_operands_is_rejected(task, lower):
    for case in cases(task):
        if case.workload.name not in AVERAGED:
            assert case.misses(multiply(case, lower, group=8)), case.workload.name


@pytest.mark.parametrize(
    ("task", "sums"), [(FP16, through(np.float16)), (BF16, bf16), (TF32, through(np.float16))], ids=str
)
def test_sums_in_sixteen_bits_are_rejected_even_in_groups(task, sums):
    """Tensor cores that accumulate in fp16 round after each group of 16 terms."""
    for case in cases(task, "deep"):
        assert case.misses(multiply(case, group=16, rounded=sums))


def test_fp16_results_do_not_overflow():
    for case in cases(FP16):
        assert np.abs(case.reference["c"]).max() < 60000, case.workload.name


def test_hopper_alone_has_the_tensor_core_candidate_and_the_emulator_must_run_it():
    for task in load_family(BUNDLED / "kernel/gemm"):
        expected = {b.file: b.expected for b in bundled(task) if b.sort == "honest"}
        tuned = task.target == "hopper" and task.member in ("bf16", "fp16")
        assert ("tuned_hopper.cu" in expected) == tuned
        assert set(expected.values()) == {"correct"}


# --- gemm_softmax --------------------------------------------------------------------------------


def softmax(case, lower=fp32, products=fp32, base=np.e):
    logits = products(lower(case.inputs["a"]) @ lower(case.inputs["b"])) * f32(case.workload.scalars["alpha"])
    weights = np.power(f32(base), logits - logits.max(axis=1, keepdims=True), dtype=f32)
    return {"d": weights / weights.sum(axis=1, keepdims=True)}


@each(SOFTMAX)
def test_row_softmax_agrees_with_a_plain_one(task):
    for case in cases(task, "smoke", "one_column", "negative_alpha", seeds=(1,)):
        a, b = (case.inputs[n].astype(float).tolist() for n in "ab")
        alpha = case.workload.scalars["alpha"]
        for i, row in enumerate(a):
            logits = [
                alpha * math.fsum(x * y for x, y in zip(row, c, strict=True)) for c in zip(*b, strict=True)
            ]
            weights = [math.exp(x - max(logits)) for x in logits]
            expected = [w / math.fsum(weights) for w in weights]
            np.testing.assert_allclose(case.reference["d"][i], expected, rtol=1e-11)


@each(SOFTMAX)
def test_products_in_fp16_pass_with_a_margin_of_two(task):
    for case in cases(task):
        assert not case.misses(softmax(case, products=through(np.float16)), margin=2), case.workload.name


@each(SOFTMAX)
def test_bf16_is_rejected(task):
    for case in cases(task, "smoke", "odd", "deep", "long_rows", "one_row", "negative_alpha", "outlier_rows"):
        assert case.misses(softmax(case, lower=bf16)), case.workload.name
        assert case.misses(softmax(case, products=bf16)), case.workload.name


@each(SOFTMAX)
def test_pieces_of_the_row_softmax_agree_with_the_whole(task, monkeypatch):
    whole = cases(task, "odd", seeds=(1,))[0].reference["d"]
    monkeypatch.setattr(family_module(task), "LOGITS", 7 * 301)
    np.testing.assert_allclose(cases(task, "odd", seeds=(1,))[0].reference["d"], whole, rtol=1e-14)


# --- attention -----------------------------------------------------------------------------------


def attention(case, lower=fp32, skipped=0.0, scales=None, top_left=False, tile=64):
    """Online softmax over tiles of keys, as fused kernels do it; weights are rounded to the storage type."""
    sizes, storage = case.sizes, through(case.task.outputs[0].dtype.numpy)
    q, k, v = (lower(case.inputs[name]) for name in "qkv")
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
            larger = np.maximum(largest, piece.max(axis=-1))
            base = np.where(np.isinf(larger), f32(0), larger)
            shrink, weights = np.exp(largest - base), np.exp(piece - base[..., None])
            total = total * shrink + weights.sum(axis=-1, dtype=f32)
            sums = sums * shrink[..., None] + storage(weights) @ v[..., first : first + piece.shape[-1], :]
            largest = larger
        return {"o": sums / total[..., None], "lse": largest + np.log(total)}


@each(ATTENTION)
def test_attention_agrees_with_a_plain_one(task):
    for case in cases(task, "smoke", seeds=(1,)):
        sizes, scale = case.sizes, case.workload.scalars["scale"]
        q, k, v = (case.inputs[name].astype(float) for name in "qkv")
        for h in range(sizes["q_heads"]):
            keys, values = (x[0, h // (sizes["q_heads"] // sizes["kv_heads"])] for x in (k, v))
            for i in range(sizes["q_len"]):
                seen = i + 1 + sizes["kv_len"] - sizes["q_len"] if sizes["causal"] else sizes["kv_len"]
                weights = [math.exp(scale * math.fsum(q[0, h, i] * keys[j])) for j in range(seen)]
                total = math.fsum(weights)
                expected = sum(w / total * values[j] for j, w in enumerate(weights))
                np.testing.assert_allclose(case.reference["o"][0, h, i], expected, rtol=1e-10, atol=1e-13)
                assert case.reference["lse"][0, h, i] == pytest.approx(math.log(total), rel=1e-12)


@each(ATTENTION)
def test_pieces_of_the_queries_agree_with_the_whole(task, monkeypatch):
    whole = cases(task, "past_the_tile", seeds=(1,))[0].reference
    monkeypatch.setattr(family_module(task), "SCORES", 7 * 193)
    for name, piece in cases(task, "past_the_tile", seeds=(1,))[0].reference.items():
        np.testing.assert_allclose(piece, whole[name], rtol=1e-12, atol=1e-14)


@each(ATTENTION)
def test_fused_attention_passes_with_a_margin_of_two(task):
    for case in cases(task):
        assert not case.misses(attention(case), margin=2), case.workload.name


@each(ATTENTION)
def test_the_lower_precision_of_operands_is_rejected(task):
    lower = bf16 if "fp16" in task.member else e4m3
    for case in cases(task):
        assert "o" in case.misses(attention(case, lower=lower)), case.workload.name


@each(ATTENTION)
def test_two_percent_of_the_keys_left_out_is_rejected(task):
    for case in cases(task, "long", "past_the_tile", "one_query", "equal_weights"):
        assert case.misses(attention(case, skipped=0.02)) == ["o", "lse"], case.workload.name


@each(ATTENTION)
def test_a_shifted_log_sum_exp_is_rejected(task):
    for case in cases(task):
        honest = attention(case)
        assert case.misses({**honest, "lse": honest["lse"] * f32(1.0001)}) == ["lse"], case.workload.name
        assert case.misses({**honest, "lse": honest["lse"] + f32(0.001) * np.abs(honest["lse"]).max()}) == [
            "lse"
        ]
        assert case.misses({**honest, "lse": honest["lse"] / f32(math.log(2))}) == ["lse"]


@each(ATTENTION)
def test_a_wrong_scale_in_one_head_is_rejected(task):
    for case in cases(task, "grouped_heads", "other_scale", "odd"):
        scales = np.full(case.sizes["q_heads"], case.workload.scalars["scale"], f32)
        scales[-1] *= f32(1.02)
        assert case.misses(attention(case, scales=scales)) == ["o", "lse"], case.workload.name


@each([t for t in ATTENTION if t.constants["causal"]])
def test_a_mask_at_the_wrong_corner_is_rejected(task):
    for case in cases(task, "past_the_tile", "grouped_heads", "long"):
        assert case.misses(attention(case, top_left=True)) == ["o", "lse"], case.workload.name


@each(ATTENTION)
def test_queries_see_a_key_in_every_workload(task):
    for workload in task.workloads:
        sizes = task.sizes(workload)
        assert sizes["kv_len"] >= sizes["q_len"], workload.name
        assert sizes["q_heads"] % sizes["kv_heads"] == 0, workload.name
        assert workload.scalars["scale"] > 0, workload.name


@each(ATTENTION)
def test_flops_count_visible_pairs(task):
    sizes = {"batch": 2, "q_heads": 3, "q_len": 5, "kv_len": 9, **task.constants}
    pairs = int(np.tri(5, 9, 4).sum()) if task.constants["causal"] else 45
    assert family_module(task).flops(sizes) == 4 * 2 * 3 * pairs * task.constants["head_dim"]
