"""Softmax, cross entropy, Fourier transforms and sorting: references against independent ones, bounds
against honest arithmetic, and two library policies in one family."""

import cmath
import math

import numpy as np
import pytest
from test_families import reference, wide_inputs

from cudahercules.judge.checks import check_output
from cudahercules.judge.verdict import OutputCheck
from cudahercules.measure.panel import as_expert, is_plan
from cudahercules.task.inputs import generate
from cudahercules.task.load import all_tasks, load_task
from cudahercules.task.model import LibraryPolicy, WorkloadRole

f32 = np.float32
FAMILIES = ("kernel/softmax", "module/cross_entropy", "module/fft_c2c_1d", "kernel/sort_keys")
TASKS = [t for t in all_tasks() if t.family in FAMILIES]
each = pytest.mark.parametrize("task", TASKS, ids=[t.id for t in TASKS])


def of_role(task, *roles):
    return task.workloads_of(*(roles or (WorkloadRole.SMOKE, WorkloadRole.CHECK)))


# --- independent references, number by number ----------------------------------------------------


def softmax_by_shares(task, workload, x):
    """y[j] = 1 / sum over i of exp(x[i] - x[j]): no maximum is taken."""
    rows = [[1 / math.fsum(math.exp(min(i - j, 700)) for i in row) for j in row] for row in x["x"].tolist()]
    return {"y": np.array(rows)}


def cross_entropy_by_shares(task, workload, x):
    loss, gradient = [], []
    scale, ignored = workload.scalars["grad_scale"], workload.scalars["ignore_index"]
    for row, label in zip(x["logits"].tolist(), x["labels"].tolist(), strict=True):
        share = [1 / math.fsum(math.exp(min(i - j, 700)) for i in row) for j in row]
        if label == ignored:
            loss.append(0.0)
            gradient.append([0.0] * len(row))
            continue
        loss.append(-math.log(share[label]))
        gradient.append([scale * (p - (j == label)) for j, p in enumerate(share)])
    return {"loss": np.array(loss), "dlogits": np.array(gradient)}


def fourier_by_definition(task, workload, x):
    """Some frequencies of each signal by the sum that defines them; the others are not compared."""
    length = task.constants["length"]
    y = np.full(x["x"].shape, np.nan, complex)
    for k in (0, 1, 2, length // 3, length // 2, length - 1):
        turns = [cmath.exp(-2j * math.pi * (n * k % length) / length) for n in range(length)]
        y[:, k] = [sum(a * w for a, w in zip(row, turns, strict=True)) for row in x["x"].tolist()]
    return {"y": y}


def sorted_by_counting(task, workload, x):
    counts = {}
    for key in x["keys"].tolist():
        counts[key] = counts.get(key, 0) + 1
    return {"sorted": np.array([key for key in sorted(counts) for _ in range(counts[key])])}


PLAIN = dict(
    zip(
        FAMILIES,
        (softmax_by_shares, cross_entropy_by_shares, fourier_by_definition, sorted_by_counting),
        strict=True,
    )
)


@each
def test_reference_agrees_with_a_plain_one(task):
    chosen = [w for w in of_role(task) if w.name in ("smoke", "odd", "ignored_class", "few_distinct")]
    assert chosen
    for workload in chosen:
        inputs = wide_inputs(task, workload)
        got, expected = reference(task, workload, inputs), PLAIN[task.family](task, workload, inputs)
        assert got.keys() == {t.name for t in task.outputs} == expected.keys()
        for tensor in task.outputs:
            assert got[tensor.name].shape == task.shape(tensor, workload)
            known = ~np.isnan(expected[tensor.name])
            np.testing.assert_allclose(
                got[tensor.name][known], expected[tensor.name][known], rtol=1e-11, atol=1e-9
            )


# --- honest arithmetic in the precision of the task ----------------------------------------------


def running_sum(terms, threads=256):
    """As a block of `threads` adds: each thread its own running sum, then the threads."""
    padded = np.zeros((len(terms), -(-terms.shape[1] // threads) * threads), f32)
    padded[:, : terms.shape[1]] = terms
    total = np.add.accumulate(padded.reshape(len(terms), -1, threads), axis=1, dtype=f32)[:, -1]
    while total.shape[1] > 1:
        total = total[:, : total.shape[1] // 2] + total[:, total.shape[1] // 2 :]
    return total


def softmax(task, workload, x):
    values = x["x"].astype(f32)
    weights = np.exp(values - values.max(axis=1, keepdims=True))
    return {"y": weights / running_sum(weights)}


def cross_entropy(task, workload, x):
    values, labels = x["logits"].astype(f32), x["labels"]
    counts = labels != workload.scalars["ignore_index"]
    rows, safe = np.arange(len(values)), np.where(counts, labels, 0)
    largest = values.max(axis=1)
    weights = np.exp(values - largest[:, None])
    sums = running_sum(weights)
    loss = np.log(sums[:, 0]) + (largest - values[rows, safe])
    gradient = weights / sums
    gradient[rows, safe] -= f32(1)
    gradient *= f32(workload.scalars["grad_scale"])
    return {"loss": np.where(counts, loss, f32(0)), "dlogits": np.where(counts[:, None], gradient, f32(0))}


def fourier(task, workload, x, drifting=False):
    """Stockham's stages of radix 2, every operation rounded to the task's precision."""
    v = x["x"]
    length, real, dtype = v.shape[1], v.real.dtype, v.dtype
    for half in (1 << s for s in range(length.bit_length() - 1)):
        angle = -np.pi * np.arange(half) / half
        twiddles = (np.cos(angle) + 1j * np.sin(angle)).astype(dtype)
        if drifting:
            step = np.full(half, np.exp(-1j * np.pi / half), dtype)
            step[0] = 1
            twiddles = np.multiply.accumulate(step)
        a, b = v[:, : length // 2].reshape(len(v), -1, half), v[:, length // 2 :].reshape(len(v), -1, half)
        turned = b * twiddles
        assert turned.real.dtype == real
        v = np.concatenate([a + turned, a - turned], axis=2).reshape(len(v), length)
    return {"y": v}


HONEST = {"kernel/softmax": softmax, "module/cross_entropy": cross_entropy, "module/fft_c2c_1d": fourier}
FLOATING = [t for t in TASKS if t.family in HONEST]


def fails(task, workload, outputs, expected, margin=1.0):
    """Names of the outputs that miss their bound divided by ``margin``."""
    failed = []
    for tensor in task.outputs:
        tight = task.tolerance[tensor.name].tightened(margin)
        stored = outputs[tensor.name].astype(tensor.dtype.numpy)
        if not isinstance(check_output(tensor, tight, stored, expected[tensor.name]), OutputCheck):
            failed.append(tensor.name)
    return failed


@pytest.mark.parametrize("task", FLOATING, ids=[t.id for t in FLOATING])
def test_honest_arithmetic_passes_with_a_margin_of_two(task):
    for workload in of_role(task):
        for seed in (3, 4):
            inputs = {t.name: generate(task, t, workload, seed) for t in task.inputs}
            expected = reference(task, workload, wide_inputs(task, workload, seed))
            outputs = HONEST[task.family](task, workload, inputs)
            assert fails(task, workload, outputs, expected, margin=2.0) == [], workload.name


def test_drifting_twiddles_fail_at_every_length():
    for task in FLOATING:
        if task.family != "module/fft_c2c_1d":
            continue
        (workload,) = of_role(task, WorkloadRole.SMOKE)
        inputs = {t.name: generate(task, t, workload, 5) for t in task.inputs}
        expected = reference(task, workload, wide_inputs(task, workload, 5))
        assert fails(task, workload, fourier(task, workload, inputs, drifting=True), expected) == ["y"]


# --- values that only this family has ------------------------------------------------------------


def test_labels_are_classes_or_ignored():
    task = load_task("module/cross_entropy")
    labels = next(t for t in task.tensors if t.name == "labels")
    ignored = 0
    for workload in of_role(task, *WorkloadRole):
        values = task.distribution(labels, workload)
        low, high = getattr(values, "low", getattr(values, "value", None)), getattr(values, "high", 0)
        outside = {low} if low < 0 else set()
        assert outside <= {workload.scalars["ignore_index"]}
        assert high < workload.dimensions["vocabulary"]
        if workload.role is not WorkloadRole.BENCH:
            made = generate(task, labels, workload, 1)
            ignored += int(np.count_nonzero(made == workload.scalars["ignore_index"]))
    assert ignored > 20


def test_odd_rows_begin_where_no_vector_does():
    """Every vectorised softmax and cross entropy must meet rows that are not aligned to 16 bytes."""
    for name, width in (("kernel/softmax/bf16", "columns"), ("module/cross_entropy", "vocabulary")):
        task = load_task(name)
        odd = [w for w in of_role(task) if w.dimensions[width] % 8 and w.dimensions["rows"] > 1]
        assert max(w.dimensions[width] for w in odd) > 8192


# --- library policies of members and experts -----------------------------------------------------


def test_one_member_allows_cub_and_the_other_does_not():
    policies = {t.member: t.library_policy for t in TASKS if t.family == "kernel/sort_keys"}
    assert policies == {"general": LibraryPolicy.RUNTIME, "with_cub": LibraryPolicy.CUB}


def test_an_expert_may_use_a_library_that_candidates_may_not():
    task = load_task("kernel/sort_keys/general")
    assert is_plan(task, "cub_radix_sort")
    assert as_expert(task, "cub_radix_sort").library_policy is LibraryPolicy.CUB
    assert as_expert(task, "torch_sort").library_policy is LibraryPolicy.RUNTIME
    assert task.library_policy is LibraryPolicy.RUNTIME


def test_keys_reach_the_reference_unsigned():
    task = load_task("kernel/sort_keys/general")
    workload = next(w for w in task.workloads if w.name == "largest_keys")
    keys = wide_inputs(task, workload)["keys"]
    assert reference(task, workload, wide_inputs(task, workload))["sorted"][-1] == keys.max() > 2**31


def test_unsigned_keys_are_compared_in_pytorch_too():
    torch = pytest.importorskip("torch")
    task = load_task("kernel/sort_keys/general")
    tensor, bound = task.outputs[0], task.tolerance["sorted"]
    got = torch.from_numpy(np.array([3, 2**31, 2**32 - 1], np.uint32))
    right = torch.tensor([3, 2**31, 2**32 - 1])
    assert isinstance(check_output(tensor, bound, got, right), OutputCheck)
    assert check_output(tensor, bound, got, right - 1).wrong == 3
