"""INT8 products: the reference against exact integers, and workloads in which ways of rounding differ."""

import math
from fractions import Fraction

import array_api_compat.numpy as xnp
import numpy as np
import pytest

from cudahercules.task.inputs import generate
from cudahercules.task.load import BUNDLED, family_module, load_family
from cudahercules.task.model import WorkloadRole

TASK = next(t for t in load_family(BUNDLED / "kernel/gemm_int8") if t.target == "hopper")
SMALL = TASK.workloads_of(WorkloadRole.SMOKE, WorkloadRole.CHECK)


class Case:
    """One small workload: exact sums, the scale, and the reference."""

    def __init__(self, workload, seed=1):
        self.scale = workload.scalars["scale"]
        self.x = {t.name: generate(TASK, t, workload, seed).astype(np.int64) for t in TASK.inputs}
        self.sums = self.x["a"] @ self.x["b"].T
        self.reference = family_module(TASK).reference(self.x, TASK.sizes(workload), workload.scalars, xnp)[
            "c"
        ]


def case_of(name):
    return Case(next(w for w in SMALL if w.name == name))


@pytest.mark.parametrize("workload", SMALL, ids=[w.name for w in SMALL])
def test_rounded_product_agrees_with_exact_fractions(workload):
    case = Case(workload)
    assert np.abs(case.sums).max() < 2**24  # exact in fp32
    for i, j in np.ndindex(*case.sums.shape):
        if (i * 7 + j) % 5 == 0:
            product = Fraction(float(np.float32(int(case.sums[i, j]) * case.scale)))  # of exact doubles
            # Python rounds a fraction exactly, the middle to the even integer.
            assert case.reference[i, j] == max(-128, min(127, round(product)))


def test_scales_are_numbers_that_fp32_holds():
    for workload in TASK.workloads:
        assert float(np.float32(workload.scalars["scale"])) == workload.scalars["scale"]


def test_sums_at_bench_sizes_stay_exact_in_fp32():
    spread = 127 * 128 / 3  # of a product of two uniform integers
    for workload in TASK.workloads_of(WorkloadRole.BENCH):
        assert 10 * spread * math.sqrt(workload.dimensions["k"]) < 2**24


def test_every_way_of_rounding_differs_somewhere():
    ties = case_of("ties")
    exact = ties.sums * ties.scale
    assert np.mean(exact != np.floor(exact)) > 0.4
    away = np.trunc(exact + np.copysign(0.5, exact))
    for other in (np.trunc(exact), np.floor(exact), away):
        assert np.any(other != ties.reference)
    full = case_of("saturating").reference
    assert np.mean(full == 127) > 0.1 and np.mean(full == -128) > 0.1
    assert np.abs(case_of("deep").sums).max() > 2**15 and np.abs(case_of("extremes").sums).max() > 10**7
