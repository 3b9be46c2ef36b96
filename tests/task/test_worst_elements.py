"""Bounds of outputs in few bits against the worst that honest code can do at the sizes that are timed.

Small workloads do not show it: what rounding takes from an element is relative to the element, one element
can be sqrt(n) times the root mean square of its row of n, and 10^8 elements find the extremes of any
distribution. So the worst case is computed, not simulated.
"""

import math
from statistics import NormalDist

import numpy as np
import pytest

from cudahercules.judge.checks import check_output
from cudahercules.judge.verdict import OutputCheck
from cudahercules.task.load import all_tasks, load_task
from cudahercules.task.model import DType, WorkloadRole

MARGIN = 2.0
UNIT = {DType.BF16: 2.0**-8, DType.FP16: 2.0**-11}  # half a unit in the last place, at a power of two
FP32_SUM = 2.0**-20
"""Relative error of an exponential times the reciprocal of a sum of 10^5 terms, all in fp32: 16 roundings in
one direction. Measured at small sizes: 4."""
CHANCE = 1e-2
"""Extremes of random values are those that one run in a hundred exceeds."""

ATTENTION = ("module/attention_fwd", "kernel/attention_mha")

ROUNDED = [(t, o) for t in all_tasks() for o in t.outputs if t.target == "general" and o.dtype in UNIT]
each = pytest.mark.parametrize(("task", "output"), ROUNDED, ids=[f"{t.id}-{o.name}" for t, o in ROUNDED])


def largest_normal(count):
    """What the largest of ``count`` standard normal numbers exceeds with probability CHANCE only."""
    return -NormalDist().inv_cdf(CHANCE / count / 2)


def half_unit(value, dtype):
    """The largest rounding error of numbers up to ``value``."""
    return 2.0 ** math.floor(math.log2(value)) * UNIT[dtype]


def relative_errors(task, output, workload):
    """What an honest element can be off, relative to itself: one number for each independent rounding."""
    own = UNIT[output.dtype]
    if task.family in ATTENTION:  # weights are rounded as well: all of a row alike, if one dominates
        return (own, own)
    if task.family == "kernel/gemm_softmax":  # an error of a logit is a relative error of its weight
        sizes, alpha = task.sizes(workload), workload.scalars["alpha"]
        assert alpha * math.sqrt(sizes["k"]) == pytest.approx(1, abs=1e-6), "logits of unit variance"
        logit = largest_normal(sizes["m"] * sizes["n"])
        return (own, alpha * half_unit(logit / alpha, DType.FP16))
    return (own,)


@each
def test_no_element_of_a_timed_workload_comes_near_its_cap(task, output):
    bound = task.tolerance[output.name]
    for workload in task.workloads_of(WorkloadRole.BENCH):
        stands_out = math.sqrt(task.shape(output, workload)[-1])  # times its row's scale, at most
        error = sum(relative_errors(task, output, workload)) * stands_out
        assert bound.element + bound.element_relative * stands_out >= MARGIN * error, workload.name


@each
def test_no_row_that_one_element_has_to_itself_comes_near_its_bound(task, output):
    """Roundings are independent. Attention's o is rounded in each of a row's many elements, and the root mean
    square of such errors is at most 1/sqrt(3) of the largest."""
    bound = task.tolerance[output.name]
    for workload in task.workloads_of(WorkloadRole.BENCH):
        errors = relative_errors(task, output, workload)
        if task.family in ATTENTION:
            errors = (errors[0] / math.sqrt(3), errors[1])
        assert bound.row_l2 >= MARGIN * math.hypot(*errors), workload.name


def test_softmax_in_fp32_has_outstanding_elements_too():
    task = load_task("kernel/softmax/fp32")
    bound = task.tolerance["y"]
    for workload in task.workloads_of(WorkloadRole.BENCH):
        stands_out = math.sqrt(workload.dimensions["columns"])
        assert bound.element + bound.element_relative * stands_out >= MARGIN * FP32_SUM * stands_out
    assert bound.row_l2 >= MARGIN * FP32_SUM


def test_truncated_tf32_operands_stay_below_the_cap_among_all_elements():
    """Truncation to 10 bits takes up to 2^-10 of a number, on average about a third of it. So a product loses
    a share that is common to all, and the rest of its error is noise of at most the same size."""
    task = load_task("kernel/gemm/tf32")
    for workload in task.workloads_of(WorkloadRole.BENCH):
        extreme = largest_normal(workload.dimensions["m"] * workload.dimensions["n"])
        common, noise = 2 * 0.36 * 2.0**-10, 2.0**-11
        assert task.tolerance["c"].element >= MARGIN * extreme * math.hypot(common, noise), workload.name


@each
def test_an_ordinary_element_that_is_plainly_wrong_is_seen(task, output):
    """The caps stay strict where elements do not stand out: a quarter of the row's scale is too much."""
    bound = task.tolerance[output.name]
    assert bound.element + bound.element_relative <= 0.25


def test_the_element_that_an_earlier_bound_refused_on_a_gpu():
    """One of 2 * 10^8 elements of kernel/softmax/bf16, workload gpt2_vocabulary: correctly rounded."""
    task = load_task("kernel/softmax/bf16")
    columns, scale, outstanding = 50257, 4.0e-5, 0.00532852486
    row = np.full((1, columns), scale)
    row[0, 6866] = outstanding
    y = task.outputs[0]
    stored = row.astype(y.dtype.numpy)
    assert float(stored[0, 6866]) == pytest.approx(0.00534057617)
    check = check_output(y, task.tolerance["y"].tightened(MARGIN), stored, row)
    assert isinstance(check, OutputCheck)
    assert abs(float(stored[0, 6866]) - outstanding) / scale > 0.3
