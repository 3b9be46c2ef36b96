"""gemm in lower precisions, and gemm_softmax: references against plain ones, and bounds that tell honest
arithmetic from wrong.

Everything is simulated with NumPy in single precision; `hercules lint` repeats it with compiled candidates.
"""

import math

import numpy as np
import pytest
from small_cases import bf16, cases, e4m3, f32, fp16, fp32, tasks_of

from cudahercules.judge.bundled import bundled
from cudahercules.task.load import BUNDLED, family_module, load_family


def each(tasks):
    return pytest.mark.parametrize("task", tasks, ids=[t.member for t in tasks])


GEMM = tasks_of("kernel/gemm")
SOFTMAX = tasks_of("kernel/gemm_softmax")


def truncated(x):
    """What tensor cores make of an fp32 operand in TF32: the low 13 bits are not read."""
    return (np.asarray(x, f32).view(np.uint32) & np.uint32(0xFFFFE000)).view(f32)


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


@pytest.mark.parametrize(("task", "sums"), [(FP16, fp16), (BF16, bf16), (TF32, fp16)], ids=str)
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
        assert not case.misses(softmax(case, products=fp16), margin=2), case.workload.name


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
