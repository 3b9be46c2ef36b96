"""Products of special matrices: references against plain ones, bounds that tell honest arithmetic from wrong.

Everything is simulated with NumPy; `hercules lint` repeats it with compiled candidates.
"""

import array_api_compat.numpy as xnp
import numpy as np
import pytest

from cudahercules.judge.checks import check_output
from cudahercules.judge.operands import widen
from cudahercules.judge.verdict import OutputCheck
from cudahercules.task.inputs import generate
from cudahercules.task.load import BUNDLED, family_module, load_family
from cudahercules.task.model import WorkloadRole

SMALL = (WorkloadRole.SMOKE, WorkloadRole.CHECK)
SEEDS = (21, 22)


def tasks_of(family):
    tasks = load_family(BUNDLED / family)
    return [t for t in tasks if t.target == tasks[0].target]


def each(tasks):
    return pytest.mark.parametrize("task", tasks, ids=[t.member for t in tasks])


class Case:
    """One small workload with inputs and reference."""

    def __init__(self, task, workload, seed):
        self.task, self.workload, self.sizes = task, workload, task.sizes(workload)
        self.scalars = workload.scalars
        self.inputs = {t.name: generate(task, t, workload, seed) for t in task.inputs}
        wide = {t.name: widen(t, self.inputs[t.name]) for t in task.inputs}
        self.reference = family_module(task).reference(wide, self.sizes, self.scalars, xnp)

    def misses(self, margin=1.0, **outputs):
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


def rounded(x, bits):
    """Values with so many significant bits (11: TF32), in their own type."""
    mantissa, exponent = np.frexp(x)
    return np.ldexp(np.round(np.ldexp(mantissa, bits)), exponent - bits).astype(x.dtype)


def product(a, b, group=1):
    """The product, ``group`` terms of the sum at a time, in the operands' own precision."""
    total = np.zeros((a.shape[0], b.shape[1]), np.result_type(a, b))
    for p in range(0, a.shape[1], group):
        total = total + a[:, p : p + group] @ b[p : p + group]
    return total


def lower_precision(x):
    return x.astype(np.float32).astype(x.dtype) if x.dtype == np.float64 else rounded(x, 11)


# --- syrk ----------------------------------------------------------------------------------------

SYRK = tasks_of("kernel/syrk")


def syrk(case, lower=lambda x: x, group=1):
    a, c = lower(case.inputs["a"]), case.inputs["c"]
    alpha, beta = (a.dtype.type(case.scalars[s]) for s in ("alpha", "beta"))
    return np.where(np.tri(*c.shape, dtype=bool), alpha * product(a, a.T, group) + beta * c, c)


@each(SYRK)
def test_syrk_agrees_with_loops(task):
    for case in cases(task, "outer_product", "downdate", seeds=(1,)):
        a, c = (case.inputs[n].astype(np.float64) for n in "ac")
        expected = c.copy()
        for i in range(len(a)):
            for j in range(i + 1):
                expected[i, j] = case.scalars["alpha"] * sum(a[i] * a[j]) + case.scalars["beta"] * c[i, j]
        np.testing.assert_allclose(case.reference["c"], expected, rtol=1e-11, atol=1e-13)


@each(SYRK)
def test_honest_updates_pass_with_a_margin_of_two(task):
    for case in cases(task):
        assert not case.misses(2, c=syrk(case)), case.workload.name


@each(SYRK)
def test_updates_in_lower_precision_are_rejected(task):
    for case in cases(task):
        assert case.misses(c=syrk(case, lower_precision, group=8)), case.workload.name


@each(SYRK)
def test_an_element_above_the_diagonal_that_changes_is_seen(task):
    for case in cases(task, "odd", "fresh", "low_rank"):
        c = syrk(case)
        c[3, 4] += c.dtype.type(0.01) * np.sqrt(np.mean(c[3] ** 2))
        assert case.misses(c=c), case.workload.name


@each(SYRK)
def test_two_percent_of_the_sum_left_out_is_rejected(task):
    for case in cases(task, "deep", "positive", "past_the_tile"):
        a = case.inputs["a"].copy()
        a[:, -max(1, a.shape[1] // 50) :] = 0
        case.inputs["a"] = a
        assert case.misses(c=syrk(case, group=8)), case.workload.name


# --- trmm ----------------------------------------------------------------------------------------

TRMM = tasks_of("kernel/trmm")


def trmm(case, lower=lambda x: x, group=1):
    a, b = np.tril(lower(case.inputs["a"])), lower(case.inputs["b"])
    return a.dtype.type(case.scalars["alpha"]) * product(a, b, group)


@each(TRMM)
def test_trmm_agrees_with_loops(task):
    for case in cases(task, "smoke", "two_rows", seeds=(1,)):
        a, b = (case.inputs[n].astype(np.float64) for n in "ab")
        expected = np.zeros_like(b)
        for i in range(len(a)):
            for p in range(i + 1):
                expected[i] += case.scalars["alpha"] * a[i, p] * b[p]
        np.testing.assert_allclose(case.reference["c"], expected, rtol=1e-11, atol=1e-13)


@each(TRMM)
def test_honest_triangular_products_pass_with_a_margin_of_two(task):
    for case in cases(task):
        assert not case.misses(2, c=trmm(case)), case.workload.name


@each(TRMM)
def test_triangular_products_in_lower_precision_are_rejected(task):
    for case in cases(task):
        assert case.misses(c=trmm(case, lower_precision, group=8)), case.workload.name


@each(TRMM)
def test_one_number_above_the_diagonal_that_counts_is_seen(task):
    for case in cases(task, "odd", "past_the_tile", "low_rank"):
        c, scale = trmm(case), case.inputs["a"].dtype.type(case.scalars["alpha"])
        c[40] += scale * case.inputs["a"][40, 41] * case.inputs["b"][41]
        assert case.misses(c=c), case.workload.name
