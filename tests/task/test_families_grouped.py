"""Grouped products: references against plain loops over rows, lengths that fit, bounds that bite."""

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

SMALL = (WorkloadRole.SMOKE, WorkloadRole.CHECK)
(BF16,) = load_family(BUNDLED / "kernel/gemm_grouped")
(FP8,) = load_family(BUNDLED / "kernel/gemm_grouped_fp8")
UNIT = {BF16.id: ("group_rows", 1), FP8.id: ("group_tiles", 128)}
BOTH = pytest.mark.parametrize("task", [BF16, FP8], ids=["bf16", "fp8"])


def bf16(x):
    return np.asarray(x, np.float32).astype(ml_dtypes.bfloat16).astype(np.float32)


def e4m3(x):
    return np.asarray(x, np.float32).astype(ml_dtypes.float8_e4m3fn).astype(np.float32)


def e5m2(x):
    return np.asarray(x, np.float32).astype(ml_dtypes.float8_e5m2).astype(np.float32)


class Case:
    """One small workload: operands in float64, the group of every row, and the reference."""

    def __init__(self, task, workload, seed):
        self.task, self.workload, self.sizes = task, workload, task.sizes(workload)
        self.x = {t.name: generate(task, t, workload, seed) for t in task.inputs}
        self.x = {n: v if v.dtype.kind == "i" else v.astype(np.float64) for n, v in self.x.items()}
        lengths, unit = UNIT[task.id]
        self.group = np.repeat(np.arange(self.sizes["groups"]), self.x[lengths] * unit)
        self.reference = family_module(task).reference(self.x, self.sizes, {}, xnp)["c"]

    def operands(self):
        """A and each row's matrix of B, with scales if there are."""
        a, b = self.x["a"], self.x["b"]
        if "a_scale" in self.x:
            block = np.arange(self.sizes["k"]) // 128
            a = a * self.x["a_scale"][:, block]
            b = b * self.x["b_scale"][:, np.arange(self.sizes["n"]) // 128][:, :, block]
        return a, b

    def product(self, lower=lambda x: x, group=None):
        a, b = (lower(x).astype(np.float32) for x in self.operands())
        group = self.group if group is None else group
        return np.stack([b[g] @ row for g, row in zip(group, a, strict=True)])

    def accepts(self, c, margin=1.0):
        (tensor,) = self.task.outputs
        tolerance = self.task.tolerance["c"].tightened(margin)
        stored = np.asarray(c, np.float32).astype(tensor.dtype.numpy)
        return isinstance(check_output(tensor, tolerance, stored, self.reference), OutputCheck)


def cases(task, *names, seed=1):
    return [Case(task, w, seed) for w in task.workloads_of(*SMALL) if not names or w.name in names]


@BOTH
def test_lengths_add_up_in_every_workload(task):
    name, unit = UNIT[task.id]
    tensor = next(t for t in task.tensors if t.name == name)
    for workload in task.workloads:
        values, sizes = task.distribution(tensor, workload), workload.dimensions
        assert values.total * unit == sizes["m"], workload.name
        lengths = generate(task, tensor, workload, 3)
        assert lengths.sum() * unit == sizes["m"] and lengths.min() >= 0
        if "k_blocks" in sizes:
            assert sizes["k_blocks"] == -(-sizes["k"] // 128) and sizes["n_blocks"] == -(-sizes["n"] // 128)
        assert sizes["n"] % 8 == sizes["k"] % 8 == 0


@BOTH
def test_small_workloads_have_empty_and_uneven_groups(task):
    lengths = [np.bincount(c.group, minlength=c.sizes["groups"]) for c in cases(task)]
    assert any((n == 0).any() for n in lengths)
    assert any(n.max() > 3 * n[n > 0].min() for n in lengths)
    assert any(n[0] == 0 and n[-1] > 0 for n in lengths)


@BOTH
def test_reference_agrees_with_a_plain_one_row_by_row(task):
    for case in cases(task):
        a, b = case.operands()
        assert case.reference.shape == (case.sizes["m"], case.sizes["n"])
        for i in range(0, len(a), max(1, len(a) // 5)):
            for j in (0, case.sizes["n"] - 1):
                expected = math.fsum(p * q for p, q in zip(a[i], b[case.group[i], j], strict=True))
                assert case.reference[i, j] == pytest.approx(expected, rel=1e-11), case.workload.name


@BOTH
def test_honest_arithmetic_passes_with_a_margin_of_two(task):
    for case in cases(task):
        assert case.accepts(case.product(), 2), case.workload.name
        if task is FP8:  # as allowed: scaled operands rounded to bf16
            assert case.accepts(case.product(bf16), 2), case.workload.name


def test_lower_precision_of_operands_is_rejected():
    for case in cases(BF16):
        if case.workload.name != "positive":  # terms of one sign: errors average out
            assert not case.accepts(case.product(e4m3)), case.workload.name
    for case in cases(FP8):
        case.x["a"], case.x["b"] = e5m2(case.x["a"]), e5m2(case.x["b"])
        assert not case.accepts(case.product()), case.workload.name


@BOTH
def test_a_row_with_the_neighbours_matrix_is_rejected(task):
    for case in cases(task, "odd", "skewed", "mostly_empty"):
        group = case.group.copy()
        group[-1] = (group[-1] + 1) % case.sizes["groups"]
        assert not case.accepts(case.product(group=group)), case.workload.name
