"""Batched products, with strides and by tables: references against plain loops, and bounds that bite."""

import math

import array_api_compat.numpy as xnp
import ml_dtypes
import numpy as np
import pytest

from cudahercules.judge.checks import check_output
from cudahercules.judge.verdict import OutputCheck
from cudahercules.task.inputs import generate
from cudahercules.task.load import BUNDLED, family_module, load_family
from cudahercules.task.model import WorkloadRole

f32 = np.float32
SMALL = (WorkloadRole.SMOKE, WorkloadRole.CHECK)
STRIDED = [t for t in load_family(BUNDLED / "kernel/gemm_batched") if t.target == "hopper"]
(NAMED,) = load_family(BUNDLED / "kernel/gemm_pointer_array")
EACH = pytest.mark.parametrize("task", [*STRIDED, NAMED], ids=lambda t: t.id.split("/", 1)[1])
AVERAGED = ("more_than_65535", "single_columns")  # terms of one sign: errors average out


def through(dtype):
    return lambda x: np.asarray(x, f32).astype(dtype).astype(f32)


def tf32(x):
    """Rounded to nearest, ties away from zero, at bit 13."""
    bits = np.asarray(x, f32).view(np.uint32)
    return ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(f32)


SINGLE = through(f32)
LOWER = {"fp32": tf32, "bf16": through(ml_dtypes.float8_e4m3fn), "fp16": through(ml_dtypes.bfloat16)}


class Case:
    """One small workload: each product's operands in float64, and the reference."""

    def __init__(self, task, workload, seed=1):
        self.task, self.workload, self.sizes = task, workload, task.sizes(workload)
        x = {t.name: generate(task, t, workload, seed) for t in task.inputs}
        x = {n: v.astype(np.int64 if v.dtype.kind == "i" else np.float64) for n, v in x.items()}
        self.inputs = x
        self.a, self.b = (x[n][x[f"{n}_of"]] if f"{n}_of" in x else x[n] for n in "ab")
        self.reference = family_module(task).reference(x, self.sizes, {}, xnp)["c"]

    def product(self, lower=SINGLE, group=8, sums=SINGLE):
        """``group`` terms of each sum at a time, the running sum passed through ``sums``."""
        a, b = lower(self.a), lower(self.b)
        total = np.zeros(self.reference.shape, f32)
        for p in range(0, a.shape[2], group):
            total = sums(total + a[:, :, p : p + group] @ b[:, p : p + group])
        return total

    def accepts(self, c, margin=1.0):
        (tensor,) = self.task.outputs
        tolerance = self.task.tolerance["c"].tightened(margin)
        stored = np.asarray(c, f32).astype(tensor.dtype.numpy)
        return isinstance(check_output(tensor, tolerance, stored, self.reference), OutputCheck)


def cases(task, *names):
    return [Case(task, w) for w in task.workloads_of(*SMALL) if not names or w.name in names]


@EACH
def test_batched_reference_agrees_with_a_plain_one(task):
    for case in cases(task):
        assert case.reference.shape == tuple(case.sizes[d] for d in ("batch", "m", "n"))
        last = case.sizes["batch"] - 1
        for t in {0, last // 2, last}:
            for i, j in ((0, 0), (case.sizes["m"] - 1, case.sizes["n"] - 1)):
                terms = zip(case.a[t, i].tolist(), case.b[t, :, j].tolist(), strict=True)
                expected = math.fsum(p * q for p, q in terms)
                assert case.reference[t, i, j] == pytest.approx(expected, rel=1e-11, abs=1e-12)


def test_named_products_in_pieces_agree_with_the_whole(monkeypatch):
    (whole,) = cases(NAMED, "odd")
    monkeypatch.setattr(family_module(NAMED), "GATHERED", 3 * 40 * 56)
    (pieces,) = cases(NAMED, "odd")
    np.testing.assert_array_equal(pieces.reference, whole.reference)


@EACH
def test_honest_sums_pass_with_a_margin_of_two(task):
    for case in cases(task):
        assert case.accepts(case.product(), 2), case.workload.name


@EACH
def test_the_next_lower_precision_is_rejected(task):
    for case in cases(task):
        if case.workload.name not in AVERAGED:
            assert not case.accepts(case.product(LOWER[task.member])), case.workload.name


@EACH
def test_low_precision_sums_are_rejected(task):
    sums = np.float16 if task.member == "fp16" else ml_dtypes.bfloat16
    for case in cases(task, "deep"):
        assert not case.accepts(case.product(group=16, sums=through(sums)))


def test_tables_stay_inside_and_repeat():
    for workload in NAMED.workloads:
        for name in "ab":
            values = NAMED.distribution(next(t for t in NAMED.tensors if t.name == f"{name}_of"), workload)
            high = values.value if values.kind == "constant" else values.high
            assert high == workload.dimensions[f"{name}_matrices"] - 1  # the last one may be named
    case = Case(NAMED, next(w for w in NAMED.workloads if w.name == "repeats"))
    assert len(np.unique(case.inputs["a_of"])) == 2 < case.sizes["batch"]
