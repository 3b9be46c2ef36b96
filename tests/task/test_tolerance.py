"""The bounds prove themselves: honest arithmetic passes with a margin of two, wrong answers fail.

Everything is simulated with NumPy, operation by operation in single precision; the judges repeat the
same table with the compiled candidates (`hercules lint`).
"""

import ml_dtypes
import numpy as np
import pytest
from test_families import reference, wide_inputs

from cudahercules.judge.checks import check_output
from cudahercules.judge.verdict import OutputCheck
from cudahercules.task.inputs import generate
from cudahercules.task.load import all_tasks
from cudahercules.task.model import WorkloadRole

f32 = np.float32


def to_tf32(x):
    return ((x.astype(f32).view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(f32)


ROUND = {
    "fp32": lambda x: x.astype(f32),
    "tf32": to_tf32,
    "fp8_e4m3": lambda x: np.clip(x, -448, 448).astype(ml_dtypes.float8_e4m3fn).astype(f32),
    "bf16": lambda x: x.astype(ml_dtypes.bfloat16).astype(f32),
}


# --- honest implementations ----------------------------------------------------------------------


def gemm(task, workload, x, lower=lambda v: v):
    """A plain loop over k, product and sum each rounded to fp32 (fp64 for fp64): the worst honest order."""
    real = np.float64 if task.member == "fp64" else f32
    a, b = (lower(x[name].astype(real)).astype(real) for name in "ab")
    c = np.zeros((a.shape[0], b.shape[1]), real)
    for p in range(a.shape[1]):
        c += a[:, p : p + 1] * b[p : p + 1]
    return {"c": c}


def rotary(task, workload, x, lower=lambda v: v):
    half = task.constants["head_dim"] // 2
    first = np.arange(half) * 2 if task.constants["interleaved"] else np.arange(half)
    second = first + 1 if task.constants["interleaved"] else first + half
    rows = x["cos_sin"][x["position"]]
    cos, sin = rows[:, None, :half], rows[:, None, half:]
    out = {}
    for name in ("q", "k"):
        values = lower(x[name].astype(f32))
        out[f"{name}_out"] = np.empty_like(values)
        out[f"{name}_out"][..., first] = values[..., first] * cos - values[..., second] * sin
        out[f"{name}_out"][..., second] = values[..., second] * cos + values[..., first] * sin
    return out


def block_sum(values):
    """256 threads, each with its own running sum, then a tree: as naive.cu adds."""
    total = np.add.accumulate(values.reshape(len(values), -1, 256), axis=1, dtype=f32)[:, -1]
    while total.shape[1] > 1:
        half = total.shape[1] // 2
        total = total[:, :half] + total[:, half:]
    return total[:, 0]


def layernorm(task, workload, x, lower=lambda v: v, one_pass=False, divisor=0, skip_small=False):
    values, hidden = x["x"].astype(f32), f32(task.constants["hidden"])
    eps = f32(workload.scalars["eps"])
    mean = block_sum(values) / hidden
    if one_pass:
        variance = np.maximum(block_sum(values * values) / hidden - mean * mean, 0)
    else:
        centred = values - mean[:, None]
        variance = block_sum(centred * centred) / (hidden - f32(divisor))
    rstd = f32(1) / np.sqrt(variance + eps)
    scale = np.where(variance < 1e-4, f32(0), rstd) if skip_small else rstd
    z = (values - mean[:, None]) * scale[:, None] * x["weight"].astype(f32) + x["bias"].astype(f32)
    return {"z": lower(z), "mean": mean, "rstd": rstd[:, None]}


HONEST = {"kernel/gemm": gemm, "kernel/rotary": rotary, "module/layernorm_fwd": layernorm}
KNOWN = HONEST


class Case:
    """One workload with its inputs and its reference."""

    def __init__(self, task, workload, seed):
        self.task, self.workload = task, workload
        self.inputs = {t.name: generate(task, t, workload, seed) for t in task.inputs}
        self.reference = reference(task, workload, wide_inputs(task, workload, seed))

    def honest(self, **changes):
        return HONEST[self.task.family](self.task, self.workload, self.inputs, **changes)

    def fails(self, outputs, margin=1.0):
        """The names of the outputs that miss their bound divided by ``margin``."""
        failed = []
        for tensor in self.task.outputs:
            tight = self.task.tolerance[tensor.name].tightened(margin)
            with np.errstate(over="ignore", invalid="ignore"):
                stored = np.asarray(outputs[tensor.name]).astype(tensor.dtype.numpy)
            checked = check_output(tensor, tight, stored, self.reference[tensor.name])
            if not isinstance(checked, OutputCheck):
                failed.append(tensor.name)
        return failed


def cases(task, seed=3):
    small = task.workloads_of(WorkloadRole.SMOKE, WorkloadRole.CHECK)
    return {w.name: Case(task, w, seed) for w in small}


@pytest.fixture(scope="module")
def case_of():
    """Cases are made once a task and shared by the tests of this file."""
    made = {}

    def get(task):
        if task.family not in HONEST:
            pytest.skip("the family's own test file proves its bounds")
        return made.setdefault(task.id, cases(task))

    return get


def test_honest_arithmetic_passes_with_a_margin_of_two(known_task, case_of):
    for seed in (3, 4, 5):
        for name, case in (case_of(known_task) if seed == 3 else cases(known_task, seed)).items():
            assert case.fails(case.honest(), margin=2.0) == [], name


def test_the_named_lower_precision_fails(known_task, case_of):
    """By name of output; every workload with non-trivial values must notice, except for those of the
    16-bit and TF32 products whose terms are all positive: their errors average out."""
    lower = {ROUND[d.value] for d in known_task.lower_precision.values()}
    assert len(lower) == 1
    for name, case in case_of(known_task).items():
        if name in ("positive", "single_column") and known_task.member in ("tf32", "fp16", "bf16"):
            continue
        failed = case.fails(case.honest(lower=lower.copy().pop()))
        assert set(known_task.lower_precision) <= set(failed), name


def test_trivial_outputs_fail_everywhere(known_task, case_of):
    random = np.random.default_rng(0)
    for name, case in case_of(known_task).items():
        honest = case.honest()
        for tensor in known_task.outputs:
            good = honest[tensor.name]
            wrong = {
                "zeros": np.zeros_like(good),
                "mean": np.full_like(good, good.mean()),
                "nan": np.full_like(good, np.nan),
                "negated": -good,
                "doubled": 2 * good,
                "shuffled": random.permutation(good.ravel()).reshape(good.shape),
            }
            if np.unique(case.reference[tensor.name]).size == 1:  # statistics of a constant row
                del wrong["mean"], wrong["shuffled"]
            for what, values in wrong.items():
                assert case.fails({**honest, tensor.name: values}) == [tensor.name], (name, what)


def test_input_copies_fail(known_task, case_of):
    for name, case in case_of(known_task).items():
        honest = case.honest()
        for tensor in known_task.outputs:
            for source in case.inputs.values():
                if source.shape == honest[tensor.name].shape:
                    assert case.fails({**honest, tensor.name: source}), (name, tensor.name)


def test_two_percent_of_rows_left_out_fails(known_task, case_of):
    for name, case in case_of(known_task).items():
        honest = case.honest()
        for tensor in known_task.outputs:
            values = honest[tensor.name].copy()
            rows = values.reshape(-1, values.shape[-1]) if values.ndim > 1 else values[:, None]
            size = np.linalg.norm(rows.astype(np.float64), axis=1)
            smallest = np.argsort(size, kind="stable")[: max(1, len(rows) // 50)]
            if values.ndim == 1 and tensor.name == "mean" and size[smallest].max() < 1e-4 * size.max():
                continue  # the mean of a row a million times smaller than the others is not judged alone
            rows[smallest] = 0
            assert case.fails({**honest, tensor.name: values}) == [tensor.name], name


# --- layernorm's numerical mutants: the bound must tell them from honest code --------------------


LAYERNORMS = [t for t in all_tasks() if t.family == "module/layernorm_fwd"]
each_layernorm = pytest.mark.parametrize("task", LAYERNORMS, ids=[t.member for t in LAYERNORMS])


@each_layernorm
def test_one_pass_variance_fails_where_the_mean_is_large(task, case_of):
    case = case_of(task)["large_mean"]
    assert "rstd" in case.fails(case.honest(one_pass=True))


@each_layernorm
def test_unbiased_variance_fails(task, case_of):
    case = case_of(task)["odd"]
    assert "rstd" in case.fails(case.honest(divisor=1), margin=0.5)


@each_layernorm
def test_skipping_small_rows_fails(task, case_of):
    case = case_of(task)["row_scaled"]
    assert case.fails(case.honest(skip_small=True)) == ["z"]
