"""Answers made wrong by machine: what each does, and that a sound tolerance rejects them."""

from __future__ import annotations

import numpy as np
import pytest

from cudahercules.judge.answers import CORRUPTIONS, Answer, lower, round_mantissa, store
from cudahercules.judge.checks import check_output
from cudahercules.judge.operands import from_bytes, reference_of, to_bytes
from cudahercules.judge.verdict import OutputCheck
from cudahercules.task.inputs import generate
from cudahercules.task.load import family_module, load_task
from cudahercules.task.model import DType


def answer_of(task_id: str, workload_name: str) -> Answer:
    task = load_task(task_id)
    workload = next(w for w in task.workloads if w.name == workload_name)
    values = {t.name: generate(task, t, workload, 7) for t in task.inputs}
    family, tensor = family_module(task), task.outputs[0]
    exact = reference_of(family, task, workload, values)[tensor.name]
    return Answer(task, family, workload, tensor, values, exact, store(tensor, exact))


@pytest.fixture(scope="module")
def gemm() -> Answer:
    return answer_of("kernel/gemm/fp32@general", "odd")


def test_the_rounded_reference_is_accepted(gemm):
    check = check_output(gemm.tensor, gemm.task.tolerance["c"], gemm.stored, gemm.exact)
    assert isinstance(check, OutputCheck) and check.element < check.element_bound / 2


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_every_corruption_is_rejected(gemm, name):
    wrong = CORRUPTIONS[name](gemm)
    assert wrong is not None and wrong.shape == gemm.stored.shape and wrong.dtype == gemm.stored.dtype
    check = check_output(gemm.tensor, gemm.task.tolerance["c"], wrong, gemm.exact)
    assert not isinstance(check, OutputCheck), name


def test_corruptions_leave_the_answer_itself_alone(gemm):
    before = gemm.stored.copy()
    for make in CORRUPTIONS.values():
        make(gemm)
    assert np.array_equal(before, gemm.stored)


def test_row_corruptions_touch_two_percent_of_the_rows(gemm):
    rows = gemm.stored.shape[0]  # 129: two rows
    for name in ("smallest rows zeroed", "2 % of rows not written", "2 % of rows from a neighbour"):
        wrong = CORRUPTIONS[name](gemm)
        assert int((wrong != gemm.stored).any(axis=1).sum()) == 2 == int(rows * 0.02)
    smallest = CORRUPTIONS["smallest rows zeroed"](gemm)
    norms = np.linalg.norm(gemm.exact, axis=1)
    assert set(np.flatnonzero((smallest == 0).all(axis=1))) == set(np.argsort(norms)[:2])


def test_rounding_to_bits_agrees_with_the_formats():
    values = np.random.default_rng(0).standard_normal(1000)
    assert np.array_equal(round_mantissa(values, 24), values.astype(np.float32).astype(np.float64))
    assert np.array_equal(round_mantissa(values, 8), lower(values, DType.BF16))
    normal = values[np.abs(values) > 1e-4]
    assert np.array_equal(lower(normal, DType.TF32), lower(normal, DType.FP16))
    assert np.array_equal(round_mantissa(values + 1j, 24), (values.astype(np.float32) + 1j))


def test_operands_keep_their_bytes_through_a_buffer(gemm):
    task, workload = gemm.task, gemm.workload
    for tensor in task.inputs:
        values = gemm.values[tensor.name]
        for layout in ("row", "column"):
            laid = tensor.model_copy(update={"layout": layout})
            array = np.asfortranarray(values) if layout == "column" else values
            assert np.array_equal(from_bytes(task, laid, workload, to_bytes(array).copy()), values)
