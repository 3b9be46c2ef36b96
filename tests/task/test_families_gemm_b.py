"""Families of products with few bits: references against plain ones, bounds that tell honest from wrong.

Everything is simulated with NumPy; `hercules lint` repeats it with compiled candidates.
"""

import math

import numpy as np
import pytest
from small_cases import bf16, cases, e4m3, f32, tasks_of

from cudahercules.task.load import family_module


def each(tasks):
    return pytest.mark.parametrize("task", tasks, ids=[t.member for t in tasks])


MQA = tasks_of("kernel/mqa_logits", "hopper")
MIXED = tasks_of("kernel/gemm_mixed_dtype", "hopper")
GROUPED = tasks_of("kernel/gemm_mixed_dtype_grouped", "hopper")


# --- mqa_logits ----------------------------------------------------------------------------------


def power(x):
    """The power of two below each magnitude; 0 for 0."""
    _, exponent = np.frexp(np.abs(x))
    return np.where(x == 0, 0.0, np.ldexp(1.0, exponent - 1))


def fp8_warpgroup_product(a, b):
    """a (m, k) times b (n, k) transposed, as FP8 warpgroup products of an H200 sum: 32 along k at a time, cut
    toward zero 13 bits below the largest exponent among products and old sum, and the sum to 13 bits."""
    total = np.zeros((a.shape[0], b.shape[0]))
    a_power, b_power = (np.where(x == 0, 0.0, np.maximum(power(x), 2.0**-6)) for x in (a, b))
    for p in range(0, a.shape[1], 32):
        step = slice(p, p + 32)
        products = a[:, None, step] * b[None, :, step]
        largest = (a_power[:, None, step] * b_power[None, :, step]).max(axis=2)
        unit = np.maximum(np.maximum(largest, power(total)), 1e-300) * 2.0**-13
        total = (np.trunc(total / unit) + np.trunc(products / unit[..., None]).sum(axis=2)) * unit
        unit = np.maximum(power(total), 1e-300) * 2.0**-13
        total = np.trunc(total / unit) * unit
    return total


def exact_product(a, b):
    return a @ b.T


def indexer(case, product=exact_product, scores=f32, weights=f32, shared=1):
    """One query after the other; ``shared`` queries in a row use the range of their first."""
    sizes = case.sizes
    x = {name: values.astype(float) for name, values in case.inputs.items()}
    logits = np.full((sizes["queries"], sizes["columns"]), -np.inf, f32)
    for i in range(sizes["queries"]):
        range_of = i // shared * shared
        seen = slice(int(x["first"][range_of]), int(x["end"][range_of]))
        score = np.maximum(scores(product(x["q"][i], x["k"][seen])), f32(0))
        logits[i, seen] = f32(weights(x["w"][i]) @ score) * x["k_scale"][seen].astype(f32)
    return {"logits": logits}


@each(MQA)
def test_indexer_scores_agree_with_plain_ones(task):
    for case in cases(task, "smoke", "one_key", seeds=(1,)):
        x = {name: values.astype(float).tolist() for name, values in case.inputs.items()}
        for i, row in enumerate(case.reference["logits"]):
            for j, got in enumerate(row):
                if not x["first"][i] <= j < x["end"][i]:
                    assert got == -math.inf
                    continue
                scores = [math.fsum(a * b for a, b in zip(h, x["k"][j], strict=True)) for h in x["q"][i]]
                total = math.fsum(w * s for w, s in zip(x["w"][i], scores, strict=True) if s > 0)
                assert got == pytest.approx(x["k_scale"][j] * total, rel=1e-11, abs=1e-12)


@each(MQA)
def test_pieces_of_the_queries_agree_with_the_whole_indexer(task, monkeypatch):
    whole = cases(task, "ragged", seeds=(1,))[0].reference["logits"]
    monkeypatch.setattr(family_module(task), "SCORES", 7 * 77)
    np.testing.assert_allclose(cases(task, "ragged", seeds=(1,))[0].reference["logits"], whole, rtol=1e-13)


@each(MQA)
@pytest.mark.parametrize("product", [exact_product, fp8_warpgroup_product])
def test_indexer_scores_pass_with_a_margin_of_two(task, product):
    for case in cases(task, seeds=(11,)):
        assert not case.misses(indexer(case, product), margin=2), case.workload.name


@each(MQA)
def test_bf16_anywhere_behind_the_product_is_rejected(task):
    for case in cases(
        task, "smoke", "odd", "full", "long_rows", "beyond_fp16", "repeated_keys", "head_scaled", seeds=(2,)
    ):
        assert case.misses(indexer(case, scores=bf16)), case.workload.name
        assert case.misses(indexer(case, weights=bf16)), case.workload.name
        honest = indexer(case)["logits"]
        assert case.misses({"logits": bf16(honest)}), case.workload.name


@each(MQA)
def test_a_range_that_queries_share_is_rejected(task):
    for case in cases(task, "odd", "ragged", "short_ranges", seeds=(3,)):
        assert case.misses(indexer(case, shared=2)), case.workload.name


@each(MQA)
def test_ranges_never_cross_and_some_are_empty(task):
    empty = 0
    for workload in task.workloads:
        first, end = (task.distribution(t, workload) for t in task.tensors if t.name in ("first", "end"))
        low, high = (getattr(first, "low", None), getattr(first, "high", None))
        low, high = (low, high) if low is not None else (first.value, first.value)
        last, most = (getattr(end, "low", None), getattr(end, "high", None))
        last, most = (last, most) if last is not None else (end.value, end.value)
        assert 0 <= low <= high <= last <= most <= workload.dimensions["keys"], workload.name
    for case in cases(task, "short_ranges", seeds=(4,)):
        empty += int((case.inputs["first"] == case.inputs["end"]).sum())
    assert empty


# --- gemm_mixed_dtype ----------------------------------------------------------------------------


def weight(case, j, p):
    """Weight p of column j without its scale, decoded by looking at single bytes."""
    stored = case.inputs["w"][j].reshape(-1)
    if case.task.member != "int4":
        return float(stored[p])
    nibble = int(stored[p // 2]) >> (4 if p % 2 else 0) & 15
    return float(nibble - 16 if nibble & 8 else nibble)


def mixed_product(case, activations=f32, weights=None, sums=f32):
    """One group after the other. ``weights`` rounds scaled weights; without it a group's sum is scaled, which
    ``sums`` rounds after every four products."""
    m, n, groups = (case.sizes[name] for name in ("m", "n", "groups"))
    a = activations(case.inputs["a"].astype(f32))
    q = np.array([[weight(case, j, p) for p in range(groups * 128)] for j in range(n)], f32)
    q, total = q.reshape(n, groups, 128), np.zeros((m, n), f32)
    for g in range(groups):
        scale = case.inputs["scale"][g].astype(f32)[:, None]
        if weights is not None:
            total += a[:, g] @ weights(q[:, g] * scale).T
            continue
        part = np.zeros_like(total)
        for p in range(0, 128, 4):
            part = sums(part + a[:, g, p : p + 4] @ q[:, g, p : p + 4].T)
        total = sums(total + part * scale[:, 0])
    return {"c": total}


@each(MIXED)
def test_products_with_weights_of_few_bits_agree_with_plain_ones(task):
    for case in cases(task, "smoke", seeds=(1,)):
        a, scale = (case.inputs[name].astype(float) for name in ("a", "scale"))
        for i, row in enumerate(case.reference["c"]):
            for j, got in enumerate(row):
                terms = [
                    float(x) * weight(case, j, p) * scale[p // 128, j] for p, x in enumerate(a[i].reshape(-1))
                ]
                assert got == pytest.approx(math.fsum(terms), rel=1e-9, abs=1e-12)


@each(MIXED)
def test_pieces_of_the_columns_agree_with_the_whole(task, monkeypatch):
    whole = cases(task, "odd", seeds=(1,))[0].reference["c"]
    monkeypatch.setattr(family_module(task), "COLUMNS", 5 * 384)
    np.testing.assert_allclose(cases(task, "odd", seeds=(1,))[0].reference["c"], whole, rtol=1e-12)


@each(MIXED)
@pytest.mark.parametrize("weights", [None, bf16])
def test_scales_of_sums_and_of_weights_pass_with_a_margin_of_two(task, weights):
    for case in cases(task, seeds=(11,)):
        assert not case.misses(mixed_product(case, weights=weights), margin=2), case.workload.name


@each(MIXED)
def test_e4m3_activations_and_bf16_sums_are_rejected(task):
    for case in cases(task, "odd", "deep", "one_row", "wide_scales", "outliers", seeds=(2,)):
        assert case.misses(mixed_product(case, activations=e4m3)), case.workload.name
    for case in cases(task, "deep", seeds=(3,)):
        assert case.misses(mixed_product(case, sums=bf16)), case.workload.name


# --- gemm_mixed_dtype_grouped --------------------------------------------------------------------


def nibbles(task, stored):
    """Weights without scales from their bytes, along the last axis."""
    if task.member != "int4":
        return stored.astype(f32)
    low, high = (stored & 15).astype(np.int32), (stored >> 4).astype(np.int32)
    pairs = np.stack([low, high], axis=-1).reshape(*stored.shape[:-1], -1)
    return np.where(pairs & 8, pairs - 16, pairs).astype(f32)


def grouped_product(case, activations=f32, weights=f32, expert_of=None):
    """Row after row, each with the weights of its expert."""
    lengths, rows = case.inputs["length"].tolist(), case.sizes["rows"]
    experts = (
        [e for e, length in enumerate(lengths) for _ in range(length)] if expert_of is None else expert_of
    )
    scale = np.repeat(case.inputs["scale"].astype(f32), 128, axis=1)  # (experts, k, n)
    q = nibbles(case.task, case.inputs["w"]).reshape(len(lengths), case.sizes["n"], -1)
    a = activations(case.inputs["a"].astype(f32)).reshape(rows, -1)
    return {"c": np.stack([weights(q[e] * scale[e].T) @ a[i] for i, e in enumerate(experts)])}


@each(GROUPED)
def test_grouped_products_agree_with_plain_ones(task):
    for case in cases(task, "smoke", "many_empty", seeds=(1,)):
        scale, q = case.inputs["scale"].astype(float), nibbles(task, case.inputs["w"]).astype(float)
        ends = np.cumsum(case.inputs["length"])
        assert ends[-1] == case.sizes["rows"]
        for i in (0, case.sizes["rows"] - 1):
            expert = int(np.searchsorted(ends, i, side="right"))
            x = case.inputs["a"][i].astype(float).reshape(-1)
            for j in range(case.sizes["n"]):
                terms = [
                    x[p] * q[expert, j, p // 128, p % 128] * scale[expert, p // 128, j] for p in range(x.size)
                ]
                assert case.reference["c"][i, j] == pytest.approx(math.fsum(terms), rel=1e-9, abs=1e-12)


@each(GROUPED)
def test_grouped_products_pass_with_a_margin_of_two(task):
    for case in cases(task, seeds=(11,)):
        assert not case.misses(grouped_product(case), margin=2), case.workload.name
        assert not case.misses(grouped_product(case, weights=bf16), margin=2), case.workload.name


@each(GROUPED)
def test_e4m3_activations_and_wrong_experts_are_rejected(task):
    for case in cases(task, "odd", "many_empty", "skewed", "wide_scales", "outliers", seeds=(2,)):
        rows, experts = case.sizes["rows"], case.sizes["experts"]
        assert case.misses(grouped_product(case, activations=e4m3)), case.workload.name
        even = [i * experts // rows for i in range(rows)]
        assert case.misses(grouped_product(case, expert_of=even)), case.workload.name


@each(GROUPED)
def test_lengths_add_up_to_the_rows(task):
    (length,) = (t for t in task.tensors if t.name == "length")
    for workload in task.workloads:
        values, sizes = task.distribution(length, workload), workload.dimensions
        total = values.total if values.kind == "partition" else values.value * sizes["experts"]
        assert total == sizes["rows"], workload.name
