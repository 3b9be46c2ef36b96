"""Products of special matrices: references against plain ones, bounds that tell honest arithmetic from wrong.

Everything is simulated with NumPy; `hercules lint` repeats it with compiled candidates.
"""

import array_api_compat.numpy as xnp
import ml_dtypes
import numpy as np
import pytest

from cudahercules.judge.checks import check_output
from cudahercules.judge.operands import widen
from cudahercules.judge.verdict import OutputCheck
from cudahercules.task.inputs import generate
from cudahercules.task.load import BUNDLED, family_module, load_family
from cudahercules.task.model import WorkloadRole

SMALL = (WorkloadRole.SMOKE, WorkloadRole.CHECK)
SEEDS = (21,)


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


# --- gemm_complex --------------------------------------------------------------------------------

COMPLEX = tasks_of("kernel/gemm_complex")


def as_real(case):
    """The complex product as a real one of 2k terms: A as it lies, each x + iy of B as (x, y; -y, x)."""
    a, b = case.inputs["a"], case.inputs["b"]
    squares = np.stack([np.stack([b.real, b.imag], -1), np.stack([-b.imag, b.real], -1)], 1)
    return a.view(np.float32), np.ascontiguousarray(squares).reshape(2 * len(b), -1)


def towards_zero(x):
    """float64 to fp32 as tensor cores do it, in float64 again."""
    near = x.astype(np.float32)
    inner = np.nextafter(near, np.float32(0))
    return np.where(np.abs(near.astype(np.float64)) > np.abs(x), inner, near).astype(np.float64)


def tensor_core_sum(pairs, chunk):
    """Products of TF32 matrices, eight terms an instruction; after ``chunk`` terms of each pair the running
    sum is added to the result in fp32."""
    total = np.zeros((pairs[0][0].shape[0], pairs[0][1].shape[1]), np.float32)
    for start in range(0, pairs[0][0].shape[1], chunk):
        running = np.zeros(total.shape)
        for left, right in pairs:
            for p in range(start, min(start + chunk, left.shape[1]), 8):
                running = towards_zero(running + left[:, p : p + 8].astype(float) @ right[p : p + 8])
        total = total + running.astype(np.float32)
    return total


def three_tf32(a, b, chunk):
    a_high, b_high = rounded(a, 11), rounded(b, 11)
    a_low, b_low = rounded(a - a_high, 11), rounded(b - b_high, 11)
    return tensor_core_sum([(a_low, b_high), (a_high, b_low), (a_high, b_high)], chunk)


@each(COMPLEX)
def test_complex_products_agree_with_loops(task):
    for case in cases(task, "smoke", "outer_product", seeds=(1,)):
        a, b = (case.inputs[n].astype(np.complex128) for n in "ab")
        real, imaginary = np.zeros((2, len(a), b.shape[1]))
        for left, right in zip(a.T, b, strict=True):
            real += np.outer(left.real, right.real) - np.outer(left.imag, right.imag)
            imaginary += np.outer(left.real, right.imag) + np.outer(left.imag, right.real)
        np.testing.assert_allclose(case.reference["c"], real + 1j * imaginary, rtol=1e-10, atol=1e-12)


@each(COMPLEX)
def test_honest_complex_products_pass_with_a_margin_of_two(task):
    for case in cases(task):
        assert not case.misses(2, c=product(case.inputs["a"], case.inputs["b"])), case.workload.name


@each(COMPLEX)
def test_three_tf32_products_pass_if_sums_leave_the_tensor_core_in_time(task):
    for case in cases(task, "odd", "deep", "positive", "row_scaled", "outliers", seeds=(3,)):
        c = three_tf32(*as_real(case), chunk=2048)  # of 2 * 1024 real terms
        assert not case.misses(2, c=c.view(np.complex64)), case.workload.name


@each(COMPLEX)
def test_three_tf32_products_in_one_deep_sum_are_rejected(task):
    for case in cases(task, "deep", seeds=(3,)):
        assert case.misses(c=three_tf32(*as_real(case), chunk=10**6).view(np.complex64))


@each(COMPLEX)
def test_fewer_than_three_tf32_products_are_rejected(task):
    for case in cases(task):
        if case.workload.name in ("positive", "single_column"):
            continue  # terms of one sign: errors average out
        a, b = as_real(case)
        for left, right in ((rounded(a, 11), rounded(b, 11)), (a, rounded(b, 11)), (rounded(a, 11), b)):
            c = product(left.astype(float), right.astype(float), 512).astype(np.float32)
            assert case.misses(c=c.view(np.complex64)), case.workload.name


# --- gemm_quaternion -----------------------------------------------------------------------------

QUATERNION = tasks_of("kernel/gemm_quaternion")
UNITS = {  # (left, right): (sign, unit) for 1, i, j, k
    **{(0, u): (1, u) for u in range(4)},
    **{(u, 0): (1, u) for u in range(4)},
    **{(u, u): (-1, 0) for u in range(1, 4)},
    (1, 2): (1, 3),
    (2, 3): (1, 1),
    (3, 1): (1, 2),
    (2, 1): (-1, 3),
    (3, 2): (-1, 1),
    (1, 3): (-1, 2),
}


def right_factors(b):
    """(k, n, 4) to (4k, 4n): what each component of a quaternion on the left is multiplied by."""
    matrix = np.zeros((b.shape[0], 4, b.shape[1], 4), b.dtype)
    for (left, right), (sign, unit) in UNITS.items():
        matrix[:, left, :, unit] = sign * b[:, :, right]
    return matrix.reshape(4 * b.shape[0], -1)


def quaternion_product(case, multiply):
    a, b = case.inputs["a"], right_factors(case.inputs["b"])
    return multiply(a.reshape(len(a), -1), b).reshape(len(a), -1, 4)


@each(QUATERNION)
def test_quaternions_agree_with_the_table_of_units(task):
    for case in cases(task, "smoke", "outer_product", seeds=(1,)):
        exact = quaternion_product(case, lambda a, b: a.astype(float) @ b.astype(float))
        np.testing.assert_allclose(case.reference["c"], exact, rtol=1e-9, atol=1e-12)


@each(QUATERNION)
def test_honest_quaternion_products_pass_with_a_margin_of_two(task):
    for case in cases(task):
        assert not case.misses(2, c=quaternion_product(case, product)), case.workload.name


@each(QUATERNION)
def test_three_tf32_products_of_quaternions_pass(task):
    for case in cases(task, "odd", "positive", "outliers", "single_row", seeds=(3,)):
        c = quaternion_product(case, lambda a, b: three_tf32(a, b, chunk=512))
        assert not case.misses(2, c=c), case.workload.name


@each(QUATERNION)
def test_tf32_products_of_quaternions_are_rejected(task):
    for case in cases(task):
        if case.workload.name != "positive":  # terms of one sign: errors average out
            c = quaternion_product(case, lambda a, b: product(rounded(a, 11), rounded(b, 11), 512))
            assert case.misses(c=c), case.workload.name


@each(QUATERNION)
def test_quaternions_that_nearly_cancel_are_not_held_to_their_own_size(task):
    """One in 10^7 has a fiftieth of the usual size; an honest error may be 2.5 times the usual one."""
    bound = task.tolerance["c"]
    assert 2.5 * bound.l2 / 2 / bound.row_floor <= bound.row_l2 / 1.5
    assert bound.row_floor > 1 / 50


# --- gemm_gather_scatter -------------------------------------------------------------------------

GATHER = tasks_of("kernel/gemm_gather_scatter")
LOWER = {"fp16": ml_dtypes.bfloat16, "bf16": ml_dtypes.float8_e4m3fn}


def through(x, dtype):
    """Values as they are after a round trip through another type, in fp32."""
    return x.astype(np.float32).astype(dtype).astype(np.float32)


def gathered(case, operand=np.float32, products=np.float32):
    x = case.inputs
    rows = product(through(x["a"], operand)[x["gather"]], through(x["b"], operand), group=16)
    d = x["d"].copy()
    np.add.at(d, x["scatter"], through(rows, products))
    return d


@each(GATHER)
def test_gathered_products_agree_with_loops(task):
    for case in cases(task, "smoke", "one_source", "few_pairs", seeds=(1,)):
        x = {name: value.astype(np.float64) for name, value in case.inputs.items()}
        expected = x["d"].copy()
        for source, target in zip(case.inputs["gather"], case.inputs["scatter"], strict=True):
            expected[target] += x["a"][source] @ x["b"]
        np.testing.assert_allclose(case.reference["d"], expected, rtol=1e-11, atol=1e-12)


@each(GATHER)
def test_honest_gathered_products_pass_with_a_margin_of_two(task):
    for case in cases(task):
        assert not case.misses(2, d=gathered(case)), case.workload.name


@each(GATHER)
def test_gathered_products_that_pass_through_few_bits_are_rejected(task):
    storage = task.tensors[0].dtype.numpy
    for case in cases(task):
        assert case.misses(d=gathered(case, operand=LOWER[task.member])), case.workload.name
        if case.workload.name != "few_pairs":  # hardly any row changes
            assert case.misses(d=gathered(case, products=storage)), case.workload.name


@each(GATHER)
def test_a_row_that_no_pair_names_must_stay(task):
    for case in cases(task, "odd", "few_pairs", "one_target"):
        d = gathered(case)
        spared = next(i for i in range(len(d)) if i not in case.inputs["scatter"])
        d[spared] = 0
        assert case.misses(d=d), case.workload.name


# --- gemm_layernorm_gemm -------------------------------------------------------------------------

LAYERNORM = tasks_of("kernel/gemm_layernorm_gemm")
HALF = np.float16


def layernorm_between(case, operand=HALF, first=HALF, normalised=HALF, skipped=0):
    x, w0, gamma, beta, w1 = (through(case.inputs[n], operand) for n in ("x", "w0", "gamma", "beta", "w1"))
    z = through(product(x, w0, 16), first)
    seen = z[:, : z.shape[1] - skipped]
    mean = seen.mean(axis=1, keepdims=True)
    variance = ((seen - mean) ** 2).mean(axis=1, keepdims=True)
    g = (z - mean) / np.sqrt(variance + np.float32(case.scalars["eps"])) * gamma + beta
    return product(through(g, normalised), w1, 16)


@each(LAYERNORM)
def test_two_products_agree_with_loops(task):
    for case in cases(task, "smoke", "hidden_one", seeds=(1,)):
        x = {name: value.astype(float) for name, value in case.inputs.items()}
        for row, expected in zip(x["x"], case.reference["y"], strict=True):
            z = [sum(row * column) for column in x["w0"].T]
            mean = sum(z) / len(z)
            deviation = (sum((v - mean) ** 2 for v in z) / len(z) + case.scalars["eps"]) ** 0.5
            y = sum(
                ((v - mean) / deviation * s + o) * w
                for v, s, o, w in zip(z, x["gamma"], x["beta"], x["w1"], strict=True)
            )
            np.testing.assert_allclose(y, expected, rtol=1e-9, atol=1e-12)


@each(LAYERNORM)
def test_three_roundings_to_fp16_pass_with_a_margin_of_two(task):
    for case in cases(task):
        assert not case.misses(2, y=layernorm_between(case)), case.workload.name


@each(LAYERNORM)
def test_bf16_anywhere_is_rejected(task):
    for case in cases(task):
        if case.workload.name == "hidden_one":
            continue  # a number minus itself
        for place in ("operand", "first", "normalised"):
            y = layernorm_between(case, **{place: ml_dtypes.bfloat16})
            assert case.misses(y=y), (case.workload.name, place)


@each(LAYERNORM)
def test_statistics_that_leave_out_a_column_are_rejected(task):
    for case in cases(task, "odd", "past_the_tile", "large_eps"):
        assert case.misses(y=layernorm_between(case, skipped=1)), case.workload.name


@each(LAYERNORM)
def test_pieces_of_the_rows_agree_with_the_whole(task, monkeypatch):
    whole = cases(task, "odd", seeds=(1,))[0].reference["y"]
    monkeypatch.setattr(family_module(task), "NUMBERS", 7 * (131 + 61))
    np.testing.assert_allclose(cases(task, "odd", seeds=(1,))[0].reference["y"], whole, rtol=1e-12)


# --- contraction ---------------------------------------------------------------------------------

CONTRACTION = tasks_of("kernel/contraction")
EQUATIONS = {3: "bda,dc->abc", 4: "aebf,dfce->abcd", 6: "dega,gfbc->abcdef"}


def contracted(case, operand=np.float32, bits=24):
    equation = EQUATIONS[case.sizes["rank"]]
    x, y = (rounded(through(case.inputs[n], operand), bits) for n in "xy")
    return np.einsum(equation, x, y, optimize=True)


@each(CONTRACTION)
def test_contractions_agree_with_one_element_at_a_time(task):
    equation = EQUATIONS[task.constants["rank"]]
    modes_x, modes_y = equation.split("->")[0].split(",")
    modes_z = equation.split("->")[1]
    summed = sorted(set(modes_x) & set(modes_y))
    for case in cases(task, "smoke", "one_each", seeds=(1,)):
        x, y = (case.inputs[n].astype(float) for n in "xy")
        for index in np.random.default_rng(0).integers(0, case.reference["z"].shape, (40, len(modes_z))):
            place, total = dict(zip(modes_z, index, strict=True)), 0.0
            for term in np.ndindex(*(case.sizes[mode] for mode in summed)):
                place.update(zip(summed, term, strict=True))
                total += x[tuple(place[m] for m in modes_x)] * y[tuple(place[m] for m in modes_y)]
            assert case.reference["z"][tuple(index)] == pytest.approx(total, rel=1e-10, abs=1e-12)


@each(CONTRACTION)
def test_honest_contractions_pass_with_a_margin_of_two(task):
    for case in cases(task):
        assert not case.misses(2, z=contracted(case)), case.workload.name


@each(CONTRACTION)
def test_contractions_of_rounded_operands_are_rejected(task):
    for case in cases(task):
        if "bf16" in task.member:
            assert case.misses(z=contracted(case, operand=ml_dtypes.float8_e4m3fn)), case.workload.name
        else:
            assert case.misses(z=contracted(case, bits=11)), case.workload.name


@each(CONTRACTION)
def test_prompts_name_the_order_of_indices_that_the_reference_follows(task):
    letters = EQUATIONS[task.constants["rank"]].replace(",", "").replace("->", "")
    said = next(piece for piece in task.prompt_text.split("\n") if "= sum over" in piece)
    result, terms = said.split("=")[0], said.split(" of ")[1]
    assert "".join(c for c in terms + result if c in "abcdefg") == letters
