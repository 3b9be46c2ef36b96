"""Products with a twist: references against plain ones, and bounds that tell honest arithmetic from wrong.

Everything is simulated with NumPy; `hercules lint` repeats it with compiled candidates.
"""

import math

import numpy as np
import pytest
from small_cases import bf16, cases, e4m3, f32, fp16, tasks_of

from cudahercules.task.load import family_module


def each(tasks):
    return pytest.mark.parametrize("task", tasks, ids=[t.member for t in tasks])


SPARSE = tasks_of("kernel/gemm_sparse24", "hopper")
TOPK = tasks_of("kernel/gemm_topk_softmax", "hopper")
PERMUTE = tasks_of("kernel/gemm_permute")
REDUCE = tasks_of("kernel/gemm_reduce_k")


# --- gemm_sparse24 -------------------------------------------------------------------------------

PLACES = ["01", "02", "03", "12", "13", "23"]


def sparse_product(case, lower=f32, sums=f32, group=16, kept=lambda v: v, places=PLACES):
    """x times the weights, ``group`` elements of x at a time."""
    value, pattern = lower(kept(case.inputs["value"].astype(f32))), case.inputs["pattern"]
    outputs, quads = pattern.shape
    weights = np.zeros((outputs, quads, 4), f32)
    for o in range(outputs):
        for q in range(quads):
            for i, place in enumerate(places[pattern[o, q]]):
                weights[o, q, int(place)] = value[o, q, i]
    x, weights = (v.reshape(v.shape[0], -1) for v in (lower(case.inputs["x"].astype(f32)), weights))
    total = np.zeros((x.shape[0], outputs), f32)
    for p in range(0, x.shape[1], group):
        total = sums(total + x[:, p : p + group] @ weights[:, p : p + group].T)
    return {"y": total}


@each(SPARSE)
def test_sparse_products_agree_with_plain_ones(task):
    for case in cases(task, "smoke", "one_quad", seeds=(1,)):
        x, value = (case.inputs[name].astype(float) for name in ("x", "value"))
        for t in range(x.shape[0]):
            for o, row in enumerate(case.inputs["pattern"].tolist()):
                terms = [
                    value[o, q, i] * x[t, q, int(place)]
                    for q, code in enumerate(row)
                    for i, place in enumerate(PLACES[code])
                ]
                assert case.reference["y"][t, o] == pytest.approx(math.fsum(terms), rel=1e-10, abs=1e-12)


@each(SPARSE)
def test_pieces_of_the_outputs_agree_with_the_whole(task, monkeypatch):
    whole = cases(task, "odd", seeds=(1,))[0].reference["y"]
    monkeypatch.setattr(family_module(task), "WEIGHTS", 5 * 148)
    np.testing.assert_allclose(cases(task, "odd", seeds=(1,))[0].reference["y"], whole, rtol=1e-12)


@each(SPARSE)
def test_sparse_products_pass_with_a_margin_of_two(task):
    for case in cases(task, seeds=(11,)):
        assert np.abs(case.reference["y"]).max() < 60000, case.workload.name
        assert not case.misses(sparse_product(case), margin=2), case.workload.name


@each(SPARSE)
def test_bf16_operands_fp16_sums_pruning_and_wrong_places_are_rejected(task):
    for case in cases(task, "odd", "one_token", "past_the_tile", "scaled_quads", "outliers", seeds=(2,)):
        assert case.misses(sparse_product(case, lower=bf16)), case.workload.name
        pruned = sparse_product(case, kept=lambda v: np.where(np.abs(v) < 0.1, f32(0), v))
        assert case.misses(pruned), case.workload.name
        mirrored = [str(3 - int(p[1])) + str(3 - int(p[0])) for p in PLACES]
        assert case.misses(sparse_product(case, places=mirrored)), case.workload.name
    for case in cases(task, "deep", seeds=(3,)):
        assert case.misses(sparse_product(case, sums=fp16))


# --- gemm_topk_softmax ---------------------------------------------------------------------------


def chosen_softmax(case, lower=f32, logits=f32, top=None, equals_from="left"):
    """Products, then column after column in the order of a sort of pairs."""
    alpha = f32(case.workload.scalars["alpha"])
    products = lower(case.inputs["a"]).astype(f32) @ lower(case.inputs["b"]).astype(f32).T
    products = logits(products * alpha)
    out = np.zeros(products.shape, f32)
    for row, result in zip(products, out, strict=True):
        columns = range(len(row)) if equals_from == "left" else range(len(row))[::-1]
        best = sorted(columns, key=lambda j: -row[j])[: top or case.sizes["top"]]
        weights = np.exp(row[best] - row[best[0]], dtype=f32)
        result[best] = weights / weights.sum(dtype=f32)
    return {"d": out}


@each(TOPK)
def test_chosen_softmax_agrees_with_a_plain_one(task):
    for case in cases(task, "smoke", "many_equal", "few_columns", seeds=(1,)):
        a, b = (case.inputs[name].astype(int).tolist() for name in "ab")
        for i, row in enumerate(a):
            products = [sum(x * y for x, y in zip(row, column, strict=True)) for column in b]
            order = sorted((-value, j) for j, value in enumerate(products))[: case.sizes["top"]]
            weights = {j: math.exp(case.workload.scalars["alpha"] * (order[0][0] - v)) for v, j in order}
            total = math.fsum(weights.values())
            for j, got in enumerate(case.reference["d"][i]):
                assert got == pytest.approx(weights.get(j, 0.0) / total, rel=1e-12)


@each(TOPK)
def test_chosen_softmax_passes_with_a_margin_of_two(task):
    for case in cases(task, seeds=(11,)):
        assert not case.misses(chosen_softmax(case), margin=2), case.workload.name


@each(TOPK)
def test_every_sum_is_exact_in_fp32(task):
    """Values are integers; in timed workloads sums are 15 standard deviations or more below 2^24."""
    for case in cases(task, seeds=(1,)):
        sizes = np.abs(case.inputs["a"].astype(float)) @ np.abs(case.inputs["b"].astype(float)).T
        assert np.array_equal(case.inputs["a"], np.round(case.inputs["a"].astype(f32)))
        assert sizes.max() < 2**24 or case.workload.name == "deep", case.workload.name
    for workload in task.workloads:
        deviation = math.sqrt(workload.dimensions["k"] * (511 * 512 / 3) * (63 * 64 / 3))
        assert 15 * deviation < 2**24, workload.name


@each(TOPK)
def test_wrong_choices_are_rejected(task):
    for case in cases(task, "odd", "deep", "one_more_column", seeds=(2,)):
        assert case.misses(chosen_softmax(case, lower=bf16)), case.workload.name
        assert case.misses(chosen_softmax(case, top=case.sizes["top"] - 1)), case.workload.name
        assert case.misses({"d": bf16(chosen_softmax(case)["d"])}), case.workload.name
    for case in cases(task, "all_equal", "many_equal", "repeated_columns", seeds=(2,)):
        assert case.misses(chosen_softmax(case, equals_from="right")), case.workload.name


# --- gemm_permute --------------------------------------------------------------------------------


def permuted_product(case, lower=f32, sums=f32, group=16, cell=None):
    """The product, then element after element to its place; ``cell`` changes what a row and a column mean."""
    tokens, heads, width, k = (case.sizes[n] for n in ("tokens", "heads", "head_dim", "k"))
    a, b = lower(case.inputs["a"].astype(f32)), lower(case.inputs["b"].astype(f32))
    a, b = a.reshape(-1, k), b.reshape(k, -1)
    total = np.zeros((a.shape[0], b.shape[1]), f32)
    for p in range(0, k, group):
        total = sums(total + a[:, p : p + group] @ b[p : p + group])
    out = np.full(case.reference["d"].shape, np.nan, f32)
    for i, row in enumerate(total):
        for j, value in enumerate(row):
            place = [i // tokens, i % tokens, j // (heads * width), j // width % heads, j % width]
            at, t, part, head, e = place if cell is None else cell(i, j, *place)
            if case.task.member == "heads":
                out[part, at, head, t, e] = value
            elif case.task.member == "heads_transposed":
                out[part, at, head, e, t] = value
            else:
                out[t, at, part, head, e] = value
    return {"d": out}


@each(PERMUTE)
def test_permuted_products_agree_with_plain_ones(task):
    for case in cases(task, "smoke", seeds=(1,)):
        a, b = (case.inputs[name].astype(float) for name in "ab")
        for (at, t, part, head, e), got in np.ndenumerate(
            case.reference["d"].transpose(np.argsort(family_module(task).ORDERS[task.constants["order"]]))
        ):
            terms = [x * y for x, y in zip(a[at, t], b[:, part, head, e], strict=True)]
            assert got == pytest.approx(math.fsum(terms), rel=1e-10, abs=1e-12)


@each(PERMUTE)
def test_permuted_products_pass_with_a_margin_of_two(task):
    for case in cases(task, seeds=(11,)):
        assert not case.misses(permuted_product(case), margin=2), case.workload.name


@each(PERMUTE)
def test_bf16_operands_fp16_sums_and_wrong_places_are_rejected(task):
    for case in cases(task, "odd", "past_the_tile", "token_scaled", seeds=(2,)):
        assert case.misses(permuted_product(case, lower=bf16)), case.workload.name
    for case in cases(task, "deep", seeds=(3,)):
        assert case.misses(permuted_product(case, sums=fp16))
    for case in cases(task, "odd", seeds=(4,)):
        sizes = case.sizes

        def tokens_first(i, j, at, t, part, head, e, batch=sizes["batch"]):
            return i % batch, i // batch, part, head, e

        def heads_first(i, j, at, t, part, head, e, parts=sizes["parts"], width=sizes["head_dim"]):
            return at, t, j // width % parts, j // width // parts, e

        for cell in (tokens_first, heads_first):
            assert case.misses(permuted_product(case, cell=cell)) == ["d"]


# --- gemm_reduce_k -------------------------------------------------------------------------------

STORED = {"fp16": fp16, "bf16": bf16}
LOWER = {"fp16": bf16, "bf16": e4m3}


def product_and_sums(case, lower=f32, products=f32, sums=f32, group=16):
    """Both, ``group`` rows of A and B at a time; ``products`` and ``sums`` round the running sums."""
    a, b = lower(case.inputs["a"].astype(f32)), lower(case.inputs["b"].astype(f32))
    c, total = np.zeros((a.shape[1], b.shape[1]), f32), np.zeros(a.shape[1], f32)
    for p in range(0, a.shape[0], group):
        c = products(c + a[p : p + group].T @ b[p : p + group])
        total = sums(total + a[p : p + group].sum(axis=0, dtype=f32))
    return {"c": c, "sum": total}


@each(REDUCE)
def test_products_with_sums_agree_with_plain_ones(task):
    for case in cases(task, "smoke", "outer_product", seeds=(1,)):
        a, b = (case.inputs[name].astype(float).T for name in "ab")
        for i, row in enumerate(a):
            assert case.reference["sum"][i] == pytest.approx(math.fsum(row), rel=1e-11, abs=1e-13)
            for j, column in enumerate(b):
                terms = [x * y for x, y in zip(row, column, strict=True)]
                assert case.reference["c"][i, j] == pytest.approx(math.fsum(terms), rel=1e-10, abs=1e-12)


@each(REDUCE)
def test_products_with_sums_pass_with_a_margin_of_two(task):
    for case in cases(task, seeds=(11,)):
        assert max(np.abs(case.reference[name]).max() for name in ("c", "sum")) < 60000, case.workload.name
        assert not case.misses(product_and_sums(case), margin=2), case.workload.name


@each(REDUCE)
def test_lower_operands_and_sums_in_few_bits_are_rejected(task):
    stored, lower = STORED[task.member], LOWER[task.member]
    for case in cases(task, "odd", "past_the_tile", "token_scaled", "outliers", "deep", seeds=(2,)):
        assert case.misses(product_and_sums(case, lower=lower)) == ["c", "sum"], case.workload.name
    for case in cases(task, "deep", seeds=(3,)):
        assert case.misses(product_and_sums(case, products=stored)) == ["c"]
        assert case.misses(product_and_sums(case, sums=stored, group=1)) == ["sum"]
