"""RMSNorm and product: the reference against plain loops, and a bound for allowed roundings."""

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
(TASK,) = load_family(BUNDLED / "kernel/gemm_weight_prefetch")
SMALL = TASK.workloads_of(WorkloadRole.SMOKE, WorkloadRole.CHECK)


def through(dtype):
    return lambda x: np.asarray(x, f32).astype(dtype).astype(f32)


bf16, e4m3, single = through(ml_dtypes.bfloat16), through(ml_dtypes.float8_e4m3fn), through(f32)


class Case:
    def __init__(self, workload, seed=1):
        self.workload, self.sizes, self.eps = workload, TASK.sizes(workload), workload.scalars["eps"]
        self.x = {t.name: generate(TASK, t, workload, seed).astype(np.float64) for t in TASK.inputs}
        self.reference = family_module(TASK).reference(self.x, self.sizes, workload.scalars, xnp)["c"]

    def answer(self, h=bf16, w=single, root=lambda mean, eps: np.sqrt(mean + eps)):
        x = self.x["x"].astype(f32)
        size = root((x * x).mean(axis=1, keepdims=True, dtype=f32), f32(self.eps))
        return h(x / size * self.x["gain"].astype(f32)) @ w(self.x["w"]).T

    def check(self, c, margin=1.0):
        stored = np.asarray(c, f32).astype(ml_dtypes.bfloat16)
        return check_output(TASK.outputs[0], TASK.tolerance["c"].tightened(margin), stored, self.reference)

    def accepts(self, c, margin=1.0):
        return isinstance(self.check(c, margin), OutputCheck)


def case_of(name):
    return Case(next(w for w in SMALL if w.name == name))


def test_norm_and_product_agree_with_plain_ones():
    for workload in SMALL:
        case = Case(workload)
        x, gain, w = (case.x[name].tolist() for name in ("x", "gain", "w"))
        for i, j in ((0, 0), (len(x) - 1, len(w) - 1)):
            size = math.sqrt(math.fsum(v * v for v in x[i]) / len(gain) + case.eps)
            terms = [v / size * g * p for v, g, p in zip(x[i], gain, w[j], strict=True)]
            assert case.reference[i, j] == pytest.approx(math.fsum(terms), rel=1e-10, abs=1e-13)


@pytest.mark.parametrize("seed", [1, 2])
def test_rows_rounded_once_pass_with_a_margin_of_two(seed):
    for workload in SMALL:
        case = Case(workload, seed)
        assert case.accepts(case.answer(), 2), workload.name
        assert case.accepts(case.answer(h=single), 2), workload.name


def test_fp8_operands_are_rejected():
    for workload in SMALL:
        case = Case(workload)
        assert not case.accepts(case.answer(h=e4m3, w=e4m3)), workload.name
        assert not case.accepts(case.answer(w=e4m3)), workload.name


def test_eps_counts_under_the_root():
    case = case_of("row_sizes")
    assert not case.accepts(case.answer(root=lambda mean, eps: np.sqrt(mean)))
    assert not case.accepts(case.answer(root=lambda mean, eps: np.sqrt(mean) + eps))
    assert not case_of("large_eps").accepts(case_of("large_eps").answer(root=lambda mean, eps: np.sqrt(mean)))


def test_a_norm_that_is_off_by_a_percent_is_rejected():
    for workload in SMALL:
        case = Case(workload)
        assert not case.accepts(1.01 * case.answer(h=single)), workload.name
