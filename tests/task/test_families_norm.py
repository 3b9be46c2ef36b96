"""Layer normalisation, backward and parallel: references against loops and against the definition of a
gradient, bounds against honest fp32 arithmetic and against what they must reject."""

import math

import ml_dtypes
import numpy as np
import pytest
from test_families import reference, wide_inputs

from cudahercules.judge.checks import check_output
from cudahercules.judge.verdict import OutputCheck
from cudahercules.task.inputs import generate
from cudahercules.task.load import all_tasks, load_task
from cudahercules.task.model import WorkloadRole

f32 = np.float32
FAMILIES = (
    "module/layernorm_bwd",
    "module/parallel_layernorm_fwd",
    "module/parallel_layernorm_bwd",
)
TASKS = [t for t in all_tasks() if t.family in FAMILIES]
each = pytest.mark.parametrize("task", TASKS, ids=[t.id for t in TASKS])


def small(task):
    return task.workloads_of(WorkloadRole.SMOKE, WorkloadRole.CHECK)


def named(task, name):
    return next(w for w in task.workloads if w.name == name)


def fails(task, workload, outputs, expected, margin=1.0):
    """Names of the outputs that miss their bound divided by ``margin``."""
    failed = []
    for tensor in task.outputs:
        tight = task.tolerance[tensor.name].tightened(margin)
        stored = np.asarray(outputs[tensor.name]).astype(tensor.dtype.numpy)
        if not isinstance(check_output(tensor, tight, stored, expected[tensor.name]), OutputCheck):
            failed.append(tensor.name)
    return failed


# --- independent references, row by row ----------------------------------------------------------


def backward_by_rows(x):
    columns = range(len(x["weight"]))
    dx, dweight, dbias = [], [[] for _ in columns], [[] for _ in columns]
    for r, (dy, row) in enumerate(zip(x["dy"].tolist(), x["x"].tolist(), strict=True)):
        normal = [(v - x["mean"][r]) * x["rstd"][r] for v in row]
        weighted = [d * w for d, w in zip(dy, x["weight"].tolist(), strict=True)]
        along = math.fsum(g * n for g, n in zip(weighted, normal, strict=True)) / len(row)
        level = math.fsum(weighted) / len(row)
        dx.append([x["rstd"][r] * (g - level - n * along) for g, n in zip(weighted, normal, strict=True)])
        for j in columns:
            dweight[j].append(dy[j] * normal[j])
            dbias[j].append(dy[j])
    sums = {"dweight": dweight, "dbias": dbias}
    return {"dx": np.array(dx), **{k: np.array([math.fsum(c) for c in v]) for k, v in sums.items()}}


def parallel_by_rows(x, eps):
    got = {name: [] for name in ("x", "z0", "z1", "mean", "rstd")}
    for one, other in zip(x["x0"].tolist(), x["residual"].tolist(), strict=True):
        row = [a + b for a, b in zip(one, other, strict=True)]
        mean = math.fsum(row) / len(row)
        rstd = (math.fsum((v - mean) ** 2 for v in row) / len(row) + eps) ** -0.5
        normal = [(v - mean) * rstd for v in row]
        for k in "01":
            got["z" + k].append(
                [n * w + b for n, w, b in zip(normal, x["weight" + k], x["bias" + k], strict=True)]
            )
        got["x"].append(row)
        got["mean"].append(mean)
        got["rstd"].append([rstd])
    return {name: np.array(rows) for name, rows in got.items()}


def parallel_backward_by_rows(x):
    """Each branch by itself, and their sum with what arrives at x."""
    branches = [backward_by_rows({**x, "dy": x["dz" + k], "weight": x["weight" + k]}) for k in "01"]
    got = {"dx0": x["dx"] + branches[0]["dx"] + branches[1]["dx"]}
    for k, branch in enumerate(branches):
        got |= {f"{name}{k}": branch[name] for name in ("dweight", "dbias")}
    return got


PLAIN = {
    "module/layernorm_bwd": lambda x, eps: backward_by_rows(x),
    "module/parallel_layernorm_fwd": parallel_by_rows,
    "module/parallel_layernorm_bwd": lambda x, eps: parallel_backward_by_rows(x),
}


@each
def test_reference_agrees_with_a_plain_one(task):
    for name in ("smoke", "one_row"):
        workload = named(task, name)
        inputs = wide_inputs(task, workload)
        got, expected = (
            reference(task, workload, inputs),
            PLAIN[task.family](inputs, workload.scalars.get("eps")),
        )
        assert got.keys() == {t.name for t in task.outputs} == expected.keys()
        for tensor in task.outputs:
            assert got[tensor.name].shape == task.shape(tensor, workload)
            np.testing.assert_allclose(got[tensor.name], expected[tensor.name], rtol=1e-10, atol=1e-11)


def normalised(x, weight, bias):
    centred = x - x.mean(axis=1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=1, keepdims=True)) * weight + bias


def slope(loss, at, direction, step=1e-5):
    return (loss(at + step * direction) - loss(at - step * direction)) / (2 * step)


def test_the_backward_pass_is_the_derivative_of_the_forward_pass():
    """With the statistics of x itself, as a forward pass hands them on."""
    task = load_task("module/layernorm_bwd/fp32_256")
    inputs = wide_inputs(task, named(task, "odd"))
    x, weight, dy = inputs["x"], inputs["weight"], inputs["dy"]
    inputs["mean"], inputs["rstd"] = x.mean(axis=1), 1 / x.std(axis=1)
    got = reference(task, named(task, "odd"), inputs)
    random, zero = np.random.default_rng(2), np.zeros_like(weight)
    for name, start, output in (
        ("dx", x, lambda v: normalised(v, weight, zero)),
        ("dweight", weight, lambda v: normalised(x, v, zero)),
        ("dbias", zero, lambda v: normalised(x, weight, v)),
    ):
        direction = random.normal(size=start.shape)
        numeric = slope(lambda v, f=output: (dy * f(v)).sum(), start, direction)
        assert (got[name] * direction).sum() == pytest.approx(numeric, rel=1e-6), name


def test_the_parallel_backward_pass_is_the_derivative_of_the_parallel_forward_pass():
    task = load_task("module/parallel_layernorm_bwd/fp32_256")
    inputs = wide_inputs(task, named(task, "odd"))
    x, zero = inputs["x"], np.zeros(256)
    inputs["mean"], inputs["rstd"] = x.mean(axis=1), 1 / x.std(axis=1)
    got = reference(task, named(task, "odd"), inputs)

    def loss(at, weight0=inputs["weight0"], bias0=zero, weight1=inputs["weight1"], bias1=zero):
        z0, z1 = normalised(at, weight0, bias0), normalised(at, weight1, bias1)
        return (inputs["dz0"] * z0).sum() + (inputs["dz1"] * z1).sum() + (inputs["dx"] * at).sum()

    random = np.random.default_rng(2)
    for name, start, along in (
        ("dx0", x, loss),
        ("dweight0", inputs["weight0"], lambda v: loss(x, weight0=v)),
        ("dbias0", zero, lambda v: loss(x, bias0=v)),
        ("dweight1", inputs["weight1"], lambda v: loss(x, weight1=v)),
        ("dbias1", zero, lambda v: loss(x, bias1=v)),
    ):
        direction = random.normal(size=start.shape)
        numeric = slope(along, start, direction)
        assert (got[name] * direction).sum() == pytest.approx(numeric, rel=1e-5), name


# --- honest arithmetic in fp32 -------------------------------------------------------------------


def block_sum(values):
    """256 threads, each with its own running sum, then a tree."""
    total = np.add.accumulate(values.reshape(len(values), -1, 256), axis=1, dtype=f32)[:, -1]
    while total.shape[1] > 1:
        half = total.shape[1] // 2
        total = total[:, :half] + total[:, half:]
    return total


def running(values, rounded=lambda v: v):
    """One row after the other: the longest chain of additions that there is."""
    total = np.zeros(values.shape[1], f32)
    for row in values:
        total = rounded(total + row)
    return total


def backward(x, eps, rounded=lambda v: v):
    hidden = f32(x["x"].shape[1])
    dy, rstd = x["dy"].astype(f32), x["rstd"][:, None]
    normal = (x["x"].astype(f32) - x["mean"][:, None]) * rstd
    weighted = dy * x["weight"].astype(f32)
    along, level = block_sum(weighted * normal) / hidden, block_sum(weighted) / hidden
    return {
        "dx": rstd * (weighted - level - normal * along),
        "dweight": running(dy * normal, rounded),
        "dbias": running(dy, rounded),
    }


def parallel(x, eps, rounded=lambda v: v):
    """``rounded``: what the sum passes through before its statistics are taken."""
    total = x["x0"].astype(f32) + x["residual"].astype(f32)
    values, hidden = rounded(total), f32(total.shape[1])
    mean = block_sum(values) / hidden
    centred = values - mean
    rstd = f32(1) / np.sqrt(block_sum(centred * centred) / hidden + f32(eps))
    weights = {k: v.astype(f32) for k, v in x.items() if v.ndim == 1}
    z = {f"z{k}": centred * rstd * weights[f"weight{k}"] + weights[f"bias{k}"] for k in "01"}
    return {"x": total, "mean": mean[:, 0], "rstd": rstd, **z}


def parallel_backward(x, eps, rounded=lambda v: v):
    hidden = f32(x["x"].shape[1])
    rstd = x["rstd"][:, None]
    dz = [x["dz0"].astype(f32), x["dz1"].astype(f32)]
    normal = (x["x"].astype(f32) - x["mean"][:, None]) * rstd
    weighted = dz[0] * x["weight0"].astype(f32) + dz[1] * x["weight1"].astype(f32)
    along, level = block_sum(weighted * normal) / hidden, block_sum(weighted) / hidden
    got = {"dx0": x["dx"].astype(f32) + rstd * (weighted - level - normal * along)}
    for k in (0, 1):
        got |= {f"dweight{k}": running(dz[k] * normal, rounded), f"dbias{k}": running(dz[k], rounded)}
    return got


HONEST = {
    "module/layernorm_bwd": backward,
    "module/parallel_layernorm_fwd": parallel,
    "module/parallel_layernorm_bwd": parallel_backward,
}


def made(task, workload, seed=3):
    """Inputs in storage dtype and the reference's answer."""
    inputs = {t.name: generate(task, t, workload, seed) for t in task.inputs}
    return inputs, reference(task, workload, wide_inputs(task, workload, seed))


@each
def test_honest_arithmetic_passes_with_a_margin_of_two(task):
    for workload in small(task):
        inputs, expected = made(task, workload)
        outputs = HONEST[task.family](inputs, workload.scalars.get("eps"))
        assert all(v.dtype == f32 for v in outputs.values())
        assert fails(task, workload, outputs, expected, margin=2.0) == [], workload.name


@each
def test_inputs_of_the_named_lower_precision_fail(task):
    workload = named(task, "odd")
    inputs, expected = made(task, workload)
    (lower,) = {d.value for d in task.lower_precision.values()}
    for name, values in inputs.items():
        if values.ndim == 2:
            inputs[name] = to_tf32(values) if lower == "tf32" else values.astype(ml_dtypes.float8_e4m3fn)
    outputs = HONEST[task.family](inputs, workload.scalars.get("eps"))
    assert set(fails(task, workload, outputs, expected)) >= set(task.lower_precision)


def to_bf16(x):
    return x.astype(ml_dtypes.bfloat16).astype(f32)


def to_tf32(x):
    return ((x.astype(f32).view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(f32)


BACKWARD = [t for t in TASKS if t.family.endswith("_bwd")]


@pytest.mark.parametrize("task", BACKWARD, ids=[t.id for t in BACKWARD])
def test_sums_over_rows_kept_in_bf16_fail(task):
    workload = named(task, "one_sided")
    inputs, expected = made(task, workload)
    rounded = HONEST[task.family](inputs, None, rounded=to_bf16)
    failed = fails(task, workload, rounded, expected)
    assert failed and set(failed) == {t.name for t in task.outputs if t.name.startswith(("dw", "db"))}


PARALLEL = [t for t in TASKS if t.family == "module/parallel_layernorm_fwd"]


@pytest.mark.parametrize("task", PARALLEL, ids=[t.id for t in PARALLEL])
def test_a_sum_that_is_rounded_before_its_statistics_fails(task):
    workload = named(task, "large_mean")
    inputs, expected = made(task, workload)
    outputs = parallel(inputs, workload.scalars["eps"], rounded=to_bf16)
    assert {"z0", "z1", "rstd"} <= set(fails(task, workload, outputs, expected))
