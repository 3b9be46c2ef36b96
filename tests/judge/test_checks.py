"""The checks of outputs: what passes, what fails, and whether the explanation is true."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cudahercules.errors import TaskError
from cudahercules.judge.checks import check_guard, check_inputs_unchanged, check_output, is_poison
from cudahercules.judge.verdict import OutputCheck, WrongOutput
from cudahercules.task.inputs import poison
from cudahercules.task.model import DType, Role, Tensor, Tolerance

BOUNDS = Tolerance(l2=1e-5, row_l2=3e-5, element=1e-4)
EXACT = Tolerance(exact=True)


def tensor(dtype: DType = DType.FP32, role: Role = Role.OUT, layout: str = "row") -> Tensor:
    return Tensor(name="c", role=role, dtype=dtype, shape=("m", "n"), layout=layout)


def reference(shape=(40, 30), seed=0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def poisoned(shape, dtype: DType) -> np.ndarray:
    return poison(math.prod(shape) * dtype.size, dtype).view(dtype.numpy).reshape(shape).copy()


def test_rounding_to_storage_passes_and_reports_its_error():
    ref = reference()
    check = check_output(tensor(), BOUNDS, ref.astype(np.float32), ref)
    assert isinstance(check, OutputCheck)
    assert 0 < check.l2 < 6e-8 and check.l2 <= check.row_l2
    assert check.l2_bound == BOUNDS.l2 and check.element_bound == BOUNDS.element


def test_errors_are_what_their_definitions_say():
    ref = np.array([[3.0, 4.0], [30.0, 40.0]])
    got = np.array([[3.0, 4.5], [30.0, 40.0]], np.float32)
    wide = Tolerance(l2=1, row_l2=1, element=1)
    check = check_output(tensor(), wide, got, ref)
    assert check.l2 == pytest.approx(0.5 / math.sqrt(25 + 2500))
    assert check.row_l2 == pytest.approx(0.5 / 5)
    assert check.element == pytest.approx(0.5 / math.sqrt(25 / 2))


def test_one_wrong_element_is_counted_located_and_quoted():
    ref = reference()
    got = ref.astype(np.float32)
    got[7, 11] += 5
    wrong = check_output(tensor(), BOUNDS, got, ref)
    assert isinstance(wrong, WrongOutput)
    assert (wrong.reason, wrong.wrong, wrong.total, wrong.index) == ("tolerance", 1, 1200, (7, 11))
    assert wrong.expected == f"{ref[7, 11]:.9g}" and wrong.got == f"{got[7, 11]:.9g}"
    assert "1 of 1200 elements is wrong" in wrong.message and "[7, 11]" in wrong.message
    assert wrong.check is not None and wrong.check.element > BOUNDS.element


def test_a_small_row_is_held_to_its_own_scale():
    ref = reference()
    ref[3] *= 1e-2
    got = ref.astype(np.float32)
    got[3] *= 1.001
    wrong = check_output(tensor(), BOUNDS, got, ref)
    assert wrong.reason == "tolerance" and wrong.index[0] == 3 and wrong.wrong > 0


def test_a_row_below_the_floor_is_measured_against_the_floor():
    ref = reference()
    ref[3] = 1e-12
    got = ref.astype(np.float32)
    got[3] = 2e-12
    assert isinstance(check_output(tensor(), BOUNDS, got, ref), OutputCheck)
    assert (
        check_output(tensor(), BOUNDS.model_copy(update={"row_floor": 0.0}), got, ref).reason == "tolerance"
    )


OUTSTANDING = Tolerance(l2=1e-2, row_l2=1e-2, element=2e-3, element_relative=1e-2)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_an_element_may_be_off_relative_to_itself_as_well(library):
    ref = np.ones((3, 400))
    ref[1, 7] = 50.0
    scale = math.sqrt((399 + 2500) / 400)
    cap = 2e-3 * scale + 1e-2 * 50
    got = ref.copy()
    got[1, 7] += 0.5 * cap
    given = (got, ref)
    if library == "torch":
        torch = pytest.importorskip("torch")
        given = (torch.from_numpy(got), torch.from_numpy(ref))
    check = check_output(tensor(DType.FP64), OUTSTANDING, *given)
    assert isinstance(check, OutputCheck)
    assert check.element == pytest.approx(0.5 * check.element_bound)
    # without the second part the same element is too far off
    plain = OUTSTANDING.model_copy(update={"element_relative": 0.0})
    assert isinstance(check_output(tensor(DType.FP64), plain, *given), WrongOutput)


def test_an_ordinary_element_gains_little_from_the_relative_part():
    ref = np.ones((3, 400))
    ref[1, 7] = 50.0
    got = ref.astype(np.float32)
    got[1, 7] *= 1.009
    got[1, 8] += 0.02  # the cap is 2e-3 * 2.69 + 1e-2 * 1
    wrong = check_output(tensor(), OUTSTANDING, got, ref)
    assert isinstance(wrong, WrongOutput) and (wrong.wrong, wrong.index) == (1, (1, 8))
    assert "off by 1.3 of what an element may be" in wrong.message


def test_where_row_and_element_are_zero_no_error_passes():
    bounds = OUTSTANDING.model_copy(update={"row_floor": 0.0})
    ref = np.zeros((2, 5))
    ref[0] = 1.0
    assert isinstance(check_output(tensor(), bounds, ref.astype(np.float32), ref), OutputCheck)
    got = ref.astype(np.float32)
    got[1, 3] = 1e-30
    assert check_output(tensor(), bounds, got, ref).index == (1, 3)


def test_a_relative_part_alone_is_refused_and_bounds_tighten_together():
    with pytest.raises(ValueError, match="comes on top of element"):
        Tolerance(l2=1, row_l2=1, element_relative=1e-2)
    half = OUTSTANDING.tightened(2)
    assert (half.l2, half.row_l2, half.element, half.element_relative) == (5e-3, 5e-3, 1e-3, 5e-3)
    assert half.row_floor == OUTSTANDING.row_floor


def test_an_error_spread_over_all_elements_is_told_apart_from_a_spike():
    ref = reference((200, 300))
    got = (ref * (1 + 2e-5)).astype(np.float32)
    wrong = check_output(tensor(), BOUNDS, got, ref)
    assert wrong.reason == "tolerance" and "no single element is far off" in wrong.message
    assert wrong.check.element < BOUNDS.element and wrong.check.l2 > BOUNDS.l2


@pytest.mark.parametrize(("value", "reason"), [(np.nan, "nan"), (np.inf, "infinite"), (-np.inf, "infinite")])
@pytest.mark.parametrize("dtype", [DType.FP32, DType.FP16, DType.BF16, DType.FP64])
def test_nan_and_infinity_never_pass(value, reason, dtype):
    ref = reference()
    got = ref.astype(dtype.numpy)
    got[5, 2] = value
    got[6, 2] = value
    loose = Tolerance(l2=1e9, row_l2=1e9, element=1e9)
    wrong = check_output(tensor(dtype), loose, got, ref)
    assert (wrong.reason, wrong.wrong, wrong.index) == (reason, 2, (5, 2))


def test_infinities_that_the_reference_has_too_are_right():
    ref = reference()
    ref[0, 0], ref[1, 1], ref[2, 2] = np.inf, -np.inf, np.nan
    got = ref.astype(np.float32)
    assert isinstance(check_output(tensor(), BOUNDS, got, ref), OutputCheck)
    got[1, 1] = np.inf
    wrong = check_output(tensor(), BOUNDS, got, ref)
    assert (wrong.reason, wrong.index, wrong.expected, wrong.got) == ("infinite", (1, 1), "-inf", "inf")
    got[1, 1], got[2, 2] = -np.inf, 0
    assert check_output(tensor(), BOUNDS, got, ref).index == (2, 2)


ALL_FLOATS = [d for d in DType if not d.is_integer and not d.is_complex]


@pytest.mark.parametrize("dtype", ALL_FLOATS)
def test_elements_left_as_poison_are_called_unwritten(dtype):
    ref = np.ones((6, 5))
    got = ref.astype(dtype.numpy)
    got[4, 1:] = poisoned((4,), dtype)
    got[5, 0] = 0
    wrong = check_output(tensor(dtype), BOUNDS, got, ref)
    assert (wrong.reason, wrong.index) == ("unwritten", (4, 1))
    assert "4 of 30 elements were never written (and 1 more are wrong)" in wrong.message


@pytest.mark.parametrize("dtype", [d for d in DType if d.is_integer])
def test_integers_are_exact_and_poison_is_seen(dtype):
    ref = np.arange(30, dtype=np.uint64 if dtype is DType.UINT64 else np.int64).reshape(6, 5)
    got = ref.astype(dtype.numpy)
    assert check_output(tensor(dtype), EXACT, got, ref).exact
    got[2, 2] += 1
    wrong = check_output(tensor(dtype), EXACT, got, ref)
    assert (wrong.reason, wrong.index, wrong.expected, wrong.got) == ("not_equal", (2, 2), "12", "13")
    wrong = check_output(tensor(dtype), EXACT, poisoned((6, 5), dtype), ref)
    assert (wrong.reason, wrong.wrong) == ("unwritten", 30)


def test_wide_integers_are_not_rounded_through_float64():
    ref = np.full((2, 2), 2**62, np.int64)
    got = ref.copy()
    got[1, 0] += 1
    assert check_output(tensor(DType.INT64), EXACT, got, ref).index == (1, 0)


@pytest.mark.parametrize("dtype", [DType.COMPLEX64, DType.COMPLEX128])
def test_complex_outputs(dtype):
    ref = reference() + 1j * reference(seed=1)
    got = ref.astype(dtype.numpy)
    assert isinstance(check_output(tensor(dtype), BOUNDS, got, ref), OutputCheck)
    got[1, 2] = got[1, 2].conjugate()
    assert check_output(tensor(dtype), BOUNDS, got, ref).index == (1, 2)
    assert check_output(tensor(dtype), BOUNDS, poisoned((40, 30), dtype), ref).reason == "unwritten"


def test_an_inout_tensor_is_never_called_unwritten():
    wrong = check_output(tensor(role=Role.INOUT), BOUNDS, poisoned((40, 30), DType.FP32), reference())
    assert wrong.reason == "nan"


def test_column_layout_is_indexed_logically():
    ref = np.asfortranarray(reference())
    got = np.asfortranarray(ref.astype(np.float32))
    got[9, 4] = 77
    wrong = check_output(tensor(layout="column"), BOUNDS, got, ref)
    assert wrong.index == (9, 4) and wrong.got == "77"


@pytest.mark.parametrize("shape", [(37,), (3, 4, 5), (2, 3, 4, 5), (1, 1)])
def test_the_index_has_the_shape_of_the_output(shape):
    ref = reference(shape)
    got = ref.astype(np.float32)
    last = tuple(n - 1 for n in shape)
    got[last] = -99
    assert check_output(tensor(), BOUNDS, got, ref).index == last


def test_an_all_zero_reference_accepts_zeros_only():
    ref = np.zeros((4, 4))
    assert check_output(tensor(), BOUNDS, ref.astype(np.float32), ref).l2 == 0
    got = ref.astype(np.float32)
    got[1, 1] = 1e-30
    wrong = check_output(tensor(), BOUNDS, got, ref)
    assert (wrong.reason, wrong.index, wrong.check) == ("tolerance", (1, 1), None)


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_float64_outputs_at_the_ends_of_the_range(size):
    ref = reference() * size
    assert check_output(tensor(DType.FP64), BOUNDS, ref.copy(), ref).l2 == 0
    assert isinstance(check_output(tensor(DType.FP64), BOUNDS, ref * 1.01, ref), WrongOutput)


def test_tiles_do_not_change_the_result(monkeypatch):
    ref = reference((50, 70))
    got = ref.astype(np.float32)
    got[30, 44] *= 2
    whole = check_output(tensor(), BOUNDS, got, ref)
    monkeypatch.setattr("cudahercules.judge.checks.CHUNK", 33)
    tiled = check_output(tensor(), BOUNDS, got, ref)
    assert tiled.model_dump(exclude={"check"}) == whole.model_dump(exclude={"check"})
    assert tiled.check.l2 == pytest.approx(whole.check.l2)


def test_a_reference_of_another_shape_is_the_tasks_fault():
    with pytest.raises(TaskError, match=r"family\.py"):
        check_output(tensor(), BOUNDS, np.zeros((2, 3), np.float32), np.zeros((3, 2)))


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 9),
    columns=st.integers(1, 9),
    seed=st.integers(0, 2**32 - 1),
    factor=st.floats(1.01, 100),
)
def test_scaling_any_answer_is_found(rows, columns, seed, factor):
    ref = np.random.default_rng(seed).uniform(0.5, 2, (rows, columns))
    assert isinstance(check_output(tensor(), BOUNDS, ref.astype(np.float32), ref), OutputCheck)
    assert isinstance(check_output(tensor(), BOUNDS, (ref * factor).astype(np.float32), ref), WrongOutput)


def test_inputs_must_keep_their_bytes():
    before = reference().astype(np.float32)
    assert check_inputs_unchanged(tensor(role=Role.IN), before, before.copy()) is None
    after = before.copy()
    after[3, 3] = 0.0
    wrong = check_inputs_unchanged(tensor(role=Role.IN), before, after)
    assert (wrong.reason, wrong.index, wrong.wrong) == ("input_changed", (3, 3), 1)
    zero, minus_zero = np.zeros((1, 1), np.float32), -np.zeros((1, 1), np.float32)
    assert check_inputs_unchanged(tensor(role=Role.IN), zero, minus_zero) is not None


def test_guard_bytes_name_the_side_and_the_distance():
    pattern = np.arange(16, dtype=np.uint8)
    assert check_guard(tensor(), "after", pattern.copy(), pattern) is None
    touched = pattern.copy()
    touched[4] ^= 1
    after = check_guard(tensor(), "after", touched, pattern)
    before = check_guard(tensor(), "before", touched, pattern)
    assert after.reason == before.reason == "outside_buffer"
    assert "the byte 5 past its end" in after.message and "the byte 12 before its start" in before.message


def test_poison_is_a_nan_or_an_absurd_integer_in_every_type():
    for dtype in DType:
        values = poisoned((3,), dtype)
        assert is_poison(values).all()
        assert not is_poison(np.ones(3, dtype.numpy)).any()


def test_torch_gives_the_same_verdicts():
    torch = pytest.importorskip("torch")
    ref = reference()
    for dtype, kind in ((DType.FP32, torch.float32), (DType.BF16, torch.bfloat16)):
        got = torch.tensor(ref).to(kind)
        bounds = BOUNDS if dtype is DType.FP32 else Tolerance(l2=1e-2, row_l2=1e-2, element=3e-2)
        host = check_output(tensor(dtype), bounds, ref.astype(dtype.numpy), ref)
        assert check_output(tensor(dtype), bounds, got, torch.tensor(ref)).l2 == pytest.approx(host.l2)
        got[2, 3] = 50
        wrong = check_output(tensor(dtype), bounds, got, torch.tensor(ref))
        assert (wrong.index, wrong.got) == ((2, 3), "50")
